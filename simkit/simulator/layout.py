"""What a step sees: the rows that a draft from any start would have.

`PathLayout` is that of a recorded path. Drafts on it share rows: a step at i sees the on-path rows
i, i + 1, … up to the first rejected one, m, and then the branch of m. A lattice, whose drafts share
nothing, has a layout of its own, `simkit.simulator.lattice`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import ClassVar, NamedTuple, Protocol

import numpy as np

from simkit.errors import ReplayError
from traces import scores
from traces.trace import Trace

Columns = tuple[np.ndarray, ...]
Span = tuple[int, int]
"""Sequences, from one index to before another."""


class DepthError(ReplayError):
    """A policy drafts deeper than Γ: a smaller `max_draft` of it helps."""


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
    trace: Trace
    offsets: np.ndarray
    n_prompt: np.ndarray
    n_output: np.ndarray
    ahead: np.ndarray
    branch: np.ndarray
    cut: np.ndarray

    @abstractmethod
    def columns(self, names: tuple[str, ...]) -> Read:
        """The named columns; a name `score:NAME` stands for a head's scores.

        Raises:
            TraceError: one of them was not recorded.
            ReplayError: a column by start does not come last.
        """

    @abstractmethod
    def sequence(self, read: Read, index: int) -> Drafts:
        """What drafts of one sequence see, as Python values; `read` is this layout's."""

    def outrun(self, sequence: int, start: int, depth: int) -> ReplayError:
        """The complaint about a row that was not recorded."""
        number = self.trace.sequences["sequence"][sequence].as_py()
        where = f"sequence {number}, position {start}: depth {depth}"
        recorded, deepest = self._recorded(sequence, start), self.trace.max_draft
        if depth <= recorded:
            return ReplayError(f"{where} was not scored; score the trace that deep")
        if depth <= deepest:  # an imported draft may be shorter than others
            return ReplayError(f"{where} was not recorded: the draft there ends at {recorded}")
        return DepthError(
            f"{where} was not recorded: drafts in this trace have at most max_draft (Γ) ="
            f" {deepest} tokens"
        )

    @abstractmethod
    def _recorded(self, sequence: int, start: int) -> int:
        """How many tokens of the draft from `start` there are."""


class Drafts(Protocol):
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


