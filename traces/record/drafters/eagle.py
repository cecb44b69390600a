"""The networks of EAGLE-1, 2 and 3 for the Llama family; parameters named as in public checkpoints.

EAGLE-1 and 2 (arXiv 2401.15077, 2406.16858): f' = Layer(FC[e(x); f]), where f is the target's last
state behind the token before x; the decoder layer has no norm in front; the target's output matrix
reads f'. EAGLE-3 (arXiv 2503.01840): three of the target's layers are fused by FC once; the layer
attends with [norm e(x); norm f], adds to f, and an output matrix of its own, over a reduced
vocabulary, reads norm(f').
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from transformers import LlamaConfig
from transformers.models.llama.modeling_llama import (
    LlamaAttention,
    LlamaDecoderLayer,
    LlamaMLP,
    LlamaRMSNorm,
    LlamaRotaryEmbedding,
)

from traces.record.cache import Buffer


@dataclass(frozen=True)
class Place:
    """Where the rows of a pass stand: rotary angles, the mask's bias, and the cache."""

    rotary: tuple[Tensor, Tensor]
    bias: Tensor
    cache: Buffer | None = None

    @property
    def options(self) -> dict[str, Any]:
        """As transformers' Llama layers take them."""
        return {
            "position_embeddings": self.rotary,
            "attention_mask": self.bias,
            "past_key_values": self.cache,
        }


class Eagle1(nn.Module):
    """EAGLE-1 and 2. Shapes: B texts, n rows, H the target's width, V ids."""

    name = "EAGLE-1"

    def __init__(self, config: LlamaConfig, bias: bool) -> None:
        super().__init__()
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
        """Logits (B, n, V) by the target's output matrix (V, H)."""
        return features @ output.T


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
    """EAGLE-3; ``d2t`` (D,) is what to add to an id of the reduced vocabulary, ``t2d`` its mask."""

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
        self.register_buffer("d2t", torch.zeros(n_ids, dtype=torch.long))
        self.register_buffer("t2d", torch.zeros(config.vocab_size, dtype=torch.bool))

    def fused(self, states: Tensor) -> Tensor:
        """Features (B, n, H) of the target's layers (B, n, layers x H of the target)."""
        return self.fc(states)

    def forward(self, embedded: Tensor, features: Tensor, place: Place) -> Tensor:
        """The next features (B, n, H)."""
        return self.midlayer(embedded, features, place)

    def logits(self, features: Tensor, output: Tensor) -> Tensor:
        """Logits (B, n, V); ids that the reduced vocabulary lacks have -inf. V is ``output``'s."""
        few = self.lm_head(self.norm(features))
        ids = torch.arange(len(self.d2t), device=few.device) + self.d2t
        every = few.new_full((*few.shape[:-1], len(output)), -torch.inf)
        return every.index_copy(-1, ids, few)
