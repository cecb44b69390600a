"""Log-probabilities of a few tokens of a large vocabulary, without keeping its logits."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

_ROWS = 128  # of logits at once: 25 MB of 49,152 tokens, which the heap keeps


class LogLikelihood(torch.autograd.Function):
    """log q (n, K) of tokens ids (n, K) where q is the softmax of states (n, H) by matrix (V, H).

    Products are in bfloat16, sums in float32. Logits are made for ``_ROWS`` rows at a time, twice:
    for the value and for the gradient, which is that of each logit, g - sum(g) q.
    """

    @staticmethod
    def forward(ctx: Any, states: Tensor, matrix: Tensor, ids: Tensor) -> Tensor:
        """See the class."""
        states16, matrix16 = states.bfloat16(), matrix.bfloat16()
        found, normal = [], []
        for rows, some in zip(states16.split(_ROWS), ids.split(_ROWS), strict=True):
            logits = F.linear(rows, matrix16).float()
            normal.append(logits.logsumexp(-1, keepdim=True))
            found.append(logits.gather(-1, some) - normal[-1])
        ctx.save_for_backward(states16, matrix16, ids, torch.cat(normal))
        return torch.cat(found)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, None]:
        """Gradients of states and matrix."""
        states16, matrix16, ids, normal = ctx.saved_tensors
        of_states = torch.empty(states16.shape)
        of_matrix = torch.zeros(matrix16.shape)
        for rows in torch.arange(len(ids)).split(_ROWS):
            part = slice(int(rows[0]), int(rows[-1]) + 1)
            grad = grads[0][part].float()
            logits = F.linear(states16[part], matrix16).float()
            logits.sub_(normal[part]).exp_().mul_(-grad.sum(-1, keepdim=True))
            logits.scatter_add_(-1, ids[part], grad)
            of_logits = logits.bfloat16()
            of_states[part] = (of_logits @ matrix16).float()
            of_matrix += of_logits.T @ states16[part]
        return of_states, of_matrix, None
