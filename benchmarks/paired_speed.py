"""Replays and sweeps against another checkout: `python -m benchmarks.paired_speed OLD`.

OLD is the folder of another version of this project (`git worktree add --detach OLD COMMIT`). Each
version has a process of its own, with the made-up traces of `benchmarks.replay_speed` and
`benchmarks.sweep_speed`. The two take turns, one replay or one sweep at a time, so that other work
on the machine slows both alike. Times are those of the processor, one thread. Printed are the least
time of each, and the ratio of old to new: of the least times, and the median over pairs of turns
with its quartiles. Above 1, this version is the faster one.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

SWEEPS = ("svip(h=0.1:10.0:0.1)", "heuristic(initial=1:40, max_draft=36:40)")
SEARCHED = ("confidence_adaptive", "rate_optimal")  # a tenth as many turns: they take long
ROOT = Path(__file__).parent.parent


def main() -> None:
    """Print all figures."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split(":")[0])
    parser.add_argument("old", type=Path, help="checkout to compare with")
    parser.add_argument("--positions", type=int, default=1_000_000)
    parser.add_argument("--turns", type=int, default=100)
    parser.add_argument("--only", nargs="*", default=[], help="policies and specs of sweeps")
    given = parser.parse_args()
    versions = [started(root, given.positions) for root in (given.old, ROOT)]
    print(f"{'':44}{'old, ms':>9}{'new, ms':>9}{'least':>7}{'median':>8}{'quartiles':>14}")
    jobs = [*[f"replay {name}" for name in ask(versions[0], "names").split()]]
    jobs += [f"sweep {spec}" for spec in SWEEPS]
    for job in jobs:
        kind, what = job.split(" ", 1)
        if given.only and what not in given.only:
            continue
        turns = given.turns // 10 if kind == "sweep" or what in SEARCHED else given.turns
        print(f"{job:44}{line(versions, job, max(3, turns))}", flush=True)
    for version in versions:
        version.communicate("")


def line(versions: list[subprocess.Popen[str]], job: str, turns: int) -> str:
    """The figures of one job."""
    for version in versions:
        ask(version, job)  # compiles, lays out
    old_s, new_s = [], []
    for turn in range(turns):
        order = ((0, old_s), (1, new_s))
        for at, seconds in order if turn % 2 else order[::-1]:
            seconds.append(float(ask(versions[at], job)))
    ratios = [a / b for a, b in zip(old_s, new_s, strict=True)]
    low, middle, high = statistics.quantiles(ratios, n=4)
    least = min(old_s), min(new_s)
    return (
        f"{least[0] * 1e3:9.2f}{least[1] * 1e3:9.2f}{least[0] / least[1]:7.2f}{middle:8.2f}"
        f"{low:8.2f}–{high:.2f}"
    )


def started(root: Path, positions: int) -> subprocess.Popen[str]:
    """A version's process, which answers lines."""
    return subprocess.Popen(
        [sys.executable, __file__, "--serve", str(positions)],
        cwd=root,
        env=os.environ | {"PYTHONPATH": str(root.resolve()), "NUMBA_NUM_THREADS": "1"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def ask(version: subprocess.Popen[str], what: str) -> str:
    """A process's answer."""
    assert version.stdin is not None and version.stdout is not None
    print(what, file=version.stdin, flush=True)
    while answer := version.stdout.readline():
        if answer.startswith("answer "):
            return answer.removeprefix("answer ").strip()
    raise SystemExit(f"the process of a version ended at: {what}")


def serve(positions: int) -> None:
    """Time what is asked for, in the version that PYTHONPATH names."""
    jobs: dict[str, Callable[[], object]] = {}
    make = maker(positions)
    for asked in sys.stdin:
        job = asked.strip()
        if job == "names":
            from simkit import policies

            print("answer", *policies.chains(), flush=True)
            continue
        if job not in jobs:
            jobs[job] = make(*job.split(" ", 1))
        began = time.process_time()
        jobs[job]()
        print("answer", time.process_time() - began, flush=True)


def maker(positions: int) -> Callable[[str, str], Callable[[], object]]:
    """What makes a job of its kind and policy."""
    from benchmarks import replay_speed, sweep_speed
    from simkit import policies
    from simkit.policies import Sequential
    from simkit.simulator.run import run

    whole = replay_speed.prepare(positions, 40)
    part = replay_speed.prepare(max(1, positions // 5), 40, ("by_row", "by_start"))
    swept = sweep_speed.prepare(positions, 40)

    def make(kind: str, what: str) -> Callable[[], object]:
        if kind == "sweep":
            return lambda: sweep_speed.sweep_s(swept, what, 1)
        policy: Any = policies.parse(replay_speed.SPECS.get(what, what))
        small = bool(policy.head) or what in replay_speed.SEARCHING
        if policy.head:
            policy = replace(policy, head="by_start" if what == "pacer" else "by_row")
        on = part if small or not isinstance(policy, Sequential) else whole
        return lambda: run(policy, on.layout, on.charge, 1)

    return make


if __name__ == "__main__":
    if sys.argv[1:2] == ["--serve"]:
        serve(int(sys.argv[2]))
    else:
        main()
