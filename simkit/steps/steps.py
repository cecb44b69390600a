"""The steps of a replay."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from simkit.drafters.layout import Layout, Span
from simkit.policies import Policy

COUNTS = ("steps", "drafted", "draft_passes", "proposed", "accepted")


@dataclass(frozen=True, eq=False)
class Steps:
    """Every step of one policy on one trace, sequence after sequence.

    Attributes:
        offsets: (S + 1,) int64; steps offsets[s] to offsets[s + 1] are those of sequence low + s.
        drafted: int32, draft tokens, also those that are not sent to the target.
        draft_passes: int32, passes of the draft model that gave them, and those over verified
            batches, see `Policy.extra_passes`.
        proposed: int32, tokens sent to the target, γ.
        accepted: int32, a.
        emitted: int32, output tokens: the accepted ones, and the target's own if there is one.
        asked: int32, tokens that the draft was asked for: those drafted, but where one pass yields
            them all before a rule sees the first one.
        first: the position at which the first step of a sequence starts.
        low: index of the first sequence, of a trace of which these are not all.
    """

    offsets: np.ndarray
    drafted: np.ndarray
    draft_passes: np.ndarray
    proposed: np.ndarray
    accepted: np.ndarray
    emitted: np.ndarray
    asked: np.ndarray
    first: int
    low: int = field(default=0, kw_only=True)

    def __len__(self) -> int:
        return len(self.drafted)

    @property
    def counts(self) -> np.ndarray:
        """Steps of each sequence, (S,) int64."""
        return np.diff(self.offsets)

    @property
    def sequence(self) -> np.ndarray:
        """Index of each step's sequence, int64."""
        return np.repeat(self.low + np.arange(len(self.counts)), self.counts)

    @property
    def number(self) -> np.ndarray:
        """Each step's 1-based number inside its sequence, int64."""
        return np.arange(len(self)) - np.repeat(self.offsets[:-1], self.counts) + 1

    @property
    def start(self) -> np.ndarray:
        """The position i at which each step starts, int64."""
        before = np.cumsum(self.emitted, dtype=np.int64) - self.emitted
        at = np.append(before, 0)[self.offsets[:-1]]  # sequences without steps: not read below
        return before - np.repeat(at, self.counts) + self.first

    def row(self, layout: Layout) -> np.ndarray:
        """The row on the path at which each step starts, int64."""
        return layout.offsets[self.sequence] + self.start - 1

    def known(self, layout: Layout) -> np.ndarray:
        """Tokens before each step, prompt and output, int64."""
        return layout.n_prompt[self.sequence] + self.start - 1

    @property
    def unread(self) -> np.ndarray:
        """Known tokens at each step that the draft has not read yet, int64; >= 1."""
        return self.start - self.read_before(np.where(self.drafted > 0, self.start, -1))

    def read_before(self, read: np.ndarray) -> np.ndarray:
        """Up to which position the draft has read before each step.

        Args:
            read: (N,) the position from which it drafted in each step, so that it has read those
                before it and the token there is to come; -1 where it did not.

        Returns:
            (N,) int64, the latest; of a sequence's first draft, that before its first step.
        """
        last = np.maximum.accumulate(np.where(read >= 0, np.arange(len(read)), -1))
        last = np.concatenate([[-1], last[:-1]]) if len(read) else last
        known = last >= np.repeat(self.offsets[:-1], self.counts)
        return np.where(known, read[last], self.first - 1)


def extra_passes(policy: Policy, layout: Layout) -> int:
    """The policy's, see there; none where proposals come from no draft model."""
    if not policy.extra_passes:  # asked in each part of a sweep, so the usual answer comes first
        return 0
    return policy.extra_passes if layout.passes(np.ones(1, np.int64))[0] else 0


def sequential(
    offsets: np.ndarray,
    counts: np.ndarray,
    layout: Layout,
    first: int,
    span: Span | None = None,
    extra: int = 0,
) -> Steps:
    """Steps that emit a + 1 tokens each, or a if the last accepted one was an EOS.

    Args:
        offsets: see `Steps`.
        counts: drafted, proposed and accepted tokens of each step, and those asked for where the
            drafter yields them in one pass; (3 or 4, N) int32.
        layout: of the trace.
        first: see `Steps`.
        span: of the trace's sequences; None means all.
        extra: passes of the draft in each step that draft nothing.
    """
    low, high = span or (0, len(layout.n_output))
    n_output = layout.n_output[low:high]
    emitted = counts[2] + 1
    until = np.append(0, np.cumsum(emitted, dtype=np.int64))[offsets]
    some = np.flatnonzero(np.diff(offsets))
    surplus = np.diff(until)[some] - (n_output[some] - first + 1)
    emitted[offsets[some + 1] - 1] -= surplus.astype(np.int32)
    drafted, proposed, accepted = counts[:3]
    passes = layout.passes(drafted) + np.int32(extra)
    asked = counts[3] if layout.deepest else drafted
    return Steps(offsets, drafted, passes, proposed, accepted, emitted, asked, first, low=low)


@dataclass(frozen=True, eq=False)
class Sums:
    """A replay summed over the steps of each sequence; arrays of shape (S,).

    Attributes:
        steps: int64.
        drafted: int64, see `Steps`.
        draft_passes: int64.
        proposed: int64.
        accepted: int64.
        calls: int64, decisions that were paid for.
        draft_s: seconds of draft passes.
        verify_s: seconds of verifications.
    """

    steps: np.ndarray
    drafted: np.ndarray
    draft_passes: np.ndarray
    proposed: np.ndarray
    accepted: np.ndarray
    calls: np.ndarray
    draft_s: np.ndarray
    verify_s: np.ndarray
