"""What lies outside of verbatim loops (`traces.loops`).

Small models that decode greedily fall into repeating themselves. A draft then accepts token after
token, or is wrong at the same place of each round, so statistics of runs and of depth tell of the
loop rather than of the pair.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from analysis.stats.checks import check
from analysis.stats.drafts import Drafts, runs
from traces.loops import in_loop


class Outside(NamedTuple):
    """The stretches of outputs outside of loops, each taken for a text of its own.

    Attributes:
        rows: (R,) bool, positions that lie outside.
        begins: (P,) the position at which each stretch begins.
        offsets: (P + 1,) where stretches start among these positions.
        stretches: (S + 1,) where prompts start among the stretches.
    """

    rows: np.ndarray
    begins: np.ndarray
    offsets: np.ndarray
    stretches: np.ndarray

    @property
    def prompts(self) -> np.ndarray:
        """Where prompts start among these positions, (S + 1,)."""
        return self.offsets[self.stretches]

    def cut(self, ahead: np.ndarray) -> np.ndarray:
        """Tokens accepted in a row from each of these positions, up to the stretch's end.

        Args:
            ahead: (R,) from every position, to the output's end.
        """
        at = np.arange(int(self.offsets[-1]))
        room = self.offsets[np.searchsorted(self.offsets, at, side="right")] - at
        return np.minimum(ahead[self.rows], room)

    def first(self, first: int, offsets: np.ndarray) -> np.ndarray:
        """Where each stretch's first step begins, (P,): at `first` if its prompt begins with it.

        Args:
            first: position of each prompt's first step.
            offsets: (S + 1,), where prompts start among all positions.
        """
        return np.where(np.isin(self.begins, offsets[:-1]), first, 1)

    def room(self, at: np.ndarray) -> np.ndarray:
        """Tokens from each of these positions to its stretch's end, (n,) int64; none in a loop."""
        stretch = np.searchsorted(self.begins, at, side="right") - 1
        ends = self.begins + np.diff(self.offsets)
        return np.where(stretch >= 0, np.maximum(ends[stretch] - at, 0), 0)

    def runs(self, accepted: np.ndarray, first: int | np.ndarray = 1) -> Drafts:
        """The unbroken runs of accepted tokens, which a loop cuts off: see `drafts.runs`.

        Args:
            accepted: (R,) bool.
            first: of each stretch, see `first`.
        """
        return self.by_prompt(runs(accepted[self.rows], self.offsets, first))

    def summed(self, sums: np.ndarray) -> np.ndarray:
        """Sums over stretches, (P, m), as sums over prompts, (S, m)."""
        found = np.zeros((len(self.stretches) - 1, *sums.shape[1:]))
        np.add.at(found, np.repeat(np.arange(len(found)), np.diff(self.stretches)), sums)
        return found

    def by_prompt(self, drafts: Drafts) -> Drafts:
        """Drafts that were found stretch by stretch, prompt after prompt."""
        return Drafts(drafts.offsets[self.stretches], drafts.accepted, drafts.rejected)


def outside(loop: np.ndarray, offsets: np.ndarray) -> Outside:
    """What lies outside of loops; a draft that runs into one is cut off there, as by a text's end.

    Args:
        loop: (R,) bool, see `traces.loops.in_loop`.
        offsets: (S + 1,), where prompts start.
    """
    check(offsets, loop=loop)
    begins = ~loop
    begins[1:] &= loop[:-1]  # a stretch begins behind a loop,
    filled = offsets[:-1][np.diff(offsets) > 0]
    begins[filled] = ~loop[filled]  # or with a prompt
    at = np.flatnonzero(begins)
    before = np.concatenate([[0], np.cumsum(~loop)])
    starts = np.append(before[at], before[-1])
    stretches = np.searchsorted(at, offsets)
    return Outside(~loop, at, starts.astype(np.int64), stretches.astype(np.int64))


class Loops(NamedTuple):
    """Where outputs repeat verbatim loops.

    Attributes:
        rows: (R,) bool, positions that do.
        outside: what lies outside; None if nothing does, or everything.
    """

    rows: np.ndarray
    outside: Outside | None

    @property
    def share(self) -> float:
        """Of the positions."""
        return float(self.rows.mean()) if len(self.rows) else 0.0


def split(tokens: np.ndarray, offsets: np.ndarray) -> Loops:
    """Loops, and what lies outside of them; see `traces.loops.in_loop` and `outside`."""
    check(offsets, tokens=tokens)
    rows = in_loop(tokens, offsets)
    mixed = bool(rows.any() and not rows.all())
    return Loops(rows, outside(rows, offsets) if mixed else None)
