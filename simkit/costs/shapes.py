"""Sizes of models, and figures of devices, from which `roofline` computes times."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

BYTES = {"float64": 8, "float32": 4, "bfloat16": 2, "float16": 2}
"""Bytes of a number."""


class ModelShape(NamedTuple):
    """What a decoder-only model reads and computes in a pass.

    Attributes:
        n_parameters: weights, tied ones counted once.
        n_untied: of these, weights of an input embedding that is not the output layer too: a pass
            reads a few rows of it only.
        n_layers: decoder layers.
        n_heads: query heads of a layer.
        n_kv_heads: key and value heads of a layer.
        head_dim: width of one head.
        dtype: of weights, keys and values.
        source: repository whose config.json has these numbers.
    """

    n_parameters: int
    n_untied: int
    n_layers: int
    n_heads: int
    n_kv_heads: int
    head_dim: int
    dtype: str = "bfloat16"
    source: str = ""

    @property
    def weight_bytes(self) -> int:
        """Bytes of weights that a pass reads."""
        return (self.n_parameters - self.n_untied) * BYTES[self.dtype]

    @property
    def kv_bytes_per_token(self) -> int:
        """Bytes of keys and values of one token."""
        return 2 * self.n_layers * self.n_kv_heads * self.head_dim * BYTES[self.dtype]

    @property
    def flops_per_token(self) -> int:
        """Operations of one token outside attention: a multiplication and an addition a weight."""
        return 2 * (self.n_parameters - self.n_untied)

    @property
    def attention_flops(self) -> int:
        """Operations of one token for each token that it attends to."""
        return 4 * self.n_layers * self.n_heads * self.head_dim


class Device(NamedTuple):
    """What a vendor promises of one device.

    Attributes:
        bandwidth_bytes_per_s: of its memory.
        rate_flops_per_s: by dtype, dense (no sparsity); float32 outside the tensor cores.
        source: the vendor's document.
    """

    bandwidth_bytes_per_s: float
    rate_flops_per_s: Mapping[str, float]
    source: str


def _model(
    source: str, n: int, n_untied: int, layers: int, heads: int, kv_heads: int, width: int
) -> ModelShape:
    return ModelShape(n, n_untied, layers, heads, kv_heads, width, source=source)


# source, n_parameters, n_untied, n_layers, n_heads, n_kv_heads, head_dim
MODELS = {
    "codellama-7b": _model("codellama/CodeLlama-7b-hf", 6738546688, 131137536, 32, 32, 32, 128),
    "codellama-34b": _model("codellama/CodeLlama-34b-hf", 33743970304, 262144000, 48, 64, 8, 128),
    "codellama-70b": _model("codellama/CodeLlama-70b-hf", 68976910336, 262275072, 80, 64, 8, 128),
    "deepseek-1.3b": _model(
        "deepseek-ai/deepseek-coder-1.3b-base", 1346471936, 66060288, 24, 16, 16, 128
    ),
    "deepseek-6.7b": _model(
        "deepseek-ai/deepseek-coder-6.7b-base", 6740512768, 132120576, 32, 32, 32, 128
    ),
    "deepseek-33b": _model(
        "deepseek-ai/deepseek-coder-33b-base", 33342991360, 231211008, 62, 56, 8, 128
    ),
    "llama2-7b": _model("meta-llama/Llama-2-7b-hf", 6738415616, 131072000, 32, 32, 32, 128),
    "llama2-13b": _model("meta-llama/Llama-2-13b-hf", 13015864320, 163840000, 40, 40, 40, 128),
    "llama2-70b": _model("meta-llama/Llama-2-70b-hf", 68976648192, 262144000, 80, 64, 8, 128),
    "llama3.1-8b": _model("meta-llama/Llama-3.1-8B", 8030261248, 525336576, 32, 32, 8, 128),
    "llama3.1-70b": _model("meta-llama/Llama-3.1-70B", 70553706496, 1050673152, 80, 64, 8, 128),
    "pythia-160m": _model("EleutherAI/pythia-160m", 162322944, 38633472, 12, 12, 12, 64),
    "pythia-6.9b": _model("EleutherAI/pythia-6.9b", 6857302016, 206569472, 32, 32, 32, 128),
    "qwen2.5-0.5b": _model("Qwen/Qwen2.5-0.5B", 494032768, 0, 24, 14, 2, 64),
    "qwen2.5-1.5b": _model("Qwen/Qwen2.5-1.5B", 1543714304, 0, 28, 12, 2, 128),
    "qwen2.5-14b": _model("Qwen/Qwen2.5-14B", 14770033664, 778567680, 48, 40, 8, 128),
    "qwen2.5-32b": _model("Qwen/Qwen2.5-32B", 32763876352, 778567680, 64, 40, 8, 128),
    "qwen3-0.6b": _model("Qwen/Qwen3-0.6B", 596049920, 0, 28, 16, 8, 128),
    "qwen3-8b": _model("Qwen/Qwen3-8B", 8190735360, 622329856, 36, 32, 8, 128),
    "qwen3-14b": _model("Qwen/Qwen3-14B", 14768307200, 777912320, 40, 40, 8, 128),
    "vicuna-7b": _model("lmsys/vicuna-7b-v1.3", 6738415616, 131072000, 32, 32, 32, 128),
    "vicuna-13b": _model("lmsys/vicuna-13b-v1.3", 13015864320, 163840000, 40, 40, 40, 128),
}


def _device(bandwidth: float, half: float, single: float, source: str) -> Device:
    return Device(bandwidth, {"bfloat16": half, "float16": half, "float32": single}, source)


DEVICES = {
    "a100": _device(2.039e12, 312e12, 19.5e12, "NVIDIA A100 datasheet, SXM, 80 GB"),
    "a100-40gb": _device(1.555e12, 312e12, 19.5e12, "NVIDIA A100 datasheet, SXM, 40 GB"),
    "a800": _device(2.039e12, 312e12, 19.5e12, "NVIDIA A800 datasheet, SXM, 80 GB"),
    "h100": _device(3.35e12, 989e12, 67e12, "NVIDIA H100 datasheet, SXM, 80 GB"),
    "h200": _device(4.8e12, 989e12, 67e12, "NVIDIA H200 datasheet, SXM, 141 GB"),
    "l20": _device(0.864e12, 119.5e12, 59.8e12, "NVIDIA L20 datasheet, 48 GB"),
}
