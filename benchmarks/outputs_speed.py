"""How fast `record --outputs` reads what `record` generates.

    python -m benchmarks.outputs_speed

The target alone is recorded on prompts of SmolLM2; then its outputs are recorded as an engine's.
Both are the commands with their defaults, in turns; what both recordings hold is compared.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median

import polars as pl

SMOLLM2 = Path.home() / ".cache/simkit/smollm2-135m-instruct"


def main() -> None:
    """Print the medians, and how far values are apart at most."""
    options = _options()
    with tempfile.TemporaryDirectory() as folder:
        seconds: dict[str, list[float]] = {"record": [], "--outputs": []}
        for k in range(options.rounds):
            first, second = (Path(folder) / f"{name}-{k}" for name in ("first", "second"))
            prompts = _prompts(options, Path(folder))
            seconds["record"].append(_record(options, first, "--prompts", prompts))
            seconds["--outputs"].append(_record(options, second, "--outputs", _outputs(first)))
            tokens, apart = _compared(first, second)
    of = {name: median(values) for name, values in seconds.items()}
    for name, value in of.items():
        print(f"{name}: {value:.1f} s, {tokens / value:,.0f} tokens/s, the check at load included")
    print(f"{of['record'] / of['--outputs']:.2f} times as fast; {tokens:,} equal tokens")
    print(f"probabilities and entropies are at most {apart:.1g} apart")


def _prompts(options: argparse.Namespace, folder: Path) -> Path:
    """The first prompts that are one message."""
    lines = Path(options.prompts).read_text(encoding="utf-8").splitlines()
    single = [line for line in lines if len(json.loads(line).get("messages", [0])) == 1]
    file = folder / "prompts.jsonl"
    file.write_text("\n".join(single[: options.n_prompts]), encoding="utf-8")
    return file


def _outputs(trace: Path) -> Path:
    rows = pl.read_parquet(trace / "sequences.parquet").select(
        "id", prompt_token_ids="prompt_tokens", output_token_ids="output_tokens"
    )
    rows.write_ndjson(file := trace.with_suffix(".jsonl"))
    return file


def _record(options: argparse.Namespace, out: Path, *given: object) -> float:
    """The seconds that a recording says of itself."""
    command = [sys.executable, "-m", "simkit", "record", "--target", options.target, "--out", out]
    done = subprocess.run(
        [*map(str, command), *map(str, given)], check=True, capture_output=True, text=True
    )
    (seconds,) = re.findall(r"tokens in ([\d.]+) s", done.stdout + done.stderr)
    return float(seconds)


def _compared(first: Path, second: Path) -> tuple[int, float]:
    """Tokens of two recordings, and how far values are apart.

    Raises:
        AssertionError: a token differs.
    """
    a, b = (pl.read_parquet(folder / "target") for folder in (first, second))
    assert a.drop(pl.selectors.float()).equals(b.drop(pl.selectors.float()))
    floats = a.select(pl.selectors.float()) - b.select(pl.selectors.float())
    return len(a), max(abs(value) for row in (floats.min(), floats.max()) for value in row.row(0))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--target", default=SMOLLM2)
    parser.add_argument("--prompts", default="traces/smollm2/prompts.jsonl")
    parser.add_argument("--n-prompts", type=int, default=40)
    parser.add_argument("--rounds", type=int, default=3)
    return parser.parse_args()


if __name__ == "__main__":
    main()
