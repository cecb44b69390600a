"""Golden hashes: what every part of the project computes, so that a change of structure shows.

    python -m benchmarks.golden [--only SECTION …]     compare with benchmarks/golden.json
    python -m benchmarks.golden --write [--only …]     take what is computed now

A section is `replay`, `costs`, `serving`, `shards`, `figures` or `claims`. Each entry holds two
hashes: of the bits, and of the numbers rounded to seven digits. Bits may differ on another
processor or under other versions of the libraries; rounded numbers should not. What is refused is
an entry too: the error's class. Ends with status 1 if a number differs, is new or is gone.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from simkit import policies
from simkit.costs import parse as parse_cost
from simkit.drafters.layout import DepthError
from simkit.serving import serve
from simkit.simulator import replay
from traces.errors import UserError
from traces.finding import bundled
from traces.outputs import write_atomic
from traces.trace import Trace, load

FILE = Path(__file__).with_suffix(".json")
MEASURED = "measured(policy_s=0.000001)"  # rules that were not timed would be timed here and now
LINEAR = (
    "linear(draft_s=0.001, target_s=0.01, draft_per_token_s=0.00001, target_per_token_s=0.0002,"
    " draft_per_kv_token_s=0.00000001, target_per_kv_token_s=0.0000001, overhead_s=0.0002)"
)
SHOWN = 40
FIRST = ("draft", "prefill")
PRICED = ("fixed(3)", "oracle", "prophet")  # charged nothing: other rules would be timed here
COSTS = (
    "atlas(target=qwen3-8b, draft=qwen3-0.6b)",
    "roofline(device=h100, target=llama2-70b, draft=llama2-7b)",
    "pacer:deepseek-1.3b-33b",
    "pearl:codellama-7b-34b",
    "specdecode-bench:eagle",
)
CONTROLLERS = (
    "none",
    "static(4)",
    "off_above(4, batch=3)",
    "by_batch([[1, 2, 5], [3, 4, 3], [7, 9, 1]])",
    "schedule({2: 5, 12: 3}, gate=2.6, window=4)",
    "ema(3, candidates={1: [1, 3, 5], 4: [0, 1, 3], 8: [0, 2]})",
    "goodput(6)",
    "budget(5, stale=3, refit=10, least=10)",
    "prophet(6)",
    "each(svip(h=0.4))",
    "batch_mean(svip(h=0.4))",
    "all_stopped(svip(h=0.4))",
)
LOADS = (("rate", 40), ("concurrency", 6))

Columns = Mapping[str, Any]
Entries = Iterator[tuple[str, str]]


def main() -> None:
    """Compare, or write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--only", nargs="+", choices=SECTIONS, default=tuple(SECTIONS))
    given = parser.parse_args()
    known = read()
    apart = 0
    for section in given.only:
        found = dict(SECTIONS[section]())
        words = list(differences(known.get(section, {}), found))
        more = [f"and {len(words) - SHOWN} more"] if len(words) > SHOWN else []
        print(f"{section}: {len(found)} entries", *words[:SHOWN], *more, sep="\n  ", flush=True)
        apart += sum(not word.startswith("bits") for word in words)
        known[section] = found
        if given.write:
            write_atomic(FILE, (json.dumps(known, indent=0, sort_keys=True) + "\n").encode())
    sys.exit(bool(apart and not given.write))


def read() -> dict[str, dict[str, str]]:
    """The hashes that are kept, by section and entry."""
    return json.loads(FILE.read_text()) if FILE.exists() else {}


def differences(known: Mapping[str, str], found: Mapping[str, str]) -> Iterator[str]:
    """One line for each entry that is not as it was."""
    for name in sorted(known.keys() | found.keys()):
        before, now = known.get(name), found.get(name)
        if before is None or now is None:
            yield f"{'new' if before is None else 'gone'}: {name}"
        elif numbers(before) != numbers(now):
            yield f"numbers differ: {name} ({before} → {now})"
        elif before != now:
            yield f"bits differ: {name}"


