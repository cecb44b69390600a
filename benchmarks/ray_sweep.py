"""A sweep over a local Ray cluster, one worker against two: `python -m benchmarks.ray_sweep`.

Sweeps many settings over a made-up trace that is saved to a folder first, on one worker and on two
in turns, in one cluster that is there already. Each run counts everything: a worker's start, the
opening of the trace in each, the replays, what travels, the data frame. All rows must be the same
to the bit. The load of the machine is printed beside each, since others may use its cores.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from pathlib import Path
from statistics import median

import simkit
from benchmarks.replay_speed import ALPHA, COST, LENGTH
from simkit.cluster import cores, joined
from simkit.sweeps import Sweep
from traces import synthetic
from traces.writer import save

SPECS = ("svip(h=0.002:2.0:0.002)", "confidence(threshold=0.001:1.0:0.001)")


def main() -> None:
    """Print the seconds of each turn, and the ratio of their medians."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split(":")[0])
    parser.add_argument("--positions", type=int, default=1_000_000)
    parser.add_argument("--turns", type=int, default=3)
    given = parser.parse_args()
    taken: dict[int, list[float]] = {1: [], 2: []}
    with tempfile.TemporaryDirectory() as folder, joined("local", 2):
        trace = Path(folder) / "trace"
        n = max(1, given.positions // LENGTH)
        save(synthetic.iid(n, LENGTH, ALPHA, max_draft=40, seed=0), trace, batch_size=n)
        wanted = simkit.sweep(trace, list(SPECS), COST)
        print(f"{len(wanted.policies):,} settings, {cores()} cores; seconds (load before, after)")
        for _ in range(given.turns):
            for workers in taken:
                before = os.getloadavg()[0]
                seconds, found = timed(trace, workers)
                taken[workers].append(seconds)
                same = "same bits" if found.frame.equals(wanted.frame) else "OTHER ROWS"
                load = f"{before:.2f}, {os.getloadavg()[0]:.2f}"
                print(f"{workers} workers: {seconds:6.1f} s ({load}), {same}", flush=True)
    one, two = (median(seconds) for seconds in taken.values())
    print(f"median: one {one:.1f} s, two {two:.1f} s: {one / two:.2f} times as fast")


def timed(trace: Path, workers: int) -> tuple[float, Sweep]:
    """Wall-clock seconds of a sweep by so many workers, and its rows."""
    start = time.perf_counter()
    found = simkit.sweep(trace, list(SPECS), COST, workers=workers, ray="local")
    return time.perf_counter() - start, found


if __name__ == "__main__":
    main()
