"""Attention of a parallel drafter's rows, each over its text and its own masks alone.

Under one mask over all rows most of the work is for masks of other starts, which no row sees.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from transformers import AttentionInterface

from traces.recipes.training.parallel_rows import Rows

NAME = "rows_of_a_text"  # as transformers' configs name it


def attend(
    module: object,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float,
    rows: Rows,
    **options: Any,
) -> tuple[Tensor, None]:
    """What transformers' layers call: states (1, N, heads, width) of N rows.

    Args:
        module: the layer's attention; not read.
        query: (1, heads, N, width), with as many heads as ``key`` and ``value``.
        key: see ``query``.
        value: see ``query``.
        attention_mask: not read.
        scaling: of the scores.
        rows: what they are.
        options: of other kinds of attention; not read.
    """
    n = rows.n_text
    query, key = query.to(value.dtype), key.to(value.dtype)
    known = key[:, :, :n], value[:, :, :n]
    text = F.scaled_dot_product_attention(query[:, :, :n], *known, is_causal=True, scale=scaling)
    index, there = rows.own()
    own_key, own_value = (
        x.index_select(2, index.flatten()).unflatten(2, index.shape) for x in (key, value)
    )
    masks = query[:, :, n:]
    later = torch.arange(n, device=index.device) > rows.start[n:, None]
    scores = (masks @ known[0].transpose(-1, -2)).masked_fill(later, -torch.inf)
    own = (masks[:, :, :, None] * own_key).sum(-1).masked_fill(~there, -torch.inf)
    p = (torch.cat([scores, own], -1).float() * scaling).softmax(-1).to(value.dtype)
    found = p[..., :n] @ known[1] + (p[..., n:, None] * own_value).sum(-2)
    return torch.cat([text, found], 2).transpose(1, 2), None


AttentionInterface.register(NAME, attend)
