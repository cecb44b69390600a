"""How fast a sweep runs: `python -m benchmarks.sweep_speed`.

Sweeps 1,000 settings over a made-up trace of one million positions (α = 0.8, Γ = 40) by task, with
costs from a table and without intervals, on one thread and on two. Columns are read, and one
setting swept, before; then everything counts: specs, the trace's layout, tables of times, replays,
sums, the data frame. Beside the seconds stands the processor time of all threads together, which
other work on the machine stretches less.
"""

from __future__ import annotations

import argparse
import os
import platform
import time

import numba

import simkit
from benchmarks.replay_speed import ALPHA, COST, LENGTH
from traces import synthetic
from traces.trace import Trace

SPECS = (
    "svip(h=0.002:2.0:0.002)",
    "svip(h=0.01:10.0:0.01)",
    "confidence(threshold=0.001:1.0:0.001)",
    "heuristic(initial=1:40, max_draft=16:40)",
    "heuristic(initial=1:40, schedule=heuristic, max_draft=16:40)",
)
TARGET_S = 10.0  # on two cores


def main() -> None:
    """Print all figures."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split(":")[0])
    parser.add_argument("--positions", type=int, default=1_000_000)
    parser.add_argument("--max-draft", type=int, default=40)
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    given = parser.parse_args()
    print(f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores,", end=" ")
    print(f"Python {platform.python_version()}, numba {numba.__version__}")
    trace = prepare(given.positions, given.max_draft)
    print(f"trace: {trace.n_positions:,} positions, {trace.n_branch_rows:,} branch rows,", end=" ")
    print(f"{trace.n_sequences:,} sequences of 4 tasks; target ≤ {TARGET_S:g} s on two cores\n")
    heads = [f"{n} thr., s" for n in given.threads]
    print(f"{'settings':62}{'count':>6}", *(f"{head:>10}{'cpu, s':>8}" for head in heads))
    for spec in SPECS:
        simkit.sweep(trace, spec.split("(")[0], COST)
        cells = ["{:10.2f}{:8.2f}".format(*sweep_s(trace, spec, n)) for n in given.threads]
        print(f"{spec:62}{len(simkit.policies.expand(spec)):6,}", *cells, flush=True)


def prepare(positions: int, max_draft: int) -> Trace:
    """A trace of four tasks, with the columns read that the settings read."""
    tasks = ("code", "prose", "math", "german")
    n = max(1, positions // LENGTH)
    trace = synthetic.iid(n, LENGTH, ALPHA, max_draft=max_draft, seed=0, tasks=tasks)
    for table in ("positions", "branches"):
        for column in ("draft_entropy", "draft_prob_raw", "draft_token"):
            trace.column(table, column)
    return trace


def sweep_s(trace: Trace, spec: str, threads: int) -> tuple[float, float]:
    """Seconds of a sweep, data frame included, and its seconds of processor time."""
    started, cpu = time.perf_counter(), time.process_time()
    frame = simkit.sweep(trace, spec, COST, by="task", workers=threads).frame
    spent = time.perf_counter() - started, time.process_time() - cpu
    assert frame["speedup"].is_not_nan().all()
    return spent


if __name__ == "__main__":
    main()