def numbers(entry: str) -> str:
    """The part of an entry that does not depend on last bits."""
    return entry.split(" ")[0]


def of_columns(parts: Iterable[Columns]) -> str:
    """The hashes of tables, each given by its columns."""
    rounded, bits = sha256(), sha256()
    for columns in parts:
        for name, values in columns.items():
            array = _array(values)
            for digest in (rounded, bits):
                digest.update(f"{name} {array.shape}".encode())
            bits.update(array.tobytes())
            rounded.update((_rounded(array) if array.dtype.kind == "f" else array).tobytes())
    return f"{rounded.hexdigest()[:12]} {bits.hexdigest()[:8]}"


def _array(values: Any) -> np.ndarray:
    """Whole numbers and floats as they are, everything else as the hash of its text."""
    if isinstance(values, pl.Series):
        values = values.to_numpy() if values.dtype.is_numeric() else values.to_list()
    if not isinstance(values, list | str | dict):
        array = np.asarray(values)
        if array.dtype.kind in "iufb":
            return array
        values = array.tolist()
    return np.frombuffer(sha256(json.dumps(values, default=str).encode()).digest(), np.uint8)


def _rounded(values: np.ndarray) -> np.ndarray:
    """Seven significant digits, as whole numbers; NaN and infinite values become markers."""
    size = np.abs(values.astype(np.float64))
    known = np.isfinite(size) & (size > 0)
    power = np.floor(np.log10(size, where=known, out=np.zeros_like(size)))
    digits = np.rint(np.where(known, values, 0.0) * 10.0 ** (6 - power))
    special = np.where(np.isnan(values), 1, np.where(values > 0, 2, 3)) * (~np.isfinite(values))
    return np.stack([digits, power, special]).astype(np.int64)


def entry(compute: Callable[..., Iterable[Columns]], *arguments: Any) -> str:
    """The hashes of what is computed, or the class of the error that refuses it."""
    try:
        return of_columns(compute(*arguments))
    except UserError as error:
        return f"{type(error).__name__} -"


def drafted(names: Iterable[str] | None = None) -> Iterator[tuple[str, Trace]]:
    """Every bundled trace with each of its drafters."""
    for name in sorted(bundled() if names is None else names):
        yield f"{name}/own", load(name)
        for drafter in load(name).drafters:
            yield f"{name}/{drafter}", load(name, drafter)


def steps(trace: Trace, rule: str, settings: Iterable[tuple[str | None, str]]) -> list[Columns]:
    """All steps of one policy, no deeper than recorded or scored, under costs and first tokens."""
    policy = policies.parse(rule)
    policy = policies.shortened(policy, trace.max_draft) or policy
    try:
        replay(trace, policy) if policy.head else None
    except DepthError as error:
        policy = policies.shortened(policy, error.deepest) or policy
    found = []
    for cost, first in settings:
        result = replay(trace, policy, cost, by="step", first_token=first)  # type: ignore[arg-type]
        found.append({k: v for k, v in result.columns.items() if k != "policy"})
    return found


def replays(names: Iterable[str] | None = None, rules: Iterable[str] | None = None) -> Entries:
    """`replay --by step` of every policy, drafter and first token, measured and linear."""
    for place, trace in drafted(names):
        costs = (LINEAR, MEASURED) if trace.latency() is not None else (LINEAR,)
        settings = [(cost, first) for cost in costs for first in FIRST]
        for rule in policies.names() if rules is None else rules:
            yield f"{place} {rule}", entry(steps, trace, rule, settings)
        trace.forget()


def costs() -> Entries:
    """`replay --by step` under every kind of cost."""
    trace = load("reference")
    for cost in COSTS:
        parse_cost(cost)
        for rule in PRICED:
            yield f"{cost} {rule}", entry(steps, trace, rule, [(cost, "draft")])


