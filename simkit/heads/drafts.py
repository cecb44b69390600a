"""Every draft of a sequence: which rows it runs through, and which of them are accepted."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from simkit.drafters.path import PathLayout
from simkit.errors import HeadError
from simkit.heads.states import States


@dataclass(frozen=True)
class StartDrafts:
    """The drafts of one sequence from each of its T positions, up to D tokens deep.

    Attributes:
        rows: (N, H) float16 states: prompt and output first, then the branches.
        index: (T, D) int64, the row of each start's token at each depth; 0 beyond the draft's end.
        length: (T,) int64, recorded tokens of each draft, at most D.
        n_prefix: (T,) int64, rows of prompt and accepted output before each start.
        accepted: (T, D) bool, before the first rejection.
        source: (T, D) int64, where the token stands in the trace: its row of positions, or
            n_positions + its row of branches; -1 beyond the draft's end.
    """

    rows: np.ndarray
    index: np.ndarray
    length: np.ndarray
    n_prefix: np.ndarray
    accepted: np.ndarray
    source: np.ndarray

    @property
    def recorded(self) -> np.ndarray:
        """(T, D) bool, whether a draft is that deep."""
        return np.arange(self.index.shape[1]) < self.length[:, None]

    def pick(self, starts: np.ndarray) -> StartDrafts:
        """Some of the drafts, with only the rows that they need.

        Args:
            starts: (S,) int64, 0-based.
        """
        n_text = int(self.n_prefix[starts].max())
        behind = np.unique(self.index[starts])
        kept = np.concatenate([np.arange(n_text), behind[behind >= n_text]])
        return StartDrafts(
            rows=self.rows[kept],
            index=np.searchsorted(kept, self.index[starts]),
            length=self.length[starts],
            n_prefix=self.n_prefix[starts],
            accepted=self.accepted[starts],
            source=self.source[starts],
        )


def check_deep(layout: PathLayout, max_depth: int) -> None:
    """Refuse drafts that were recorded less deep: what is there of deeper tokens is a selection.

    A branch ends at Γ, the output's own tokens do not, so that of the tokens beyond Γ only those
    are there that a long run of accepted ones leads to.

    Args:
        layout: of the trace.
        max_depth: deepest token that is learned from, or judged.

    Raises:
        HeadError: as said.
    """
    size, rows = np.diff(layout.branch), np.flatnonzero(layout.ahead < layout.left)
    rejected = rows + layout.ahead[rows]
    deep = layout.ahead[rows] + 1 + size[rejected]
    if (layout.cut[rejected] & (deep < max_depth)).any():
        deepest = layout.trace.max_draft
        raise HeadError(
            f"{layout.trace.path or 'the trace'}: drafts were recorded up to {deepest} deep, and of"
            f" deeper tokens mostly the accepted ones: a head of max_depth {max_depth} would take"
            f" all for such; give --max-depth {deepest}, or record with --max-draft {max_depth}"
        )


def drafts(layout: PathLayout, states: States, sequence: int, max_depth: int) -> StartDrafts:
    """The drafts of one sequence.

    Args:
        layout: of the trace.
        states: of the same trace.
        sequence: its index.
        max_depth: D.
    """
    first, end = (int(x) for x in layout.offsets[sequence : sequence + 2])
    text = states.text(sequence)
    n_prompt = len(text) - (end - first)
    start = np.arange(first, end)
    ahead = layout.ahead[first:end].astype(np.int64)
    rejected = start + ahead  # the first rejected row; the output's end where there is none
    on_path = np.minimum(ahead + 1, end - start)
    begin, stop = layout.branch[rejected], layout.branch[np.minimum(rejected + 1, end)]
    length = np.minimum(on_path + stop - begin, max_depth)
    depth = np.arange(max_depth)
    inside = depth < on_path[:, None]
    path = start[:, None] + depth
    branch = begin[:, None] + depth - on_path[:, None]
    recorded = depth < length[:, None]
    base = int(layout.branch[first])
    index = np.where(inside, path - first + n_prompt, branch - base + len(text))
    source = np.where(inside, path, branch + len(states.path))
    return StartDrafts(
        rows=np.concatenate([text, states.branches[base : layout.branch[end]]]),
        index=np.where(recorded, index, 0),
        length=length,
        n_prefix=n_prompt + start - first,
        accepted=recorded & (depth < ahead[:, None]),
        source=np.where(recorded, source, -1),
    )
