"""What a parallel drafter is trained on: rows of masks beside a text's own, and their weights.

Positions count from 0. Row (k, e) stands at position e + k, has seen the text up to e and k masks,
and predicts the token at e + k + 1. k = 0 are the text's own rows. PARD (arXiv 2504.18583) writes
(k, n) with n = e + k: copy k of the text, whose rows see the real tokens up to n - k, the masks
(j, n - k + j) of the copies before, and themselves.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

KEEP, LEAST_KEPT = 0.7, 0.1  # COD: share of copy k's rows that is kept, max(0.7^k, 0.1)
CE_WEIGHT = 0.1  # of the cross-entropy beside the divergence: PARD-2, Table 6
_FEW_ROWS = 128  # whose logits fit a processor's cache


@dataclass(frozen=True)
class Rows:
    """Rows of one text: its T tokens first, then masks by (depth, start); tensors (N,).

    Attributes:
        depth: k.
        start: e, the last real token that the row sees.
        learns: whether its prediction is a token of the answer, which the loss counts.
    """

    depth: Tensor
    start: Tensor
    learns: Tensor

    @property
    def position(self) -> Tensor:
        """Where the row stands; its prediction stands one behind."""
        return self.depth + self.start

    @property
    def n_text(self) -> int:
        """T, the text's own rows."""
        return int((self.depth == 0).sum())

    def own(self) -> tuple[Tensor, Tensor]:
        """The masks of its own start that each mask may see.

        Returns:
            index of rows and whether they are there, both (N - T, greatest depth).
        """
        n, most = self.n_text, int(self.depth.max())
        table = torch.full((most + 1, n), -1, device=self.depth.device)
        table[self.depth, self.start] = torch.arange(len(self.depth), device=table.device)
        index = table[1:, self.start[n:]].T
        reach = torch.arange(1, most + 1, device=table.device) <= self.depth[n:, None]
        return index.clamp_min(0), (index >= 0) & reach

    def to(self, device: str) -> Rows:
        """The same on a device."""
        return Rows(self.depth.to(device), self.start.to(device), self.learns.to(device))

    def mask(self) -> Tensor:
        """Bool (N, N): whether a row (first) sees a row (second)."""
        k, e = self.depth[:, None], self.start[:, None]
        j, f = self.depth[None], self.start[None]
        return ((j == 0) & (f <= e)) | ((j > 0) & (f == e) & (j <= k))


def make_rows(n_prompt: int, n_text: int, kept: list[Tensor]) -> Rows:
    """Rows of a text; `kept[k - 1]` holds the starts whose mask k is there, a subset of k - 2's.

    Args:
        n_prompt: tokens before the answer.
        n_text: tokens in all.
        kept: 0-based positions e >= n_prompt - 1 of last known tokens.
    """
    own = torch.arange(n_text)
    first, last = n_prompt - 1, n_text - 2
    starts = [e[e + k <= last].sort().values for k, e in enumerate(kept, 1)]
    depth = torch.cat([torch.full_like(e, k) for k, e in enumerate([own, *starts])])
    start = torch.cat([own, *starts])
    learns = (depth > 0) | ((start >= first) & (start <= last))
    return Rows(depth, start, learns)


def conditional_drop(
    n_prompt: int, n_text: int, block: int, generator: torch.Generator
) -> list[Tensor]:
    """COD: the starts that keep their mask k = 1 … block - 1, nested, drawn anew for each text."""
    order = torch.randperm(n_text - n_prompt, generator=generator) + n_prompt - 1
    shares = [max(KEEP**k, LEAST_KEPT) for k in range(1, block)]
    return [order[: math.ceil(share * len(order))] for share in shares]


def every_start(n_prompt: int, n_text: int, block: int, stride: int = 1) -> list[Tensor]:
    """All masks of every `stride`-th start, as drafts have them."""
    return [torch.arange(n_prompt - 1, n_text - 1, stride)] * (block - 1)


def reached(rows: Rows, confidence: Tensor) -> Tensor:
    """CAT's weights (N,): the chance that a row's token is reached, under the target.

    PARD-2, eqs. 9 and 10: the product of the target's confidences in the tokens between a row's
    last real token and the one that it predicts; 1 for a text's own rows.

    Args:
        rows: of a text.
        confidence: the target's probability of each token of the text given those before it (T,);
            the first token's is not read.
    """
    total = confidence.double().clamp_min(1e-300).log().cumsum(0)
    return (total[rows.position] - total[rows.start]).exp().to(confidence.dtype)


class WeightedLoss(torch.autograd.Function):
    """Sum over rows of weight x loss, in nats, a few rows at a time: logits are never kept.

    The loss of a row is PARD-2's 0.1 CE + KL(p || q) (eq. 12), or the cross-entropy where there is
    no p. Its gradient is worked out beside it: (0.1 + 1) q - 0.1 [token] - p, by the logits.
    """

    @staticmethod
    def forward(
        ctx: Any,
        states: Tensor,
        output: Tensor,
        log_p: Tensor | None,
        at: Tensor,
        token: Tensor,
        weight: Tensor,
    ) -> Tensor:
        """The sum.

        Args:
            ctx: keeps the gradients.
            states: that the rows' logits come from (N, H).
            output: the output matrix (V, H).
            log_p: the target's, of each position of the text (T, V), or None.
            at: each row's position (N,).
            token: that came next (N,).
            weight: of each row (N,), which gets no gradient.
        """
        by_states, by_output = torch.empty_like(states), torch.zeros_like(output)
        total = torch.zeros((), dtype=torch.float64)
        ce_weight = 1.0 if log_p is None else CE_WEIGHT
        for first in range(0, len(states), _FEW_ROWS):
            part = slice(first, first + _FEW_ROWS)
            log_q = (states[part] @ output.T).log_softmax(-1)
            wanted, scale = token[part, None], weight[part, None]
            loss = -ce_weight * log_q.gather(-1, wanted)[:, 0]
            by_logits = log_q.exp()
            if log_p is not None:
                log_p_part = log_p[at[part]]
                p = log_p_part.exp()
                loss += (p * (log_p_part - log_q)).sum(-1)
                by_logits = by_logits.mul_(1 + ce_weight).sub_(p)
            by_logits.scatter_add_(-1, wanted, torch.full_like(scale, -ce_weight))
            by_logits *= scale
            total += (loss * weight[part]).sum(dtype=torch.float64)
            by_states[part] = by_logits @ output
            by_output.addmm_(by_logits.T, states[part])
        ctx.save_for_backward(by_states, by_output)
        return total.to(states.dtype)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        """Gradients by states and output matrix."""
        by_states, by_output = ctx.saved_tensors
        (scale,) = gradients
        return by_states * scale, by_output * scale, None, None, None, None
