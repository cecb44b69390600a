"""Beams at the starts of a trace: what they propose, and what comes of the best of their nodes.

What is found of a start is kept for all policies, whose replays run in threads at the same time and
hold no lock while they look. Each of them therefore has flags of its own (`_opened`, `_publish`):
of the starts that were whole when it began, and of those that it has looked at itself. Flags that
threads share are read and written under a lock alone. Whoever finds one set there took the lock
after the thread that set it gave it back, which had written all numbers by then. So it sees them on
every processor, also where stores of other threads come out of order (ARM). Two threads may look at
one start at the same time. Then both write the same numbers, each of them once and whole, and each
reads what it has written.
"""

from __future__ import annotations

from threading import Lock
from typing import NamedTuple

import numpy as np

from simkit.drafters.layout import Span
from simkit.drafters.tree import TreeLayout, Trees
from simkit.trees.base import Outcomes, TreeWork, Visit
from traces.kernels import compiled, compiled_part
from traces.trees.forest import best_children
from traces.trees.shapes import Beams

NEVER = np.iinfo(np.int32).max // 2
_sharing = Lock()


class Grown(NamedTuple):
    """What beams of one width propose at each of R starts, by level, of which there are L.

    Attributes:
        made: (R, L) int32, nodes of each level.
        passed: (R, L) int32, nodes that the pass has which proposes that level.
        mass: (R, L) float64, the probability of all nodes of the beam that a level leaves.
        entropy: (R, L) float32, nats, of what is said behind the best node of the beam that
            proposes a level; NaN where none does.
        ahead: (R, L, D) int32; of all nodes up to a level, those that are likelier than the j-th of
            the output's own, where they come first if equal; very many if that one is not there.
    """

    made: np.ndarray
    passed: np.ndarray
    mass: np.ndarray
    entropy: np.ndarray
    ahead: np.ndarray

    def down_to(self, levels: int) -> Grown:
        """The first levels alone, so that what was recorded below them makes no difference."""
        made, passed, mass, entropy, ahead = (values[:, :levels] for values in self)
        return Grown(made, passed, mass, entropy, ahead[:, :, :levels])


def beams_of(layout: TreeLayout, top_k: int) -> Grown:
    """What beams propose, as deep as was recorded; kept, since depths and totals share it."""
    found, known = _opened(layout, top_k)
    if not known.all():
        _fill(layout.trees, top_k, found, known)
        _publish(layout, top_k, known)
    return found


def beam_outcomes(
    found: Grown,
    level: np.ndarray,
    nodes: int,
    asked: np.ndarray | None = None,
    room: np.ndarray | None = None,
) -> Outcomes:
    """What comes of beams that go on for so many levels, and of the best of their nodes.

    Args:
        found: what they propose.
        level: (R,) levels at each start.
        nodes: that are verified at most.
        asked: (L + 1,) int32, decisions behind so many levels and those before them; None: there
            are none.
        room: (R,) int32, levels that T_max leaves, which are not asked about behind the last one.
    """
    last = np.maximum(level, 1) - 1
    ahead = found.ahead[np.arange(len(level)), last]
    within = (ahead < nodes) & (np.arange(ahead.shape[1]) < level[:, None])

    def work(rows: np.ndarray) -> TreeWork:
        made = _work(found, level[rows], nodes, rows)
        if asked is None or room is None:
            return made
        return made._replace(calls=asked[np.clip(room[rows] - 1, 0, made.passes)])

    return Outcomes(within.sum(1, dtype=np.int32), work)


def visit_beams(
    layout: TreeLayout, top_k: int, levels: int, nodes: int, first: int, span: Span
) -> Visit:
    """The steps of beams that nothing stops; starts are looked at as steps get there.

    Args:
        layout: of the trace.
        top_k: nodes of a beam.
        levels: of the trees.
        nodes: that are verified at most.
        first: position of each sequence's first step.
        span: of sequences.
    """
    found, known = _opened(layout, top_k)
    rows, offsets, accepted = _visit(
        layout.trees, top_k, found, known, levels, nodes, layout.offsets, first, *span
    )
    _publish(layout, top_k, known)
    level = np.minimum(layout.trees.room[rows], levels)
    return Visit(rows, offsets, accepted, _work(found, level, nodes, rows))


def _work(found: Grown, level: np.ndarray, nodes: int, rows: np.ndarray) -> TreeWork:
    """The work at starts (N,), whose levels (N,) are given; without decisions."""
    there = np.arange(found.passed.shape[1]) < level[:, None]
    widths = np.where(there, found.passed[rows], 0)
    drafted = np.where(there, found.made[rows], 0).sum(1, dtype=np.int32)
    passes = (widths > 0).sum(1, dtype=np.int32)
    verified = np.minimum(drafted, np.int32(nodes))
    return TreeWork(drafted, verified, passes, np.zeros_like(passes), lambda: widths)


