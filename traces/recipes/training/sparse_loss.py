"""Cross-entropy against a few tokens of a large vocabulary, without keeping its logits."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

_ROWS = 128  # of logits at once, which fit a processor's cache
_LEAST = 1e-30  # probability; below it float32 ends


class SparseCrossEntropy(torch.autograd.Function):
    """Sum over rows and tokens of -weight x log q, q the softmax of states by an output matrix.

    Products are in bfloat16, sums in float32. The gradient is worked out beside the value, a few
    rows at a time: that of a row's logits is (its sum of weights) x q - weights.
    """

    @staticmethod
    def forward(ctx: Any, states: Tensor, matrix: Tensor, ids: Tensor, weights: Tensor) -> Tensor:
        """The sum.

        Args:
            ctx: keeps the gradients.
            states: that the rows' logits come from (N, H).
            matrix: output matrix (V, H).
            ids: tokens of each row (N, K); one may stand there twice.
            weights: of these tokens, float32 (N, K).
        """
        states16, matrix16 = states.bfloat16(), matrix.bfloat16()
        by_states = torch.empty(states.shape, device=states.device)
        by_matrix = (
            torch.zeros(matrix.shape, device=matrix.device) if ctx.needs_input_grad[1] else None
        )
        total = torch.zeros((), device=states.device)
        for first in range(0, len(states), _ROWS):
            part = slice(first, first + _ROWS)
            some, counted = ids[part], weights[part]
            q = F.linear(states16[part], matrix16).softmax(-1, dtype=torch.float32)
            total -= (counted * q.gather(-1, some).clamp_min(_LEAST).log()).sum()
            q.mul_(counted.sum(-1, keepdim=True)).scatter_add_(-1, some, -counted)
            by_logits = q.bfloat16()
            by_states[part] = (by_logits @ matrix16).float()
            if by_matrix is not None:
                by_matrix += by_logits.T @ states16[part]
        ctx.save_for_backward(by_states, by_matrix)
        return total

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        """Gradients by states and matrix."""
        by_states, by_matrix = ctx.saved_tensors
        (scale,) = gradients
        return by_states * scale, None if by_matrix is None else by_matrix * scale, None, None
