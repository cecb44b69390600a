"""Break inputs of every kind, seeded, and count what became of them.

    python -m benchmarks.fuzz [--cases N] [--first K] [--seed S] [--processes P]
    python -m benchmarks.fuzz --mutants [--only WORD] [--seed S] [--processes P]

A trace, a log or a table of times that was altered must be refused in lines of our own with exit
status 2, or give equal counts and seconds. Ends with status 1 after a traceback, a wrong exit, a
wrong number, a case of over 60 s or one of over 4 GiB.

With --mutants the guards of `guards.toml` are removed one by one, and the cases that
should miss them are run until one does; it ends with status 1 if fewer than 95% were missed.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections import Counter
from pathlib import Path

from benchmarks.fuzz import inputs, mutants, workers
from benchmarks.fuzz.families import FAMILIES
from benchmarks.fuzz.judge import FAULTS, VERDICTS
from benchmarks.fuzz.workers import Done

MISSED = 0.95  # of the guards that are removed


def main() -> None:
    """Run the cases and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=5000)
    parser.add_argument("--first", type=int, default=0, help="number of the first case")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--mutants", action="store_true")
    parser.add_argument("--only", default="", help="guards with this in their name")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        base, work = Path(folder) / "sound", Path(folder) / "work"
        base.mkdir()
        work.mkdir()
        inputs.make(base)
        sys.exit(_hunt(options, base, work) if options.mutants else _run(options, base, work))


def _run(options: argparse.Namespace, base: Path, work: Path) -> bool:
    """Run the cases; whether there was a fault."""
    counts: Counter[tuple[str, str]] = Counter()
    slowest, largest = Done(0, "", "", "", 0.0, 0), 0
    numbers = range(options.first, options.first + options.cases)
    for case in workers.run(numbers, options.seed, options.processes, base, work):
        counts[case.family, case.word] += 1
        slowest = max(slowest, case, key=lambda done: done.seconds)
        largest = max(largest, case.peak_bytes)
        if case.word in FAULTS:
            print(f"case {case.number} ({case.family}): {case.word}: {case.detail}", flush=True)
    print("\n".join(table(counts)))
    took = f"slowest case {slowest.seconds:.1f} s (case {slowest.number}, {slowest.family})"
    print(f"{took}, largest process {largest / 2**20:.0f} MiB")
    return any(word in FAULTS for _, word in counts)


def _hunt(options: argparse.Namespace, base: Path, work: Path) -> bool:
    """Remove the guards one by one; whether too few were missed."""
    names = [name for name in mutants.GUARDS if options.only in name]
    found = []
    for one in mutants.run(names, options.seed, options.processes, base, work):
        found.append(one)
        print(f"{len(found)}/{len(names)} {one.guard.name}: {one.cases} cases", flush=True)
    print("\n".join(mutants.table(found)))
    return sum(one.found is not None for one in found) < MISSED * len(found)


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
