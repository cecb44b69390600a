"""Architecture numbers of the models in the latency atlas, and what one pass must move and compute.

A forward pass takes as long with random weights as with trained ones, so these numbers are all
that the atlas needs of a model. Each row was taken from the model's public `config.json` (its
repository is named) and is checked by its parameter count. Rotary frequencies (rope scaling) do
not change the time of a pass and are left at their defaults.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from transformers import PreTrainedConfig

BYTES = 2  # of a bfloat16 weight, key or value


@dataclass(frozen=True)
class ModelShape:
    """Sizes of a decoder-only model.

    Attributes:
        name: how the atlas calls it.
        family: "llama", "qwen2", "qwen3" or "gpt_neox", as in `model_type`.
        vocab_size: rows of the embedding, paddings included.
        hidden: width.
        ffn: inner width of the feed-forward block.
        layers: decoder layers.
        heads: query heads.
        kv_heads: key/value heads.
        head_dim: width of one head.
        tied: the embedding is the output layer.
        source: repository whose config.json has these numbers.
    """

    name: str
    family: str
    vocab_size: int
    hidden: int
    ffn: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    tied: bool
    source: str

    @property
    def embedding_parameters(self) -> int:
        """Weights of the token embedding."""
        return self.vocab_size * self.hidden

    @property
    def layer_parameters(self) -> int:
        """Weights of one decoder layer, norms and biases included."""
        query, kv = self.heads * self.head_dim, self.kv_heads * self.head_dim
        attention = 2 * self.hidden * query + 2 * self.hidden * kv
        if self.family == "gpt_neox":  # two matrices, biases everywhere, two layer norms
            biases = 3 * query + self.hidden + self.ffn + self.hidden
            return attention + 2 * self.hidden * self.ffn + biases + 4 * self.hidden
        extra = {"qwen2": query + 2 * kv, "qwen3": 2 * self.head_dim}.get(self.family, 0)
        return attention + 3 * self.hidden * self.ffn + 2 * self.hidden + extra

    @property
    def parameters(self) -> int:
        """All weights; a tied embedding counts once."""
        last_norm = self.hidden * (2 if self.family == "gpt_neox" else 1)
        embeddings = self.embedding_parameters * (1 if self.tied else 2)
        return self.layers * self.layer_parameters + last_norm + embeddings

    @property
    def weight_bytes(self) -> int:
        """Bytes that the weights take."""
        return self.parameters * BYTES

    @property
    def read_bytes(self) -> int:
        """Bytes of weights that a pass reads: of an untied embedding it needs a few rows only."""
        return self.weight_bytes - (0 if self.tied else self.embedding_parameters * BYTES)

    @property
    def kv_bytes_per_token(self) -> int:
        """Bytes of keys and values that one token adds to the cache."""
        return 2 * self.layers * self.kv_heads * self.head_dim * BYTES

    def config(self, layers: int | None = None) -> PreTrainedConfig:
        """The Hugging Face configuration; `layers` instead of all of them if given."""
        from transformers import AutoConfig

        numbers: dict[str, object] = {
            "vocab_size": self.vocab_size,
            "hidden_size": self.hidden,
            "intermediate_size": self.ffn,
            "num_hidden_layers": self.layers if layers is None else layers,
            "num_attention_heads": self.heads,
            "tie_word_embeddings": self.tied,
            "max_position_embeddings": 16384,
            "bos_token_id": None,
            "eos_token_id": None,
            "pad_token_id": None,
        }
        if self.family != "gpt_neox":
            numbers |= {"num_key_value_heads": self.kv_heads, "head_dim": self.head_dim}
        return AutoConfig.for_model(self.family, **numbers)


def kv_read_bytes(shape: ModelShape, tokens_in: int, context_len: int, batch_size: int) -> int:
    """Keys and values that a pass reads: those of the context and of its own tokens."""
    return shape.kv_bytes_per_token * (context_len + tokens_in) * batch_size


def pass_bytes(shape: ModelShape, tokens_in: int, context_len: int, batch_size: int) -> int:
    """The fewest bytes that a pass reads: its weights once, its keys and values once."""
    return shape.read_bytes + kv_read_bytes(shape, tokens_in, context_len, batch_size)


def pass_flops(shape: ModelShape, tokens_in: int, context_len: int, batch_size: int) -> float:
    """Floating-point operations of a pass; a prefill (context 0) needs its last logits only."""
    rows = tokens_in * batch_size
    logit_rows = rows if context_len else batch_size
    seen = context_len + (tokens_in + 1) / 2
    attention = 4 * rows * seen * shape.layers * shape.heads * shape.head_dim
    layers = 2 * rows * shape.layers * shape.layer_parameters
    return attention + layers + 2 * logit_rows * shape.embedding_parameters


def head_bytes(shape: ModelShape, block: int, context_len: int) -> int:
    """Bytes that a one-layer head of the model's width reads for a block of tokens."""
    kv = shape.kv_bytes_per_token // shape.layers * (context_len + block)
    return shape.layer_parameters * BYTES + kv


