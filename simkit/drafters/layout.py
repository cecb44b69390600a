"""What a step sees: the rows that a draft from any start would have.

`PathLayout` is that of a recorded path. Drafts on it share rows: a step at i sees the on-path rows
i, i + 1, … up to the first rejected one, m, and then the branch of m. A lattice, whose drafts share
nothing, has a layout of its own, `simkit.drafters.lattice`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from functools import cached_property
from typing import ClassVar, NamedTuple, Protocol

import numpy as np

from simkit.drafters.experts import ExpertRows
from simkit.errors import ReplayError
from traces.drafters.passes import Paid, counted
from traces.messages import how_many
from traces.trace import Trace

Columns = tuple[np.ndarray, ...]
Span = tuple[int, int]
"""Sequences, from one index to before another."""


class DepthError(ReplayError):
    """A policy drafts deeper than Γ, or than its head has scored: a smaller `max_draft` helps.

    Attributes:
        deepest: where the draft could end.
    """

    def __init__(self, said: str, deepest: int = 0) -> None:
        super().__init__(said)
        self.deepest = deepest


class Read(NamedTuple):
    """Columns that a policy reads, in its order: those by row, then those by start.

    Attributes:
        path: (R,) each, of the on-path rows.
        branches: (B,) each, of the branch rows; as many columns as `path`.
        starts: (R, D) each; row r belongs to the draft that starts at on-path row r.
    """

    path: Columns
    branches: Columns
    starts: Columns


class Layout(ABC):
    """The drafts from every position. Row r, of all R, is position i of sequence s.

    Attributes:
        by_start: whether each start has a draft of its own. If not, drafts share the path's rows,
            and what says where one ends is the branch of the position where it is rejected.
        trace: where columns are read from.
        offsets: (S + 1,) int64; the rows of sequence s are offsets[s] to offsets[s + 1].
        n_prompt: (S,) int64.
        n_output: (S,) int64, T.
        ahead: (R,) int32, tokens accepted in a row of a draft from r; to the output's end if no
            rejection follows.
        branch: (R + 1,) int64; branch[r + 1] - branch[r] tokens can be drafted in the branch of r,
            or, by start, in the draft from r.
        cut: (R,) bool, that one was cut: more could have been drafted than was recorded.
    """

    by_start: ClassVar[bool]
    has_trees: ClassVar[bool] = False
    trace: Trace
    offsets: np.ndarray
    n_prompt: np.ndarray
    n_output: np.ndarray
    ahead: np.ndarray
    branch: np.ndarray
    cut: np.ndarray

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self.offsets = trace.position_offsets
        self.n_prompt = trace.sequences["n_prompt"].to_numpy().astype(np.int64)
        self.n_output = np.diff(self.offsets)

    @abstractmethod
    def columns(self, names: tuple[str, ...]) -> Read:
        """The named columns; a name `score:NAME` stands for a head's scores.

        Raises:
            TraceError: one of them was not recorded.
            ReplayError: a column by start does not come last.
        """

    @abstractmethod
    def lag(self, head: str) -> int:
        """How many tokens late the scores of a head are there, see `traces.scores.RowScores`.

        Raises:
            TraceError: there are none of that name.
        """

    @abstractmethod
    def sequence(self, read: Read, index: int) -> SequenceDrafts:
        """What drafts of one sequence see, as Python values; `read` is this layout's."""

    @property
    def position(self) -> np.ndarray:
        """(R,) int64, i of each row, 1-based."""
        return np.arange(self.offsets[-1]) - np.repeat(self.offsets[:-1], self.n_output) + 1

    @property
    def left(self) -> np.ndarray:
        """(R,) int64, tokens of the output from each row on."""
        return np.repeat(self.offsets[1:], self.n_output) - np.arange(self.offsets[-1])

    @cached_property
    def paid(self) -> Paid:
        """How drafts are paid."""
        return self.trace.manifest.drafter.paid(self.trace.manifest)

    @cached_property
    def deepest(self) -> int | None:
        """Γ where one pass yields a whole draft: no more tokens can be asked for; else None."""
        return self.trace.max_draft if self.paid in ("draft", "block") else None

    @cached_property
    def experts(self) -> ExpertRows:
        """Which experts of the target its passes read.

        Raises:
            TraceError: the trace does not say.
        """
        return ExpertRows(self.trace)

    @property
    def reads_back(self) -> bool:
        """Whether a draft's first pass reads all that was emitted since the last draft."""
        return self.paid not in ("token", "none")

    def passes(self, tokens: np.ndarray) -> np.ndarray:
        """How many passes of the draft model drafts of so many tokens take, each."""
        if callable(self.paid):
            return np.count_nonzero(self.paid(tokens, 1).tokens, axis=-1)
        return counted(self.paid, tokens, np.minimum(tokens, 1))

    def outrun(self, sequence: int, start: int, depth: int) -> ReplayError:
        """The complaint about a row that was not recorded."""
        number = self.trace.sequences["sequence"][sequence].as_py()
        where = f"sequence {number}, position {start}: depth {depth}"
        recorded, deepest = self._recorded(sequence, start), self.trace.max_draft
        if depth <= recorded:
            said = f"{where} was not scored; give max_draft, or score deeper"
            return DepthError(said, depth - 1)
        if depth <= deepest:  # an imported draft may be shorter than others
            return ReplayError(f"{where} was not recorded: the draft there ends at {recorded}")
        return DepthError(
            f"{where} was not recorded: drafts in this trace have at most max_draft (Γ) ="
            f" {how_many(deepest, 'token')}",
            deepest,
        )

    @abstractmethod
    def _recorded(self, sequence: int, start: int) -> int:
        """How many tokens of the draft from `start` there are."""


class SequenceDrafts(Protocol):
    """The drafts of one sequence."""

    @property
    def ahead(self) -> list[int]:
        """Tokens accepted in a row from each position on; entry i - 1 is that of position i."""
        ...

    def draft(self, start: int, room: int) -> Iterator[tuple[float, ...]]:
        """Rows of the draft tokens from position `start` on, until drafting ends.

        Args:
            start: i, 1-based.
            room: how many rows may be asked for at most.

        Raises:
            ReplayError: a row is asked for that was not recorded.
        """
        ...


def spans(offsets: np.ndarray, positions: int) -> list[Span]:
    """All sequences, cut into spans of about as many positions each.

    Args:
        offsets: see `Layout`.
        positions: in a span, at most about.
    """
    pieces = -(-int(offsets[-1]) // positions)
    cuts = np.searchsorted(offsets, np.linspace(0, offsets[-1], pieces + 1)[1:-1])
    ends = sorted({0, len(offsets) - 1, *cuts.tolist()})
    return list(zip(ends[:-1], ends[1:], strict=True)) or [(0, 0)]
