"""Networks that score a token by where its draft began and how deep in it it stands."""

from __future__ import annotations

from abc import ABC, abstractmethod

from torch import Tensor, nn


class StartHead(nn.Module, ABC):
    """Scores all tokens of drafts that run through rows of one sequence.

    Attributes:
        max_depth: deepest token that it scores.
    """

    max_depth: int

    def forward(self, rows: Tensor, index: Tensor, n_prefix: Tensor) -> Tensor:
        """Logits of acceptance of S drafts of one sequence.

        Args:
            rows: (N, H) states: the text's first, in order, then others.
            index: (S, D) int64, the row of each draft's token at each depth. Tokens beyond a
                draft's end may be anything: no earlier token attends to them.
            n_prefix: (S,) int64, how many of the first rows stand before each draft.

        Returns:
            (S, D).
        """
        return self.score(*self.encode(rows), index, n_prefix)

    @abstractmethod
    def encode(self, rows: Tensor, first: int = 0) -> tuple[Tensor, Tensor]:
        """What drafts share of their rows: two tensors whose first dimension is N.

        Args:
            rows: (N, H), as in `forward`, or those from one of the text's rows on.
            first: which row of the text the first of them is.
        """

    @abstractmethod
    def score(self, states: Tensor, heads: Tensor, index: Tensor, n_prefix: Tensor) -> Tensor:
        """The rest of `forward`, for any part of the drafts that run through encoded rows."""
