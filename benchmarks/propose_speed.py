"""How fast drafters from tokens alone propose: `python -m benchmarks.propose_speed`.

Made-up text: words of a vocabulary by Zipf's law, and now and then a piece of what came before in
the same sequence once more. Each case runs in a process of its own: CPU seconds of compiling (or of
reading compiled code) first, on a short text; then starts a CPU second, and the most memory
that the process held, text and drafts of one sequence included.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
from typing import Any

import numpy as np

from traces.attach.tokens import NGram, PromptLookup, Suffix

RULES: dict[str, Any] = {
    "prompt_lookup": PromptLookup(),
    "ngram": NGram(length=5, least=1, most=5),
    "suffix": Suffix(),
    "suffix(shared=true)": Suffix(shared=True),
}
SHAPES = {"short": 400, "long": 100_000, "one": None}  # tokens of a sequence; a quarter is prompt
NO_EOS = np.zeros(0, np.int32)


def text(n_tokens: int, rng: np.random.Generator) -> np.ndarray:
    """Words by Zipf's law, about every 30 of them a piece of about 15 of what came before."""
    out = (rng.zipf(1.2, n_tokens) % 50_000).astype(np.int32)
    at = 30
    while at < n_tokens:
        length = min(int(rng.geometric(1 / 15)), at, n_tokens - at)
        begin = int(rng.integers(at - length + 1))
        out[at : at + length] = out[begin : begin + length]
        at += length + int(rng.geometric(1 / 30))
    return out


def measure(name: str, shape: str, n_tokens: int) -> dict[str, Any]:
    """Propose from all starts of so many tokens."""
    rule, length = RULES[name], SHAPES[shape] or n_tokens
    started = time.process_time()
    rule.propose(np.arange(9) % 3, 4, NO_EOS, 5, rule.memory())
    compiled_s = time.process_time() - started
    rng, memory = np.random.default_rng(0), rule.memory()
    starts = drafted = accepted = 0
    spent_s = 0.0
    for _ in range(max(1, n_tokens // length)):
        tokens = text(length, rng)
        started = time.process_time()
        found = rule.propose(tokens, length // 4, NO_EOS, length, memory)
        spent_s += time.process_time() - started
        starts += len(found.lengths)
        drafted += int(found.lengths.sum(dtype=np.int64))
        accepted += int(found.accepted.sum(dtype=np.int64))
    return {
        "compiled_s": compiled_s,
        "starts": starts,
        "starts_per_s": starts / spent_s,
        "drafted_per_start": drafted / starts,
        "accepted_per_start": accepted / starts,
        "memory_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
    }


def main() -> None:
    """Print a table of all cases."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split(":")[0])
    parser.add_argument("--tokens", type=int, default=10_000_000)
    parser.add_argument("--case", nargs=2, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.case:
        print(json.dumps(measure(given.case[0], given.case[1], given.tokens)))
        return
    print(f"{given.tokens:,} tokens a case\n")
    print("| rule | sequences of | starts/s | drafted | accepted | GB | compiling, s |")
    print("|---|---|---|---|---|---|---|")
    for name in RULES:
        for shape, length in SHAPES.items():
            if name.startswith("suffix(") and shape == "one":
                continue  # there are no outputs before it
            command = [sys.executable, "-m", "benchmarks.propose_speed", "--case", name, shape]
            command += ["--tokens", str(given.tokens)]
            found = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
            cells = [
                f"`{name}`",
                f"{length or given.tokens:,}",
                f"{found['starts_per_s']:,.0f}",
                f"{found['drafted_per_start']:.2f}",
                f"{found['accepted_per_start']:.2f}",
                f"{found['memory_bytes'] / 1e9:.2f}",
                f"{found['compiled_s']:.1f}",
            ]
            print("| " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
