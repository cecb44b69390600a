"""The steps of a replay."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, eq=False)
class Steps:
    """Every step of one policy on one trace, sequence after sequence.

    Attributes:
        offsets: (S + 1,) int64; steps offsets[s] to offsets[s + 1] are those of sequence s.
        drafted: int32, draft passes.
        proposed: int32, tokens sent to the target, γ.
        accepted: int32, a.
        n_output: (S,) int64, T.
        first: the position at which the first step of a sequence starts.
    """

    offsets: np.ndarray
    drafted: np.ndarray
    proposed: np.ndarray
    accepted: np.ndarray
    n_output: np.ndarray
    first: int

    def __len__(self) -> int:
        return len(self.drafted)

    @property
    def counts(self) -> np.ndarray:
        """Steps of each sequence, (S,) int64."""
        return np.diff(self.offsets)

    @property
    def sequence(self) -> np.ndarray:
        """Index of each step's sequence, int64."""
        return np.repeat(np.arange(len(self.counts)), self.counts)

    @property
    def number(self) -> np.ndarray:
        """Each step's 1-based number inside its sequence, int64."""
        return np.arange(len(self)) - np.repeat(self.offsets[:-1], self.counts) + 1

    @property
    def start(self) -> np.ndarray:
        """The position i at which each step starts, int64."""
        before = np.cumsum(self.accepted + 1, dtype=np.int64) - self.accepted - 1
        at = np.append(before, 0)[self.offsets[:-1]]  # sequences without steps: not read below
        return before - np.repeat(at, self.counts) + self.first

    @property
    def emitted(self) -> np.ndarray:
        """Output tokens of each step, int64: a + 1, or a if the last accepted one was an EOS."""
        left = np.repeat(self.n_output, self.counts) - self.start + 1
        return np.minimum(self.accepted + 1, left)


@dataclass(frozen=True, eq=False)
class Sums:
    """A replay summed over the steps of each sequence; arrays of shape (S,).

    Attributes:
        steps: int64.
        drafted: int64, see `Steps`.
        proposed: int64.
        accepted: int64.
        draft_s: seconds of draft passes.
        verify_s: seconds of verifications.
    """

    steps: np.ndarray
    drafted: np.ndarray
    proposed: np.ndarray
    accepted: np.ndarray
    draft_s: np.ndarray
    verify_s: np.ndarray