def served(controllers: Iterable[str] = CONTROLLERS) -> Entries:
    """Iterations and steps of a server under every controller, open and closed load."""
    trace = load("reference")
    for controller in controllers:
        for kind, value in LOADS:
            yield f"{controller} {kind} {value}", entry(runs, trace, controller, {kind: value})


def runs(trace: Trace, controller: str, load_: Mapping[str, Any]) -> Iterator[Columns]:
    """Iterations and steps of short runs."""
    for run in serve(trace, controller, LINEAR, requests=40, seeds=2, **load_):
        yield run.iterations
        yield run.steps


def shards() -> Entries:
    """What a recording holds, and drafters and trees that are attached to it, row by row."""
    from simkit.cli import main as simkit

    home = Path(__file__).parents[1] / "traces/reference"
    models = home / "models"
    target = ("--target", str(models / "target"))
    lines = (home / "prompts.jsonl").read_text().splitlines()[:4]
    with tempfile.TemporaryDirectory() as folder:
        prompts = Path(folder) / "prompts.jsonl"
        prompts.write_text("\n".join(lines) + "\n")
        for name, more in (
            ("greedy", ("--draft", str(models / "draft"), "--hidden")),
            ("sampled", ("--draft", str(models / "draft"), "--temperature", "1")),
            ("alone", ("--temperature", "1")),
        ):
            place = Path(folder) / name
            given = ("--prompts", str(prompts), "--max-new-tokens", "24", "--out", str(place))
            _quietly(simkit, "record", *target, *more, *given, "--device", "cpu")
        greedy = str(Path(folder) / "greedy")
        for drafter in ("suffix()", "prompt_lookup()", "ngram(least=2, most=4)"):
            _quietly(simkit, "attach", greedy, "--drafter", drafter)
        for drafter, more in (
            (f'parallel("{models / "pard2"}", length=8)', ()),
            (f'feature("{models / "eagle"}", length=6)', ()),
            (f'model("{models / "draft"}")', ("--tree", "eagle2(top_k=1:4, depth=1:3)")),
        ):
            _quietly(simkit, "attach", greedy, *target, "--drafter", drafter, *more)
        files = sorted(Path(folder).rglob("*.parquet"))
        for file in (
            file for file in files if file.name != "latency.parquet"
        ):  # times: no two alike
            yield str(file.relative_to(folder)), of_columns([pl.read_parquet(file).to_dict()])


def _quietly(command: Callable[[list[str]], Any], *words: str) -> None:
    import contextlib
    import io

    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        try:
            command(list(words))
        except SystemExit as end:
            if end.code:
                raise RuntimeError(f"simkit {' '.join(words)}: {said.getvalue()}") from None


def figures(names: Iterable[str] | None = None) -> Entries:
    """The frame of every figure, on the bundled trace that it is drawn from."""
    from analysis.figures import FIGURES
    from analysis.study import Study

    studies = {name: Study(name) for name in ("reference", "reference-trees")}
    for name in FIGURES if names is None else names:
        figure = FIGURES[name]
        study = studies["reference-trees" if figure.trees else "reference"]
        cost = None if study.trace.latency() is None else MEASURED
        yield name, entry(_drawn, figure, study, cost)


def _drawn(figure: Any, study: Any, cost: str | None) -> list[Columns]:
    return [figure.under(study, cost).frame.to_dict()]


def claims(names: Iterable[str] | None = None) -> Entries:
    """Every claim's statistics and verdict, of the pair's trace and of the chat model's."""
    from analysis.claims import check
    from analysis.claims import claims as known

    some = None if names is None else [one for one in known() if one.name in names]
    for name in ("reference", "smollm2"):
        found = check(name, MEASURED, claims=some, placebo=None).frame
        for (claim,), rows in found.group_by("claim", maintain_order=True):
            yield f"{name} {claim}", of_columns([rows.to_dict()])


SECTIONS: dict[str, Callable[[], Entries]] = {
    "replay": replays,
    "costs": costs,
    "serving": served,
    "shards": shards,
    "figures": figures,
    "claims": claims,
}

if __name__ == "__main__":
    main()