class PathLayout(Layout):
    """The drafts of a recorded path, see `Layout`.

    The branch of r is rows branch[r] to branch[r + 1] of the trace's branches.
    """

    by_start = False

    def __init__(self, trace: Trace) -> None:
        if trace.manifest.kind != "rows":
            raise ReplayError("the trace is a lattice: it has no rows on a path")
        self.trace = trace
        self._found: dict[str, scores.Scores] = {}
        self.offsets = trace.position_offsets
        self.n_prompt = trace.sequences["n_prompt"].to_numpy().astype(np.int64)
        self.n_output = np.diff(self.offsets)
        self._check_lengths()
        self.ahead = self._ahead()
        no_branches = np.zeros(len(self.ahead) + 1, np.int64)
        self.branch = trace.branch_offsets if trace.n_branch_rows else no_branches
        self.cut = self._cut()

    def columns(self, names: tuple[str, ...]) -> Read:
        """See `Layout`."""
        path, branches, starts = [], [], []
        for name in names:
            found = self._column(name)
            if isinstance(found, scores.StartScores):
                starts.append(found.values)
            elif starts:
                raise ReplayError(f"column {name} is by row: it must come before scores by start")
            else:
                path.append(found.path)
                branches.append(found.branches)
        return Read(tuple(path), tuple(branches), tuple(starts))

    def _column(self, name: str) -> scores.Scores:
        if name not in self._found:
            head = name.removeprefix("score:")
            if head != name:
                self._found[name] = scores.load(self.trace, head)
            else:
                path = self.trace.positions(name)
                off = self.trace.branches(name) if self.trace.n_branch_rows else path[:0]
                self._found[name] = scores.RowScores(path, off)
        return self._found[name]

    def sequence(self, read: Read, index: int) -> SequenceRows:
        """See `Layout`."""
        rows = slice(int(self.offsets[index]), int(self.offsets[index + 1]))
        return SequenceRows(
            self,
            index,
            self.ahead[rows].tolist(),
            _tuples(read.path, rows),
            read.branches,
            tuple(column[rows] for column in read.starts),
            self.branch[rows.start : rows.stop + 1].tolist(),
        )

    def _recorded(self, sequence: int, start: int) -> int:
        row = self.offsets[sequence] + start - 1
        m = row + self.ahead[row]
        if m >= self.offsets[sequence + 1]:
            return int(m - row)
        return int(m - row + 1 + self.branch[m + 1] - self.branch[m])

    def _ahead(self) -> np.ndarray:
        accepted = self.trace.positions("accepted")
        rows = np.arange(len(accepted))
        stop = np.where(accepted, len(accepted), rows)
        stop = np.minimum.accumulate(stop[::-1])[::-1]
        stop = np.minimum(stop, np.repeat(self.offsets[1:], self.n_output))
        return (stop - rows).astype(np.int32)

    def _cut(self) -> np.ndarray:
        """Where drafting could have gone on behind the branch: no EOS, and budget left."""
        eos = np.array(self.trace.eos_token_ids, np.int32)
        cut = ~self.trace.positions("accepted")
        cut &= ~np.isin(self.trace.positions("draft_token"), eos)
        position = np.arange(len(cut)) - np.repeat(self.offsets[:-1], self.n_output) + 1
        size = np.diff(self.branch)
        cut &= size < self.trace.max_new_tokens - 1 - position
        some = np.flatnonzero(cut & (size > 0))
        if len(eos) and len(some):
            final = self.trace.branches("draft_token")[self.branch[some + 1] - 1]
            cut[some] = ~np.isin(final, eos)
        return cut

    def _check_lengths(self) -> None:
        table = self.trace.sequences
        full = np.array([reason == "length" for reason in table["finish_reason"].to_pylist()], bool)
        longest = self.trace.max_new_tokens
        short = full & (self.n_output < longest)
        wrong = np.flatnonzero(short | (self.n_output < 1) | (self.n_output > longest))
        if len(wrong):
            number = table["sequence"][int(wrong[0])].as_py()
            raise ReplayError(
                f"sequence {number}: {self.n_output[wrong[0]]} output tokens do not fit its"
                f" finish_reason and max_new_tokens = {longest}"
            )


class SequenceRows(NamedTuple):
    """What drafts of one sequence see; entry i - 1 of a list belongs to position i.

    Attributes:
        layout: of the trace.
        index: of the sequence.
        ahead: tokens accepted in a row from each position on.
        path: the policy's columns of each on-path row.
        branches: the policy's columns of all branch rows.
        starts: the policy's columns by start, of the drafts from each position.
        bounds: where each position's branch begins; the last entry is where the last one ends.
    """

    layout: PathLayout
    index: int
    ahead: list[int]
    path: list[tuple[float, ...]]
    branches: Columns
    starts: Columns
    bounds: list[int]

    def draft(self, start: int, room: int) -> Iterator[tuple[float, ...]]:
        """See `Drafts`."""
        if not self.starts:
            yield from self._by_row(start, room)
            return
        for depth, row in enumerate(self._by_row(start, room), start=1):
            scored = min(column.shape[1] for column in self.starts)
            here = tuple(float(c[start - 1, depth - 1]) for c in self.starts if depth <= scored)
            if depth > scored or any(x != x for x in here):  # noqa: PLR0124
                raise self.layout.outrun(self.index, start, depth)
            yield row + here

    def _by_row(self, start: int, room: int) -> Iterator[tuple[float, ...]]:
        m = start + self.ahead[start - 1]
        on_path = self.path[start - 1 : min(m, start - 1 + room)]
        yield from on_path
        left = room - len(on_path)
        if left <= 0 or m > len(self.path):
            return
        begin, end = self.bounds[m - 1], self.bounds[m]
        yield from _tuples(self.branches, slice(begin, min(end, begin + left)))
        if left > end - begin and self.layout.cut[self.layout.offsets[self.index] + m - 1]:
            raise self.layout.outrun(self.index, start, len(on_path) + end - begin + 1)


def _tuples(columns: Columns, rows: slice) -> list[tuple[float, ...]]:
    if not columns:
        return [()] * (rows.stop - rows.start)
    return list(zip(*(column[rows].tolist() for column in columns), strict=True))


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
