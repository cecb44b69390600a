"""A plain Llama in PyTorch whose parameter names are those of Hugging Face's ``LlamaForCausalLM``.

It exists so that training compiles quickly; what it computes is checked against transformers in
``tests/test_reference.py``. Shapes: B sequences, T tokens, V vocabulary.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from traces.outputs import write_atomic
from traces.recipes.reference.pair import CONTEXT, MODELS, VOCAB_SIZE

ROPE_THETA = 10_000.0
NORM_EPS = 1e-5


@dataclass(frozen=True)
class Shape:
    """Sizes of one model; ``heads`` also is the number of key and value heads."""

    hidden: int
    layers: int
    heads: int
    ffn: int

    @property
    def parameters(self) -> int:
        """Number of parameters, the tied embedding counted once."""
        block = 4 * self.hidden**2 + 3 * self.hidden * self.ffn + 2 * self.hidden
        return VOCAB_SIZE * self.hidden + self.layers * block + self.hidden


SHAPES = {
    "target": Shape(hidden=160, layers=24, heads=5, ffn=416),
    "draft": Shape(hidden=96, layers=2, heads=3, ffn=384),
}


class Norm(nn.Module):
    """Root mean square norm, in float32."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))

    def forward(self, x: Tensor) -> Tensor:
        """Normalise the last axis; the dtype stays."""
        wide = x.float()
        wide = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + NORM_EPS)
        return (wide * self.weight).to(x.dtype)


class Attention(nn.Module):
    """Causal self-attention with rotary positions."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.heads = shape.heads
        self.q_proj = nn.Linear(shape.hidden, shape.hidden, bias=False)
        self.k_proj = nn.Linear(shape.hidden, shape.hidden, bias=False)
        self.v_proj = nn.Linear(shape.hidden, shape.hidden, bias=False)
        self.o_proj = nn.Linear(shape.hidden, shape.hidden, bias=False)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor, mask: Tensor | None = None) -> Tensor:
        """States (B, T, hidden) to states of the same shape; ``mask`` (T, T) instead of causal."""
        size = (*x.shape[:2], self.heads, x.shape[2] // self.heads)
        q, k, v = (p(x).view(size).transpose(1, 2) for p in (self.q_proj, self.k_proj, self.v_proj))
        q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        out = F.scaled_dot_product_attention(q, k, v, mask, is_causal=mask is None)
        return self.o_proj(out.transpose(1, 2).reshape(x.shape))


class Mlp(nn.Module):
    """Gated feed-forward layer (SwiGLU)."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(shape.hidden, shape.ffn, bias=False)
        self.up_proj = nn.Linear(shape.hidden, shape.ffn, bias=False)
        self.down_proj = nn.Linear(shape.ffn, shape.hidden, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """States (B, T, hidden) to states of the same shape."""
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class Block(nn.Module):
    """One pre-norm decoder layer."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.self_attn = Attention(shape)
        self.mlp = Mlp(shape)
        self.input_layernorm = Norm(shape.hidden)
        self.post_attention_layernorm = Norm(shape.hidden)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor, mask: Tensor | None = None) -> Tensor:
        """States (B, T, hidden) to states of the same shape; ``mask`` as in ``Attention``."""
        x = x + self.self_attn(self.input_layernorm(x), cos, sin, mask)
        return x + self.mlp(self.post_attention_layernorm(x))


class Body(nn.Module):
    """Embedding, layers and final norm: what transformers names ``model``."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.embed_tokens = nn.Embedding(VOCAB_SIZE, shape.hidden)
        self.layers = nn.ModuleList(Block(shape) for _ in range(shape.layers))
        self.norm = Norm(shape.hidden)


class Llama(nn.Module):
    """Token ids (B, T) to logits (B, T, V); the embedding is also the output matrix."""

    cos: Tensor
    sin: Tensor

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        self.model = Body(shape)
        size = shape.hidden // shape.heads
        angle = ROPE_THETA ** (-torch.arange(0, size, 2).float() / size)
        angle = torch.outer(torch.arange(CONTEXT).float(), angle).repeat(1, 2)
        self.register_buffer("cos", angle.cos(), persistent=False)
        self.register_buffer("sin", angle.sin(), persistent=False)

    def initialise(self, seed: int) -> Llama:
        """Normal(0, 0.02) weights; the matrices that write to the residual stream get less."""
        generator = torch.Generator().manual_seed(seed)
        for name, weight in self.named_parameters():
            if weight.dim() == 2:
                deep = name.endswith(("o_proj.weight", "down_proj.weight"))
                std = 0.02 / (2 * self.shape.layers) ** 0.5 if deep else 0.02
                nn.init.normal_(weight, std=std, generator=generator)
        return self

    def hidden(self, ids: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
        """Final-norm states (B, T, hidden), computed in ``dtype``."""
        x = self.model.embed_tokens(ids).to(dtype)
        cos, sin = (t[: ids.shape[1]].to(dtype) for t in (self.cos, self.sin))
        for layer in self.model.layers:
            x = layer(x, cos, sin)
        return self.model.norm(x)

    def rows(self, x: Tensor, positions: Tensor, mask: Tensor) -> Tensor:
        """Final-norm states of embedded rows (B, N, hidden) at ``positions`` (N,) of a text.

        Args:
            x: embeddings.
            positions: several rows may stand at one.
            mask: bool (N, N), True where a row (first) sees a row (second).
        """
        cos, sin = self.cos[positions], self.sin[positions]
        for layer in self.model.layers:
            x = layer(x, cos, sin, mask)
        return self.model.norm(x)

    def forward(self, ids: Tensor) -> Tensor:
        """Float32 logits (B, T, V)."""
        return F.linear(self.hidden(ids), self.model.embed_tokens.weight)


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotary embedding of (B, heads, T, size), halves paired as in transformers' Llama."""
    left, right = x.chunk(2, dim=-1)
    return x * cos + torch.cat((-right, left), dim=-1) * sin


def save_weights(net: Llama, path: Path) -> None:
    """Write the weights as bfloat16 safetensors under Hugging Face's names."""
    from safetensors.torch import save

    state = {
        k: v.detach().to("cpu", torch.bfloat16).contiguous() for k, v in net.state_dict().items()
    }
    write_atomic(path, save(state, metadata={"format": "pt"}))


def load_weights(name: str, path: Path, device: str = "cpu") -> Llama:
    """A float32 model with the (bfloat16) weights of a file that ``save_weights`` wrote."""
    from safetensors.torch import load_file

    net = Llama(SHAPES[name])
    net.load_state_dict({k: v.float() for k, v in load_file(str(path)).items()})
    return net.to(device).eval()


def shipped(name: str, device: str = "cpu") -> Llama:
    """The target or the draft of the pair."""
    return load_weights(name, MODELS / name / "model.safetensors", device)
