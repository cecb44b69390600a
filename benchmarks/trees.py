"""How fast trees are replayed: fixed shapes, EAGLE-2's beams, and a sweep that shares its beams.

    python -m benchmarks.trees

Trees of the bundled trace are repeated until there are as many starts as wanted, since a recording
of so many would be large. Times are those of this process, one thread. The bars: 50 million
positions a second for a fixed shape by its ranks, 50,000 steps a second for eagle2 of 60 nodes.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from copy import copy

import numpy as np

import traces
from benchmarks.replay_speed import best
from simkit import policies
from simkit.drafters import layout_of
from simkit.drafters.tree import TreeLayout, Trees
from simkit.steps.tree import FAMILY as TREES
from simkit.trees.base import TreePolicy

FIXED = "static([[0], [1], [2], [0, 0], [0, 1], [1, 0], [0, 0, 0], [0, 0, 1], [0, 0, 0, 0]])"
EAGLE = "eagle2(top_k=10, depth=6, total=60)"
SWEEP = "eagle2(top_k=10, depth=2:6, total=8:160:8)"
LEAST = {"fixed": 50e6, "eagle2": 50e3}
_REPEATS = 5


def main(argv: Sequence[str] | None = None) -> int:
    """Run from the command line; 1 if a bar is missed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--trees", type=int, default=40, help="copies of the trace, nodes and all")
    parser.add_argument("--ranks", type=int, default=4000, help="copies of its ranks alone")
    given = parser.parse_args(argv)
    base = layout_of(traces.load("reference-trees", "eagle-tree"))
    assert isinstance(base, TreeLayout)
    many, ranks = repeated(base, given.trees), repeated(base, given.ranks, ranks_alone=True)
    fixed, eagle = shape(FIXED), shape(EAGLE)
    rows = len(ranks.trees.room)
    fixed_s = least(lambda: TREES.walk(fixed, ranks, 1))
    rate = rows / fixed_s
    print(f"fixed: {rows:,} positions in {fixed_s:.3f} s, {rate / 1e6:.0f} million a second")
    one_s = least(lambda: TREES.walk(eagle, forgotten(many), 1))
    steps = len(TREES.walk(eagle, many, 1))
    print(f"eagle2: {steps:,} steps in {one_s:.3f} s, {steps / one_s:,.0f} a second")
    sweep = [policy for policy in policies.expand(SWEEP) if isinstance(policy, TreePolicy)]
    all_s = least(lambda: [TREES.walk(policy, forgotten(many), 1) for policy in sweep], 1)
    shared_s = least(lambda: share(sweep, forgotten(many)), 1)
    print(
        f"sweep: {len(sweep)} shapes in {shared_s:.2f} s, {shared_s / one_s:.1f} times one of them;"
        f" {all_s:.2f} s where nothing is shared, {all_s / shared_s:.0f} times as long"
    )
    return int(rate < LEAST["fixed"] or steps / one_s < LEAST["eagle2"])


def shape(spec: str) -> TreePolicy:
    """A rule of trees."""
    policy = policies.parse(spec)
    assert isinstance(policy, TreePolicy)
    return policy


def share(sweep: Sequence[TreePolicy], layout: TreeLayout) -> None:
    """Walk all of them on one layout."""
    for policy in sweep:
        TREES.walk(policy, layout, 1)


def least(work: Callable[[], object], repeats: int = _REPEATS) -> float:
    """Seconds of processor time of the fastest of some runs, the first one left out."""
    work()
    return best(work, repeats, time.process_time)


def forgotten(layout: TreeLayout) -> TreeLayout:
    """The layout, as if no policy had asked for anything of it yet."""
    layout.kept = {}
    return layout


def repeated(base: TreeLayout, times: int, ranks_alone: bool = False) -> TreeLayout:
    """A layout of so many copies of the sequences of another.

    Args:
        base: to copy.
        times: how often.
        ranks_alone: leave out the nodes, which fixed shapes do not read.
    """
    out, old = copy(base), base.trees
    rows, nodes = len(old.room), len(old.parent)
    starts = np.arange(times)[:, None]
    begin = np.append((old.begin[:-1] + starts * nodes).ravel(), times * nodes)

    def tiled(values: np.ndarray) -> np.ndarray:
        return np.tile(values, (times, *[1] * (values.ndim - 1)))

    some = {"room": tiled(old.room), "ranks": tiled(old.ranks)}
    if not ranks_alone:
        some = {name: tiled(getattr(old, name)) for name in Trees._fields if name != "begin"}
        some["begin"] = begin
    vars(out)["trees"] = old._replace(**some)
    out.kept = {}
    out.offsets = np.append((base.offsets[:-1] + starts * rows).ravel(), times * rows)
    out.n_output, out.n_prompt = np.tile(base.n_output, times), np.tile(base.n_prompt, times)
    return out


if __name__ == "__main__":
    sys.exit(main())
