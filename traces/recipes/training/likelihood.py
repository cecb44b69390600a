"""Log-probabilities of a few tokens of a large vocabulary, its normaliser from a part of it."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf, log

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F


@dataclass(frozen=True)
class Vocabulary:
    """Tokens in two parts: those always in the normaliser's sum, and those of which some are drawn.

    Attributes:
        always: int64 (A,).
        others: int64 (V - A,).
        n_drawn: how many of the others, at most.
    """

    always: Tensor
    others: Tensor
    n_drawn: int

    @classmethod
    def of(cls, counts: np.ndarray, n_always: int, n_drawn: int) -> Vocabulary:
        """The ``n_always`` tokens that are counted (V,) most often are always in."""
        order = torch.from_numpy(np.argsort(-counts, kind="stable"))
        others = order[n_always:]
        return cls(order[:n_always], others, min(n_drawn, len(others)))

    def draw(self, rng: np.random.Generator) -> tuple[Tensor, Tensor]:
        """Tokens int64 (L,) and the log of how many tokens each stands for, float32 (L,)."""
        drawn = self.others[rng.choice(len(self.others), self.n_drawn, replace=False)]
        each = log(len(self.others) / self.n_drawn) if self.n_drawn else 0.0
        weights = torch.cat([torch.zeros(len(self.always)), torch.full((len(drawn),), each)])
        return torch.cat([self.always, drawn]), weights


def log_likelihood(
    states: Tensor, matrix: Tensor, ids: Tensor, drawn: tuple[Tensor, Tensor]
) -> Tensor:
    """The log of q (n, K) of tokens ids, where q is the softmax of states (n, H) by matrix (V, H).

    A row's own tokens count as they are; for all others those of ``drawn`` stand, so that the
    normaliser is right in the mean over draws, and exact where all tokens are drawn. Products are
    in the type of ``torch.autocast``, if it is on; sums in float32.

    Args:
        states: what the output matrix reads.
        matrix: the output matrix.
        ids: distinct in each row.
        drawn: of ``Vocabulary.draw``.
    """
    tokens, weights = drawn
    own = torch.bmm(F.embedding(ids, matrix), states[:, :, None])[:, :, 0].float()
    tokens = torch.cat([tokens, tokens[:1]])  # one more column, for own tokens not drawn: e^-∞
    weights = torch.cat([weights, weights.new_full((1,), -inf)])
    others = F.linear(states, F.embedding(tokens, matrix)).float() + weights
    column = tokens.new_full((len(matrix),), len(tokens) - 1)
    column[tokens[:-1]] = torch.arange(len(tokens) - 1, device=tokens.device)
    others.scatter_(-1, column[ids], -inf)
    return own - torch.logaddexp(own.logsumexp(-1), others.logsumexp(-1))[:, None]
