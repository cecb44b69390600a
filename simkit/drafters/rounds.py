"""What a step sees where children are drawn without replacement: fixed trees, by rounds.

A node with b children holds the output's token iff the round of its position is at most b, so the
k-th child is the output's iff the round is k.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np

from simkit.drafters.tree import TreeLayout, Trees
from simkit.errors import ReplayError
from traces.trace import Trace
from traces.trees import shapes


class RoundsLayout(TreeLayout):
    """The rounds of a trace, as trees whose ranks along the output are known; see `Layout`.

    To policies of chains a draft goes on with the first child each time. Nothing is known of a
    token but whether it was accepted.
    """

    drawn = True

    def __init__(self, trace: Trace) -> None:
        self.round = trace.column("rounds", "round").astype(np.int32)
        super().__init__(trace)

    def has(self, column: str) -> bool:
        """See `LatticeLayout`: no column."""
        return False

    @property
    def readable(self) -> list[str]:
        """See `LatticeLayout`."""
        return []

    @cached_property
    def shapes(self) -> list[shapes.Shape]:
        """None: what they hold hangs on probabilities, which would bias what is drawn."""
        return []

    @cached_property
    def trees(self) -> Trees:
        """See `TreeLayout`; without nodes."""
        rows, deepest = len(self.round), self.trace.max_draft
        room, left = self._room().astype(np.int32), self.left
        ranks = np.full((rows, deepest), -1, np.int32)
        alive = np.ones(rows, np.bool_)
        for depth in range(deepest):
            at = np.arange(rows) + depth
            alive &= (depth < left) & (depth < room)
            alive[alive] = self.round[at[alive]] > 0
            ranks[alive, depth] = self.round[at[alive]] - 1
        none = np.zeros(0, np.int32)
        flags, values = np.zeros(0, np.bool_), np.zeros(0)
        begin = np.zeros(rows + 1, np.int64)
        return Trees(begin, none, none, none, values, none, none, flags, values, room, ranks)

    def check_held(self, policy: object, wanted: shapes.Shape) -> None:
        """See `TreeLayout`: no shape that hangs on probabilities.

        Raises:
            ReplayError: always.
        """
        raise ReplayError(
            f"{policy}: its shape depends on the tokens that are drawn, so the outputs would not be"
            " the target's; children drawn without replacement need fixed trees (static, sequoia)"
        )

    def _start(self) -> None:
        """See `TreeLayout`: there are no nodes to link."""

    def _lengths(self) -> np.ndarray:
        """See `LatticeLayout`: up to the first rejected token, behind which any length does."""
        return np.minimum(self._accepted() + 1, np.maximum(self._room(), 0))

    def _accepted(self) -> np.ndarray:
        """See `LatticeLayout`."""
        rows = np.arange(len(self.round))
        stops = np.append(np.flatnonzero(self.round != 1), len(rows))
        return np.minimum(stops[np.searchsorted(stops, rows)] - rows, self.left)

    def _room(self) -> np.ndarray:
        return self.trace.max_new_tokens - self.position

    def _ended(self) -> np.ndarray:
        """See `LatticeLayout`: none but by the output's end."""
        return np.zeros(len(self.round), np.bool_)
