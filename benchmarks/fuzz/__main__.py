"""Break inputs of every kind, seeded, and count what became of them.

    python -m benchmarks.fuzz [--cases N] [--seed S] [--processes P]

A trace, a log or a table of times that was altered must be refused in lines of our own with exit
status 2, or give equal counts and seconds. Ends with status 1 after a traceback, a wrong exit, a
wrong number, a case of over 60 s or one of over 4 GiB.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections import Counter
from pathlib import Path

from benchmarks.fuzz import inputs, workers
from benchmarks.fuzz.families import FAMILIES
from benchmarks.fuzz.judge import FAULTS, VERDICTS
from benchmarks.fuzz.workers import Done


def main() -> None:
    """Run the cases and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=5000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--processes", type=int, default=2)
    options = parser.parse_args()
    counts: Counter[tuple[str, str]] = Counter()
    slowest, largest = Done(0, "", "", "", 0.0, 0), 0
    with tempfile.TemporaryDirectory() as folder:
        base, work = Path(folder) / "sound", Path(folder) / "work"
        base.mkdir()
        work.mkdir()
        inputs.make(base)
        for case in workers.run(options.cases, options.seed, options.processes, base, work):
            counts[case.family, case.word] += 1
            slowest = max(slowest, case, key=lambda done: done.seconds)
            largest = max(largest, case.peak_bytes)
            if case.word in FAULTS:
                print(f"case {case.number} ({case.family}): {case.word}: {case.detail}", flush=True)
    print("\n".join(table(counts)))
    took = f"slowest case {slowest.seconds:.1f} s (case {slowest.number}, {slowest.family})"
    print(f"{took}, largest process {largest / 2**20:.0f} MiB")
    sys.exit(any(word in FAULTS for _, word in counts))


def table(counts: Counter[tuple[str, str]]) -> list[str]:
    """The lines of a Markdown table: a family a row, a verdict a column."""
    lines = [f"| {' | '.join(('what was broken', 'cases', *VERDICTS))} |"]
    lines.append("|---" * (2 + len(VERDICTS)) + "|")
    for family in FAMILIES:
        row = [counts[family, word] for word in VERDICTS]
        lines.append(f"| {' | '.join((family, *map(str, (sum(row), *row))))} |")
    row = [sum(counts[family, word] for family in FAMILIES) for word in VERDICTS]
    return [*lines, f"| {' | '.join(('all', *map(str, (sum(row), *row))))} |"]


if __name__ == "__main__":
    main()
