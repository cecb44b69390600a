"""What a step sees on a recorded path.

Drafts on it share rows: a step at i sees the on-path rows i, i + 1, … up to the first rejected one,
m, and then the branch of m.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from simkit.drafters.layout import Columns, Layout, Read
from simkit.errors import ReplayError
from traces import scores, spans
from traces.trace import Trace


class PathLayout(Layout):
    """The drafts of a recorded path, see `Layout`.

    The branch of r is rows branch[r] to branch[r + 1] of the trace's branches.
    """

    by_start = False

    def __init__(self, trace: Trace) -> None:
        kind = trace.manifest.drafter
        if trace.drafters and not kind.can("path"):
            attached = ", ".join(trace.drafters)
            raise ReplayError(f"{kind.lacks['path']}; this trace has {attached}")
        kind.refuse("path", ReplayError)
        super().__init__(trace)
        self._found: dict[str, scores.RowScores | scores.StartScores] = {}
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

    def lag(self, head: str) -> int:
        """See `Layout`."""
        found = self._column(f"score:{head}")
        return found.lag if isinstance(found, scores.RowScores) else 0

    def _column(self, name: str) -> scores.RowScores | scores.StartScores:
        if name not in self._found:
            head = name.removeprefix("score:")
            if head != name:
                found = scores.load(self.trace, head)
                assert not isinstance(found, scores.NodeScores)
                self._found[name] = found
            elif name.startswith(spans.COLUMN):
                path = spans.column(self.trace, name)
                # a branch is in the span of the position where it begins
                off = np.repeat(path, np.diff(self.branch))
                self._found[name] = scores.RowScores(path, off)
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
        size = np.diff(self.branch)
        cut &= size < self.trace.max_new_tokens - 1 - self.position
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
                f"sequence {number}: its {self.n_output[wrong[0]]} output tokens do not fit the"
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
        """See `SequenceDrafts`."""
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
