"""What became of drafts: how many tokens were accepted, and whether one was rejected.

A draft that ends without a rejection is right-censored: at Γ, at the length limit, or at the end of
the text. How many more tokens would have been accepted is then not known.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from analysis.stats.checks import StatsError, check
from analysis.stats.clusters import blocks, of_prompts
from simkit.steps.steps import Steps
from traces.messages import how_many


@dataclass(frozen=True, eq=False)
class Drafts:
    """Drafts, prompt after prompt.

    Attributes:
        offsets: (S + 1,) int64; drafts offsets[s] to offsets[s + 1] are those of prompt s.
        accepted: (N,) int32, tokens accepted, a.
        rejected: (N,) bool, that the token after these was drafted and rejected.
    """

    offsets: np.ndarray
    accepted: np.ndarray
    rejected: np.ndarray

    def __post_init__(self) -> None:
        check(self.offsets, accepted=self.accepted, rejected=self.rejected)
        if len(self.accepted) and self.accepted.min() < 0:
            raise StatsError(f"accepted: a draft has {how_many(self.accepted.min(), 'token')}")

    def __len__(self) -> int:
        return len(self.accepted)

    def of_prompts(self, wanted: np.ndarray) -> Drafts:
        """Those of some prompts, (S,) bool."""
        rows, offsets = of_prompts(self.offsets, wanted)
        return Drafts(offsets, self.accepted[rows], self.rejected[rows])


def of_steps(steps: Steps) -> Drafts:
    """The drafts of a replay, of any policy on any kind of trace."""
    return Drafts(steps.offsets, steps.accepted, steps.accepted < steps.proposed)


def fixed_steps(
    ahead: np.ndarray,
    offsets: np.ndarray,
    max_new_tokens: int,
    draft_length: int,
    first: int | np.ndarray = 1,
) -> Drafts:
    """The drafts of the steps of `fixed(draft_length)`, as papers count them.

    Args:
        ahead: (R,) tokens accepted in a row from each position on, to the output's end if no
            rejection follows: `PathLayout.ahead`.
        offsets: (S + 1,), where prompts start.
        max_new_tokens: T_max; a step at i drafts at most T_max - i tokens.
        draft_length: γ >= 1.
        first: position of each prompt's first step, 1 or 2; or of each, (S,).
    """
    check(offsets, ahead=ahead)
    ends = offsets[1:]
    row = offsets[:-1] + first - 1
    left = max_new_tokens - first + np.zeros(len(row), np.int64)  # T_max - i
    prompt = np.arange(len(row))
    found: list[tuple[np.ndarray, ...]] = []
    while len(row):
        inside = row < ends[prompt]
        row, left, prompt = row[inside], left[inside], prompt[inside]
        limit = np.minimum(draft_length, left)
        accepted = np.minimum(ahead[row], limit)
        rejected = (ahead[row] < limit) & (row + ahead[row] < ends[prompt])
        found.append((prompt, accepted, rejected))
        row, left = row + accepted + 1, left - accepted - 1
    if not found:
        return Drafts(offsets * 0, np.zeros(0, np.int32), np.zeros(0, bool))
    prompt, accepted, rejected = (np.concatenate(part) for part in zip(*found, strict=True))
    order = np.argsort(prompt, kind="stable")
    counts = np.bincount(prompt, minlength=len(offsets) - 1)
    starts = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    return Drafts(starts, accepted[order].astype(np.int32), rejected[order])


def every_start(
    ahead: np.ndarray, offsets: np.ndarray, max_new_tokens: int, draft_length: int
) -> Drafts:
    """A draft of so many tokens from every position: many more than steps, and overlapping.

    A run of accepted tokens counts once for each of its tokens, so long runs weigh more than in
    the steps of a decoder. The arguments are those of `fixed_steps`.
    """
    check(offsets, ahead=ahead)
    accepted = np.empty(len(ahead), np.int32)
    rejected = np.empty(len(ahead), bool)
    for prompts, rows in blocks(offsets):
        starts, ends = offsets[prompts], offsets[prompts.start + 1 : prompts.stop + 1]
        size = ends - starts
        at = np.arange(rows.start, rows.stop)
        limit = np.repeat(starts + max_new_tokens - 1, size) - at
        np.clip(limit, 0, draft_length, out=limit)
        accepted[rows] = np.minimum(ahead[rows], limit)
        rejected[rows] = (ahead[rows] < limit) & (at + ahead[rows] < np.repeat(ends, size))
    return Drafts(offsets, accepted, rejected)


def runs(accepted: np.ndarray, offsets: np.ndarray, first: int | np.ndarray = 1) -> Drafts:
    """The unbroken runs of accepted tokens, each with the rejection that ends it.

    They are the drafts of a decoder that drafts on until the first rejection. A run that the end
    of the text cuts off is censored.

    Args:
        accepted: (R,) bool, of each position.
        offsets: (S + 1,), where prompts start.
        first: position of each prompt's first step, 1 or 2; or of each, (S,).
    """
    check(offsets, accepted=accepted)
    filled = np.diff(offsets) > 0
    emitted = offsets[:-1][filled & (np.asarray(first) > 1)]  # by the prefill: in no draft
    last = ~accepted.astype(bool)
    last[offsets[1:][filled] - 1] = True
    last[emitted] = True
    ends = np.flatnonzero(last)
    length = np.diff(ends, prepend=-1)
    drafted = ~np.isin(ends, emitted)
    ends, length = ends[drafted], length[drafted]
    rejected = ~accepted[ends].astype(bool)
    starts = np.searchsorted(ends, offsets)
    return Drafts(starts, (length - rejected).astype(np.int32), rejected)
