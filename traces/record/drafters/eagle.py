"""The networks of EAGLE-1, 2 and 3 for the Llama family; parameters named as in public checkpoints.

EAGLE-1 and 2 (arXiv 2401.15077, 2406.16858): f' = Layer(FC[e(x); f]), where f is the target's last
state behind the token before x; the decoder layer has no norm in front; the target's output matrix
reads f', or those of its rows that a reduced vocabulary names, as in FR-Spec (arXiv 2502.14856).
EAGLE-3 (arXiv 2503.01840): three of the target's layers are fused by FC once; the layer attends
with [norm e(x); norm f], adds to f, and an output matrix of its own, over a reduced vocabulary,
reads norm(f').
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from transformers import LlamaConfig
from transformers.cache_utils import Cache
from transformers.models.llama.modeling_llama import (
    LlamaAttention,
    LlamaDecoderLayer,
    LlamaMLP,
    LlamaRMSNorm,
    LlamaRotaryEmbedding,
)

from traces.record.drafters.vocabulary import add_tables, ids_of


@dataclass(frozen=True)
class Place:
    """Where the rows of a pass stand: rotary angles, the mask's bias, and the cache."""

    rotary: tuple[Tensor, Tensor]
    bias: Tensor
    cache: Cache | None = None

    @property
    def options(self) -> dict[str, Any]:
        """As transformers' Llama layers take them."""
        return {
            "position_embeddings": self.rotary,
            "attention_mask": self.bias,
            "past_key_values": self.cache,
        }


class Eagle1(nn.Module):
    """EAGLE-1 and 2. Shapes: B texts, n rows, H the target's width, V ids, D of them written.

    Args:
        config: of the one layer.
        bias: of ``fc``.
        n_ids: of a reduced vocabulary; 0 is the target's own.
    """

    name = "EAGLE-1"
    d2t: Tensor
    t2d: Tensor

    def __init__(self, config: LlamaConfig, bias: bool, n_ids: int = 0) -> None:
        super().__init__()
        self.n_ids = n_ids
        self._rows: Tensor | None = None  # of the output matrix, taken out once
        if n_ids:
            add_tables(self, n_ids, config.vocab_size)
        layer: Any = LlamaDecoderLayer(config, 0)
        layer.input_layernorm = nn.Identity()
        self.fc = nn.Linear(2 * config.hidden_size, config.hidden_size, bias=bias)
        self.layers = nn.ModuleList([layer])
        self.rotary = LlamaRotaryEmbedding(config)

    def fused(self, states: Tensor) -> Tensor:
        """Features (B, n, H) of the target's states (B, n, H)."""
        return states

    def forward(self, embedded: Tensor, features: Tensor, place: Place) -> Tensor:
        """The next features (B, n, H)."""
        x = self.fc(torch.cat([embedded, features], -1))
        return self.layers[0](x, **place.options)

    def logits(self, features: Tensor, output: Tensor) -> Tensor:
        """Logits (B, n, D) by the target's output matrix (V, H), which is the same in all calls."""
        if not self.n_ids:
            return features @ output.T
        if self._rows is None:
            self._rows = output[ids_of(self.d2t)]
        return features @ self._rows.T


class Midlayer(nn.Module):
    """EAGLE-3's decoder layer: queries, keys and values read two vectors."""

    def __init__(self, config: LlamaConfig) -> None:
        super().__init__()
        width, eps = config.hidden_size, config.rms_norm_eps
        self.self_attn = LlamaAttention(config, 0)
        for name in ("q_proj", "k_proj", "v_proj"):
            old = getattr(self.self_attn, name)
            new = nn.Linear(2 * width, old.out_features, bias=config.attention_bias)
            setattr(self.self_attn, name, new)
        self.mlp = LlamaMLP(config)
        self.input_layernorm = LlamaRMSNorm(width, eps)
        self.hidden_norm = LlamaRMSNorm(width, eps)
        self.post_attention_layernorm = LlamaRMSNorm(width, eps)

    def forward(self, embedded: Tensor, features: Tensor, place: Place) -> Tensor:
        """The next features (B, n, H)."""
        x = torch.cat([self.input_layernorm(embedded), self.hidden_norm(features)], -1)
        features = features + self.self_attn(x, **place.options)[0]
        return features + self.mlp(self.post_attention_layernorm(features))


class Eagle3(nn.Module):
    """EAGLE-3: an output matrix of its own, over a reduced vocabulary."""

    name = "EAGLE-3"
    d2t: Tensor
    t2d: Tensor

    def __init__(self, config: LlamaConfig, n_states: int, n_ids: int) -> None:
        super().__init__()
        width = config.hidden_size
        self.fc = nn.Linear(n_states, width, bias=False)
        self.midlayer = Midlayer(config)
        self.norm = LlamaRMSNorm(width, config.rms_norm_eps)
        self.lm_head = nn.Linear(width, n_ids, bias=False)
        self.rotary = LlamaRotaryEmbedding(config)
        add_tables(self, n_ids, config.vocab_size)

    def fused(self, states: Tensor) -> Tensor:
        """Features (B, n, H) of the target's layers (B, n, layers x H of the target)."""
        return self.fc(states)

    def forward(self, embedded: Tensor, features: Tensor, place: Place) -> Tensor:
        """The next features (B, n, H)."""
        return self.midlayer(embedded, features, place)

    def logits(self, features: Tensor, output: Tensor) -> Tensor:
        """Logits (B, n, D); ``output``, the target's matrix, is not read."""
        return self.lm_head(self.norm(features))
