"""What the compiled loop reads: layouts and costs as read-only arrays."""

from __future__ import annotations

import weakref
from typing import NamedTuple

import numpy as np

from simkit.drafters.layout import Layout, Read
from traces.drafters.passes import Opening
from traces.kernels import compiled


class LayoutArrays(NamedTuple):
    """A `Layout` for the loop, in read-only arrays.

    Branches lie depth by depth, the first tokens of all of them, then the second tokens, …, so
    that what is read in turn lies side by side.

    Attributes:
        offsets: see `Layout`.
        ahead: see `Layout`.
        tail: (R,) int32, tokens of r's branch, or by start of the draft from r; -1 - tokens if it
            was cut.
        rank: (R,) int32, index of r's branch among those that are not empty.
        n_branches: how many of them there are.
        max_new_tokens: T_max.
        by_start: see `Layout`.
        deepest: see `Layout`; where it is not -1, the loop notes what drafts were asked for.
    """

    offsets: np.ndarray
    ahead: np.ndarray
    tail: np.ndarray
    rank: np.ndarray
    n_branches: int
    max_new_tokens: int
    by_start: bool
    deepest: int


class LoopPrices(NamedTuple):
    """Seconds, in tables for the loop; those that are empty are all 0.

    Attributes:
        n_prompt: (S,) int64.
        draft: (C + 1,) draft passes over one token at all contexts below c, summed.
        before: (C + 1,) the same less what a step at context c pays the draft whatever its length.
        verify: (C, K) verification of an empty draft, of one token, …, at context c.
        opening: what a draft's first pass holds, where that depends on what was emitted since the
            last one; read if there are `blocks`.
        blocks: (C, N) such a pass over 0, 1, … tokens at context c.
        extra: (C, K) the draft's own pass over the verified batch.
    """

    n_prompt: np.ndarray
    draft: np.ndarray
    before: np.ndarray
    verify: np.ndarray
    opening: Opening = Opening(0, 0, 0)
    blocks: np.ndarray = np.zeros((0, 0))
    extra: np.ndarray = np.zeros((0, 0))


NO_PRICES = LoopPrices(np.zeros(0, np.int64), np.zeros(0), np.zeros(0), np.zeros((0, 0)))


class LoopArrays:
    """What the loop reads of one layout; branch columns are turned when they are first read."""

    def __init__(self, layout: Layout) -> None:
        size = np.diff(layout.branch).astype(np.int32)
        self.layout = weakref.proxy(layout)
        self.rows = np.flatnonzero(size)
        self.planes: dict[str, np.ndarray] = {}
        self.found: dict[tuple[str, ...], Read] = {}
        self.path = LayoutArrays(
            read_only(layout.offsets),
            read_only(layout.ahead),
            read_only(np.where(layout.cut, -1 - size, size)),
            read_only(np.cumsum(size > 0, dtype=np.int32) - 1),
            len(self.rows),
            layout.trace.max_new_tokens,
            layout.by_start,
            -1 if layout.deepest is None else layout.deepest,
        )

    def read(self, names: tuple[str, ...]) -> Read:
        """What the layout reads, branches turned; a sweep asks for the same again and again."""
        if names not in self.found:
            self.found[names] = self._read(names)
        return self.found[names]

    def _read(self, names: tuple[str, ...]) -> Read:
        path, branches, starts = self.layout.columns(names)
        by_row = names[: len(branches)]
        for name, column in zip(by_row, branches, strict=True):
            if name not in self.planes:
                self.planes[name] = self._turn(column)
        return Read(
            tuple(map(read_only, path)),
            tuple(self.planes[name] for name in by_row),
            tuple(map(read_only, starts)),
        )

    def _turn(self, column: np.ndarray) -> np.ndarray:
        begins, ends = self.layout.branch[self.rows], self.layout.branch[self.rows + 1]
        depth = int((ends - begins).max(initial=0))
        planes = np.zeros((depth, len(self.rows)), column.dtype)
        _turn(read_only(column), begins, ends, planes)
        return read_only(planes.reshape(-1))


def arrays_of(layout: Layout) -> LoopArrays:
    """The arrays of a layout, made once and kept with it."""
    kept = vars(layout)
    return kept.get("_arrays") or kept.setdefault("_arrays", LoopArrays(layout))


def read_only(array: np.ndarray) -> np.ndarray:
    """One type of array for the loop, whoever made it."""
    out = np.ascontiguousarray(array).view()
    out.flags.writeable = False
    return out


@compiled
def _turn(column: np.ndarray, begins: np.ndarray, ends: np.ndarray, planes: np.ndarray) -> None:
    """Lay branches out depth by depth, some at a time so that both sides stay in the cache."""
    for block in range(0, len(begins), 64):
        last = min(block + 64, len(begins))
        for depth in range(len(planes)):
            for k in range(block, last):
                if begins[k] + depth < ends[k]:
                    planes[depth, k] = column[begins[k] + depth]