def _opened(layout: TreeLayout, top_k: int) -> tuple[Grown, np.ndarray]:
    """What beams propose at each start, and at which ones that is known: (R,) bool, a copy."""
    key = "beams", top_k
    with _sharing:
        if key not in layout.kept:
            held = [s for s in layout.shapes if isinstance(s, Beams) and s.top_k == top_k]
            levels = max(shape.levels for shape in held)
            shape = len(layout.trees.room), levels
            found = Grown(
                np.zeros(shape, np.int32),
                np.zeros(shape, np.int32),
                np.zeros(shape),
                np.full(shape, np.nan, np.float32),
                np.full((*shape, levels), NEVER, np.int32),
            )
            layout.kept[key] = found, np.zeros(shape[0], np.bool_)
        found, known = layout.kept[key]
        return found, known.copy()


def _publish(layout: TreeLayout, top_k: int, known: np.ndarray) -> None:
    """Let all threads know of the starts that this one has looked at."""
    with _sharing:
        _, shared = layout.kept["beams", top_k]
        shared |= known


class _Room(NamedTuple):
    """Of one tree as its beams are stepped.

    Attributes:
        heads: (k,) int32.
        out: (k,) int32, the next beam.
        beams: (L, k) int32, those of all levels.
        sizes: (L,) int32, of them.
        own: (L,) int32, the output's nodes.
    """

    heads: np.ndarray
    out: np.ndarray
    beams: np.ndarray
    sizes: np.ndarray
    own: np.ndarray


@compiled_part
def _room(top_k: int, levels: int) -> _Room:
    return _Room(
        np.zeros(top_k, np.int32),
        np.zeros(top_k, np.int32),
        np.zeros((levels, top_k), np.int32),
        np.zeros(levels, np.int32),
        np.zeros(levels, np.int32),
    )


@compiled
def _fill(trees: Trees, top_k: int, found: Grown, known: np.ndarray) -> None:
    """Look at all starts that nobody has looked at; `known` is this thread's alone."""
    room = _room(top_k, found.made.shape[1])
    for r in range(len(known)):
        if not known[r]:
            _look(trees, r, top_k, found, room)
            known[r] = True


@compiled
def _visit(
    trees: Trees,
    top_k: int,
    found: Grown,
    known: np.ndarray,
    levels: int,
    nodes: int,
    offsets: np.ndarray,
    first: int,
    low: int,
    high: int,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rows at which steps start, where each sequence's begin, and what each step accepts.

    See `_fill` for `known`.
    """
    room = _room(top_k, found.made.shape[1])
    ends = np.zeros(high - low + 1, np.int64)
    rows = np.empty(offsets[high] - offsets[low], np.int64)
    accepted = np.empty(len(rows), np.int32)
    count = 0
    for s in range(low, high):
        row = offsets[s] + first - 1
        while row < offsets[s + 1]:
            if not known[row]:
                _look(trees, row, top_k, found, room)
                known[row] = True
            level = min(trees.room[row], levels)
            depth = 0
            while depth < level and found.ahead[row, level - 1, depth] < nodes:
                depth += 1
            rows[count], accepted[count] = row, depth
            count += 1
            row += depth + 1
        ends[s - low + 1] = count
    return rows[:count].copy(), ends, accepted[:count].copy()


@compiled_part
def _look(trees: Trees, r: int, top_k: int, found: Grown, room: _Room) -> None:
    """Step the beams of one start, and count who is ahead of the output's own nodes.

    Another thread may do the same, see above: nothing of `found` is written but what stays.
    """
    low, high = trees.begin[r], trees.begin[r + 1]
    if low == high:
        return
    total, first = trees.total[low:high], trees.first[low:high]
    children, path = trees.children[low:high], trees.path[low:high]
    beams, sizes, own = room.beams, room.sizes, room.own
    room.out[0], n = 0, 1
    n_own, deepest = 0, 0
    for level in range(len(sizes)):
        sizes[level] = n
        beam = beams[level, :n]
        beam[:] = room.out[:n]
        made, passed = 0, 0
        for node in beam:
            many = min(top_k, children[node])
            made += many
            passed += many > 0
            if n_own == level and path[node]:
                for child in range(first[node], first[node] + many):
                    if path[child]:
                        own[n_own] = child
                        n_own += 1
                        break
        found.made[r, level], found.passed[r, level] = made, passed
        deepest = level
        if made == 0:
            break
        found.entropy[r, level] = trees.entropy[low + beam[0]]
        n = best_children(total, first, children, beam, n, top_k, room.heads, room.out)
        mass = 0.0
        for b in range(n):
            mass += np.exp(total[room.out[b]])
        found.mass[r, level] = mass
    for j in range(n_own):
        ahead = 0
        for level in range(len(sizes)):
            if level <= deepest:
                ahead += _likelier(total, first, children, beams[level, : sizes[level]], top_k,
                                   own[j])  # fmt: skip
            found.ahead[r, level, j] = ahead if level >= j else NEVER


@compiled_part
def _likelier(
    total: np.ndarray,
    first: np.ndarray,
    children: np.ndarray,
    beam: np.ndarray,
    top_k: int,
    own: int,
) -> int:
    """Children of a beam that come before a node."""
    ahead = 0
    for node in beam:
        child, last = first[node], first[node] + min(top_k, children[node])
        while child < last and (
            total[child] > total[own] or (total[child] == total[own] and child < own)
        ):
            ahead += 1
            child += 1
    return ahead
