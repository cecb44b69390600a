"""What a rule proposes from every start of one sequence."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np

from traces.arrays import count_up
from traces.columns import Columns


class Found(ABC):
    """What a rule finds from every start of one sequence.

    Attributes:
        table: the name of its table in a trace.
    """

    table: ClassVar[str]

    @abstractmethod
    def rows(self, sequence: int) -> Columns:
        """Its rows, with the sequence's number."""


@dataclass(frozen=True, eq=False)
class Proposals(Found):
    """Drafts from starts 1 … T of a sequence of T output tokens.

    Attributes:
        lengths: tokens of the draft from start i, at index i - 1: (T,) int32; 0 is no draft.
        accepted: how many of them, from the first, are the output's own: (T,) int32. Behind the
            output's last token nothing is.
        score: the probability that the rule gives each token, (n,) float32, in the order of
            `tokens`; None where it has none.
    """

    table: ClassVar[str] = "lattice"
    lengths: np.ndarray
    accepted: np.ndarray
    score: np.ndarray | None

    def rows(self, sequence: int) -> Columns:
        """See `Found`."""
        lengths = self.lengths
        depth = count_up(lengths)
        columns = {
            "sequence": np.full(len(depth), sequence, np.int32),
            "start": np.repeat(np.arange(1, len(lengths) + 1, dtype=np.int32), lengths),
            "depth": depth.astype(np.int32),
            "accepted": depth <= np.repeat(self.accepted, lengths),
            "draft_token": self.tokens,
        }
        if self.score is not None:
            columns["draft_prob_raw"] = _conditional(self.score, depth)
        return columns

    @cached_property
    def offsets(self) -> np.ndarray:
        """Where the draft of each start begins in `tokens`, and its end: (T + 1,) int64."""
        return np.concatenate([[0], np.cumsum(self.lengths, dtype=np.int64)])

    @property
    @abstractmethod
    def tokens(self) -> np.ndarray:
        """All drafts end to end, (n,) int32."""

    def draft(self, start: int) -> np.ndarray:
        """The draft from start i, int32."""
        return self.tokens[self.offsets[start - 1] : self.offsets[start]]


@dataclass(frozen=True, eq=False)
class Slices(Proposals):
    """Drafts that are pieces of the text; their tokens are put together when they are asked for.

    Attributes:
        text: prompt and output, int32.
        begins: index in `text` where the draft of each start begins, (T,) int32.
    """

    text: np.ndarray
    begins: np.ndarray

    @property
    def tokens(self) -> np.ndarray:
        """See `Proposals`."""
        before = self.begins - self.offsets[:-1]
        return self.text[np.repeat(before, self.lengths) + np.arange(self.offsets[-1])]

    def draft(self, start: int) -> np.ndarray:
        """See `Proposals`."""
        begin = self.begins[start - 1]
        return self.text[begin : begin + self.lengths[start - 1]]


@dataclass(frozen=True, eq=False)
class Listed(Proposals):
    """Drafts that are kept token by token.

    Attributes:
        flat: all of them end to end, (n,) int32.
    """

    flat: np.ndarray

    @property
    def tokens(self) -> np.ndarray:
        """See `Proposals`."""
        return self.flat


def _conditional(score: np.ndarray, depth: np.ndarray) -> np.ndarray:
    """Probabilities of tokens given those before them, from those of the drafts up to them."""
    before = np.where(depth > 1, np.concatenate([[1.0], score[:-1]])[: len(score)], 1.0)
    return np.minimum(score / before, 1.0).astype(np.float32)
