"""What a step sees where drafts depend on their start."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from simkit.drafters.layout import Columns, Layout, Read
from simkit.errors import ReplayError
from traces import scores
from traces.messages import how_many
from traces.trace import Trace


class LatticeLayout(Layout):
    """The drafts of a lattice, see `Layout`; all columns are by start.

    A draft ends where the trace says so: after a drafted EOS, or where the drafter had no more to
    propose. Where it does not, more could have
    been drafted. Behind a rejected token, and behind the output's end, that changes no outcome: a
    policy that reads no column drafts on, one that reads any is told what was not recorded. Behind
    a recorded draft that was accepted whole nothing is known, and no policy gets there.
    """

    by_start = True

    def __init__(self, trace: Trace) -> None:
        super().__init__(trace)
        self._check_lengths()
        self.recorded = self._lengths()
        accepted = self._accepted()
        left = self.left
        self.ahead = np.minimum(accepted, left).astype(np.int32)
        known = (accepted < self.recorded) | (accepted >= left)
        ended = self._ended()
        self.cut = ~(known | ended)
        length = np.where(known & ~ended, trace.max_new_tokens, self.recorded)
        self.branch = np.concatenate([[0], np.cumsum(length)])
        self._found: dict[str, np.ndarray] = {}

    def has(self, column: str) -> bool:
        """Whether drafts have a column."""
        return self.trace.has("lattice", column)

    @property
    def readable(self) -> list[str]:
        """The columns of drafts that rules may read."""
        return [name for name in self.trace.manifest.lattice_columns if name != "draft_token"]

    def columns(self, names: tuple[str, ...]) -> Read:
        """See `Layout`."""
        return Read((), (), tuple(map(self._column, names)))

    def sequence(self, read: Read, index: int) -> LatticeDrafts:
        """See `Layout`."""
        rows = slice(int(self.offsets[index]), int(self.offsets[index + 1]))
        return LatticeDrafts(
            self, index, self.ahead[rows].tolist(), tuple(column[rows] for column in read.starts)
        )

    def lag(self, head: str) -> int:
        """See `Layout`."""
        return 0

    def _column(self, name: str) -> np.ndarray:
        if name not in self._found:
            head = name.removeprefix("score:")
            plain = head == name
            self._found[name] = self._by_start(self._values(name)) if plain else self._scores(head)
        return self._found[name]

    def _by_start(self, values: np.ndarray) -> np.ndarray:
        """Values, draft after draft, as (R, D) float32, NaN where nothing was recorded."""
        out = np.full((len(self.recorded), int(self.recorded.max(initial=1))), np.nan, np.float32)
        out[np.arange(out.shape[1]) < self.recorded[:, None]] = values
        return out

    def _values(self, name: str) -> np.ndarray:
        """A column, draft after draft."""
        return self.trace.lattice(name)

    def _scores(self, head: str) -> np.ndarray:
        found = scores.load(self.trace, head)
        assert isinstance(found, scores.StartScores)
        return found.values

    def _recorded(self, sequence: int, start: int) -> int:
        return int(self.recorded[self.offsets[sequence] + start - 1])

    def _lengths(self) -> np.ndarray:
        """Tokens of each recorded draft, (R,)."""
        return np.diff(self.trace.lattice_offsets)

    def _accepted(self) -> np.ndarray:
        """Tokens of each draft before its first rejected one, (R,)."""
        accepted = self.trace.lattice("accepted")
        begins, ends = self.trace.lattice_offsets[:-1], self.trace.lattice_offsets[1:]
        rejected = np.append(np.flatnonzero(~accepted), len(accepted))
        return np.minimum(rejected[np.searchsorted(rejected, begins)], ends) - begins

    def _ended(self) -> np.ndarray:
        """Which drafts are whole: all if the drafter ends them, or those with an EOS; (R,) bool."""
        if self.trace.manifest.draft_ends:
            return np.ones(len(self.recorded), bool)
        ended = np.zeros(len(self.recorded), bool)
        some = np.flatnonzero(self.recorded)
        if self.trace.has("lattice", "draft_token") and len(self.trace.eos_token_ids):
            final = self.trace.lattice("draft_token")[self.trace.lattice_offsets[some + 1] - 1]
            ended[some] = np.isin(final, self.trace.eos_token_ids)
        return ended

    def _check_lengths(self) -> None:
        longest = self.trace.max_new_tokens
        wrong = np.flatnonzero((self.n_output < 1) | (self.n_output > longest))
        if len(wrong):
            number = self.trace.sequences["sequence"][int(wrong[0])].as_py()
            raise ReplayError(
                f"sequence {number}: {how_many(self.n_output[wrong[0]], 'output token')},"
                f" max_new_tokens is {longest}"
            )


class LatticeDrafts(NamedTuple):
    """The drafts of one sequence, see `SequenceDrafts`.

    Attributes:
        layout: of the trace.
        index: of the sequence.
        ahead: see `SequenceDrafts`.
        starts: the policy's columns, of the drafts from each position.
    """

    layout: LatticeLayout
    index: int
    ahead: list[int]
    starts: Columns

    def draft(self, start: int, room: int) -> Iterator[tuple[float, ...]]:
        """See `SequenceDrafts`."""
        row = self.layout.offsets[self.index] + start - 1
        length = int(self.layout.branch[row + 1] - self.layout.branch[row])
        for depth in range(1, min(room, length) + 1):
            here = tuple(float(c[start - 1, depth - 1]) for c in self.starts if depth <= c.shape[1])
            if len(here) < len(self.starts) or any(x != x for x in here):  # noqa: PLR0124
                raise self.layout.outrun(self.index, start, depth)
            yield here
        if room > length and self.layout.cut[row]:
            raise self.layout.outrun(self.index, start, length + 1)
