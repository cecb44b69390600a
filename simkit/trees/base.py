"""What a tree policy is: at each start, the nodes that it drafts and those that it verifies."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from simkit.drafters.layout import Span
from simkit.drafters.tree import TreeLayout
from simkit.policies.base import Branching, spec_of
from traces.kernels import compiled
from traces.sampler import Sampler


class TreeWork(NamedTuple):
    """What a policy does at some starts, N of them, each with at most P passes of the draft.

    Attributes:
        drafted: (N,) int32, nodes that the draft proposed.
        verified: (N,) int32, nodes that the target was given, the root apart.
        passes: (N,) int32, levels for which the draft was asked.
        calls: (N,) int32, decisions whether to go on.
        widths: gives (N, P) int32, nodes in each pass: the root is alone in the first one; 0 where
            there is none.
    """

    drafted: np.ndarray
    verified: np.ndarray
    passes: np.ndarray
    calls: np.ndarray
    widths: Callable[[], np.ndarray]


class Outcomes(NamedTuple):
    """What comes of a policy at each start, R of them.

    Attributes:
        accepted: (R,) int32, of the nodes that it has verified, those along the output.
        work: gives its work at starts of these numbers, (N,) int64.
    """

    accepted: np.ndarray
    work: Callable[[np.ndarray], TreeWork]


class Visit(NamedTuple):
    """The steps of a replay.

    Attributes:
        rows: (N,) int64, the starts at which they begin.
        offsets: (S + 1,) int64, where the steps of each sequence begin.
        accepted: (N,) int32.
        work: of them.
    """

    rows: np.ndarray
    offsets: np.ndarray
    accepted: np.ndarray
    work: TreeWork


def by_level(level: np.ndarray, drafted: np.ndarray, widths: np.ndarray) -> TreeWork:
    """The work of steps whose numbers hang on how many levels they have.

    Args:
        level: (N,) of each step, 0 to L.
        drafted: (L + 1,) int32, which are all verified.
        widths: (L,) int32, nodes of each pass.
    """
    number = np.arange(len(widths) + 1, dtype=np.int32)
    made = drafted[level]
    return TreeWork(
        made,
        made,
        number[level],
        np.zeros(len(level), np.int32),
        lambda: np.where(number[:-1] < number[:, None], widths, 0)[level],
    )


class TreePolicy(Branching):
    """A frozen dataclass; `max_draft` is its deepest level."""

    unnamed = False

    @property
    @abstractmethod
    def levels(self) -> int:
        """The deepest level of its nodes."""

    @property
    def max_draft(self) -> int:  # type: ignore[override]
        """See `Policy`."""
        return self.levels

    @abstractmethod
    def outcomes(self, layout: TreeLayout) -> Outcomes:
        """What it does at every start.

        Raises:
            ReplayError: nodes that it drafts were not recorded.
        """

    def visit(self, layout: TreeLayout, first: int, span: Span) -> Visit:
        """The steps of a span of sequences, from position `first` of each on.

        Raises:
            ReplayError: see `outcomes`.
        """
        found = self.outcomes(layout)
        rows, offsets = visited(found.accepted, layout.offsets, first, *span)
        return Visit(rows, offsets, found.accepted[rows], found.work(rows))

    def columns(self, sampler: Sampler) -> tuple[str, ...]:
        """See `Policy`: nothing by row; what it reads of trees is in `TreeLayout.trees`."""
        return ()

    def __str__(self) -> str:
        """See `spec_of`."""
        return spec_of(self)


@compiled
def visited(
    accepted: np.ndarray, offsets: np.ndarray, first: int, low: int, high: int
) -> tuple[np.ndarray, np.ndarray]:
    """The rows at which steps start, and where each sequence's steps begin."""
    ends = np.zeros(high - low + 1, np.int64)
    rows = np.empty(offsets[high] - offsets[low], np.int64)
    count = 0
    for s in range(low, high):
        row = offsets[s] + first - 1
        while row < offsets[s + 1]:
            rows[count] = row
            count += 1
            row += accepted[row] + 1
        ends[s - low + 1] = count
    return rows[:count].copy(), ends