def _llama(name: str, source: str, *sizes: int) -> ModelShape:
    return ModelShape(name, "llama", *sizes, head_dim=128, tied=False, source=source)


def _qwen(name: str, family: str, *sizes: int, head_dim: int, tied: bool) -> ModelShape:
    maker, size = name.rsplit("-", 1)
    source = f"Qwen/{maker.capitalize()}-{size.upper()}"
    return ModelShape(name, family, *sizes, head_dim=head_dim, tied=tied, source=source)


def _pythia(name: str, source: str, *sizes: int) -> ModelShape:
    head_dim = sizes[1] // sizes[4]
    return ModelShape(
        name, "gpt_neox", *sizes, kv_heads=sizes[4], head_dim=head_dim, tied=False, source=source
    )


# name, source, vocabulary, hidden, ffn, layers, heads, key/value heads
_ALL = (
    _pythia("pythia-160m", "EleutherAI/pythia-160m", 50304, 768, 3072, 12, 12),
    _qwen("qwen2.5-0.5b", "qwen2", 151936, 896, 4864, 24, 14, 2, head_dim=64, tied=True),
    _qwen("qwen3-0.6b", "qwen3", 151936, 1024, 3072, 28, 16, 8, head_dim=128, tied=True),
    _llama(
        "deepseek-coder-1.3b",
        "deepseek-ai/deepseek-coder-1.3b-base",
        *(32256, 2048, 5504, 24, 16, 16),
    ),
    _qwen("qwen2.5-1.5b", "qwen2", 151936, 1536, 8960, 28, 12, 2, head_dim=128, tied=True),
    _llama("llama-2-7b", "meta-llama/Llama-2-7b-hf", 32000, 4096, 11008, 32, 32, 32),
    _llama(
        "deepseek-coder-6.7b",
        "deepseek-ai/deepseek-coder-6.7b-base",
        *(32256, 4096, 11008, 32, 32, 32),
    ),
    _pythia("pythia-6.9b", "EleutherAI/pythia-6.9b", 50432, 4096, 16384, 32, 32),
    _llama("llama-3.1-8b", "meta-llama/Llama-3.1-8B", 128256, 4096, 14336, 32, 32, 8),
    _qwen("qwen3-8b", "qwen3", 151936, 4096, 12288, 36, 32, 8, head_dim=128, tied=False),
    _llama("llama-2-13b", "meta-llama/Llama-2-13b-hf", 32000, 5120, 13824, 40, 40, 40),
    _qwen("qwen3-14b", "qwen3", 151936, 5120, 17408, 40, 40, 8, head_dim=128, tied=False),
    _qwen("qwen2.5-14b", "qwen2", 152064, 5120, 13824, 48, 40, 8, head_dim=128, tied=False),
    _qwen("qwen2.5-32b", "qwen2", 152064, 5120, 27648, 64, 40, 8, head_dim=128, tied=False),
    _llama(
        "deepseek-coder-33b",
        "deepseek-ai/deepseek-coder-33b-base",
        *(32256, 7168, 19200, 62, 56, 8),
    ),
)
MODELS = {shape.name: shape for shape in _ALL}

TINY = {
    shape.name: shape
    for shape in (
        ModelShape("tiny-llama", "llama", 64, 32, 48, 2, 4, 2, 8, False, "tests"),
        ModelShape("tiny-qwen2", "qwen2", 64, 32, 48, 2, 4, 2, 8, True, "tests"),
        ModelShape("tiny-qwen3", "qwen3", 64, 32, 48, 2, 4, 2, 16, True, "tests"),
        ModelShape("tiny-neox", "gpt_neox", 64, 32, 48, 2, 4, 4, 8, False, "tests"),
    )
}
