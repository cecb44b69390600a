"""Is what `simkit advise` says good on other prompts? `python -m benchmarks.advise [TRACE …]`.

Each trace's prompts are cut into halves at random, many times. What is the fastest on one half is
held against what is the fastest of all settings on the other. Advice that says of itself that it
cannot tell is counted apart.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator

import numpy as np

import traces
from analysis.advise.candidates import RIVALS, regret, tried
from analysis.advise.result import CLOSE
from analysis.study import Study
from simkit.statistics.enough import FOR_VERDICT
from traces.subset import select

HALVES = 20
GPU = "atlas(target=llama-3.1-8b, draft=qwen2.5-0.5b)"
TRACES = (
    ("reference", None),
    ("reference-sampled", None),
    ("reference-target", None),
    ("smollm2", None),
    ("smollm2-sampled", None),
    ("smollm2-long", GPU),
    ("reference", GPU),
    ("smollm2", GPU),
    ("smollm2-sampled", GPU),
    ("reference, 6 prompts", GPU),
    ("ladder", GPU),
    ("ladder-sampled", GPU),
)

HEADS = (
    "trace",
    "cost",
    "settings",
    "prompts",
    "sure",
    "of these within 1%",
    "worst of the sure",
    "worst of all",
)


def seconds(name: str, cost: str | None) -> tuple[np.ndarray, np.ndarray]:
    """Every setting's seconds on each prompt, (K, S), and the prompts' numbers, (S,)."""
    folder, _, six = name.partition(", ")
    trace = traces.load(folder)
    trace = select(trace, range(6)) if six else trace
    found = tried(Study(trace), cost)
    total_s = np.stack([found.replay(one).total_s for one in found.settings])
    return total_s, trace.prompt_numbers


def halves(total_s: np.ndarray, number: np.ndarray, seed: int = 0) -> Iterator[tuple[bool, float]]:
    """Whether advice from one half is sure, and its loss to the best of the other, as a share.

    Copies of one prompt are in one half.
    """
    rng = np.random.default_rng(seed)
    n = int(number.max()) + 1
    for _ in range(HALVES):
        first = np.isin(number, rng.permutation(n)[: n // 2])
        one, other = total_s[:, first], total_s[:, ~first]
        ranks = np.argsort(one.sum(1), kind="stable")
        sure = n // 2 >= FOR_VERDICT and regret(one[ranks[:RIVALS]]) <= CLOSE
        sums = other.sum(1)
        yield sure, float(sums[ranks[0]] / sums.min() - 1)


def main() -> None:
    """Print a row a trace."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("traces", nargs="*", help="of those of the table, or folders")
    parser.add_argument("--cost", help="of folders", default=GPU)
    given = parser.parse_args()
    known = [row for row in TRACES if not given.traces or row[0] in given.traces]
    names = {name for name, _ in known}
    print(*HEADS, sep=" | ")
    print(*("---" for _ in HEADS), sep=" | ")
    for name, cost in [*known, *((one, given.cost) for one in given.traces if one not in names)]:
        total_s, number = seconds(name, cost)
        found = list(halves(total_s, number))
        sure = [lost for certain, lost in found if certain]
        good = sum(lost <= CLOSE for lost in sure)
        cells = [name, "an H200" if cost else "its own", *total_s.shape]
        cells += [f"{len(sure)} of {len(found)}", good, f"{max(sure):.1%}" if sure else "–"]
        print(*cells, f"{max(lost for _, lost in found):.1%}", sep=" | ", flush=True)


if __name__ == "__main__":
    main()
