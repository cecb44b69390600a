"""GGUF files of Llama models, for llama.cpp.

Written by the package `gguf` with the keys of architecture "llama". llama.cpp rotates neighbouring
elements of a head where Hugging Face rotates its halves, so the rows of q and k are permuted
(`convert_hf_to_gguf.py`, LlamaModel.permute). Weights are float32 unless float16 is asked for;
norms are float32 always.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from simkit.engines.base import EngineError
from simkit.engines.run.safetensors_file import ModelFolder

_OF_LAYER = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
_ALONE = {
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "lm_head": "output",
}
UNKNOWN_TEXTS = (
    "its pre-tokenizer is none that is known here: the file's /tokenize may cut texts otherwise"
)


def write_gguf(model: ModelFolder, file: Path, dtype: str) -> list[str]:
    """Write a model as GGUF.

    Args:
        model: a folder of a `LlamaForCausalLM`.
        file: to be written.
        dtype: "float32" or "float16", of the matrices.

    Returns:
        what a user should know of the file, one line each.

    Raises:
        EngineError: the package is missing, or the model is none that is written.
    """
    try:
        import gguf
    except ModuleNotFoundError:
        raise EngineError(
            "GGUF needs the package gguf: pip install 'draft-simkit[engines]'"
        ) from None
    check_llama(model)
    writer: Any = gguf.GGUFWriter(str(file), "llama")
    _describe(writer, model)
    notes = _add_tokenizer(writer, gguf, model)
    narrow = np.float16 if dtype == "float16" else np.float32
    writer.add_file_type(1 if dtype == "float16" else 0)
    tied = bool(model.config.get("tie_word_embeddings"))
    for name, values in model.tensors():
        if name == "lm_head.weight" and tied:
            continue
        values = permuted(model, name, values)
        kind = narrow if values.ndim > 1 else np.float32
        writer.add_tensor(_renamed(model, name), np.ascontiguousarray(values, kind))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return notes


def check_llama(model: ModelFolder) -> None:
    """Refuse what the files that are written here cannot say.

    Raises:
        EngineError: the architecture is another, or has biases, or scales its positions.
    """
    config, where = model.config, model.path
    kind = (config.get("architectures") or ["an unknown one"])[0]
    if kind != "LlamaForCausalLM":
        raise EngineError(f"{where}: only LlamaForCausalLM can be written as GGUF, not {kind}")
    for name in ("attention_bias", "mlp_bias"):
        if config.get(name):
            raise EngineError(f"{where}: {name} is not written as GGUF")
    rope = config.get("rope_parameters") or config.get("rope_scaling") or {}
    kind = rope.get("rope_type", rope.get("type", "default"))
    if kind != "default":
        raise EngineError(f"{where}: RoPE of type {kind} is not written as GGUF")


def _describe(writer: Any, model: ModelFolder) -> None:
    """The sizes of the model."""
    number = model.number
    n_heads = number("num_attention_heads")
    head_dim = model.head_dim
    writer.add_name(model.path.name)
    writer.add_context_length(number("max_position_embeddings"))
    writer.add_embedding_length(number("hidden_size"))
    writer.add_block_count(number("num_hidden_layers"))
    writer.add_feed_forward_length(number("intermediate_size"))
    writer.add_head_count(n_heads)
    writer.add_head_count_kv(number("num_key_value_heads", n_heads))
    writer.add_key_length(head_dim)
    writer.add_value_length(head_dim)
    writer.add_rope_dimension_count(head_dim)
    writer.add_rope_freq_base(model.rope_theta)
    writer.add_layer_norm_rms_eps(float(number("rms_norm_eps")))
    writer.add_vocab_size(model.vocab_size)


def _add_tokenizer(writer: Any, gguf: Any, model: ModelFolder) -> list[str]:
    """The vocabulary, the merges and the ends of outputs."""
    found = model.text("tokenizer.json")
    known = found.get("model", {})
    if known.get("type") != "BPE":
        kind = known.get("type", "unknown")
        raise EngineError(
            f"{model.tokenizer}: only BPE tokenizers can be written as GGUF, not {kind}"
        )
    size = model.vocab_size
    tokens = [f"[PAD{k}]" for k in range(size)]
    kinds = [int(gguf.TokenType.UNUSED)] * size
    added = {entry["id"]: entry for entry in found.get("added_tokens", [])}
    named = {**known["vocab"], **{entry["content"]: k for k, entry in added.items()}}
    for text, k in named.items():
        if k < size:
            special = k in added and added[k].get("special", False)
            tokens[k] = text
            kinds[k] = int(gguf.TokenType.CONTROL if special else gguf.TokenType.NORMAL)
    pre = pre_tokenizer(found.get("pre_tokenizer"))
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(pre or "default")
    writer.add_token_list(tokens)
    writer.add_token_types(kinds)
    merges = [m if isinstance(m, str) else " ".join(m) for m in known["merges"]]
    writer.add_token_merges(merges)
    _add_ends(writer, model)
    return [] if pre else [UNKNOWN_TEXTS]


def _add_ends(writer: Any, model: ModelFolder) -> None:
    """The token that ends outputs, and that none begins them by itself."""
    ends = model.config.get("eos_token_id")
    ends = ends if isinstance(ends, list) else [ends]
    if len(ends) > 1:
        raise EngineError(f"{model.path}: a GGUF file has one EOS token, this model {len(ends)}")
    writer.add_add_bos_token(False)
    for token, add in (
        (ends[0], writer.add_eos_token_id),
        (model.config.get("bos_token_id"), writer.add_bos_token_id),
    ):
        if token is not None:
            add(token)


def pre_tokenizer(given: dict[str, Any] | None) -> str | None:
    """llama.cpp's name for what cuts texts before the merges; None for those not known here."""
    parts = (given or {}).get("pretokenizers", [given or {}])
    kinds = [part.get("type") for part in parts]
    byte_level = parts[-1].get("use_regex") is True and not parts[-1].get("add_prefix_space")
    if kinds == ["ByteLevel"] and byte_level:
        return "gpt-2"
    if kinds == ["Digits", "ByteLevel"] and byte_level and parts[0].get("individual_digits"):
        return "smollm"
    return None


def _renamed(model: ModelFolder, name: str) -> str:
    """A tensor's name in GGUF."""
    stem, _, end = name.rpartition(".")
    if stem in _ALONE:
        return f"{_ALONE[stem]}.{end}"
    _, _, rest = stem.partition("model.layers.")
    number, _, part = rest.partition(".")
    if part not in _OF_LAYER:
        raise EngineError(f"{model.path}: a tensor that is not written as GGUF: {name}")
    return f"blk.{number}.{_OF_LAYER[part]}.{end}"


def permuted(model: ModelFolder, name: str, values: np.ndarray) -> np.ndarray:
    """Rows of q and k as llama.cpp has them: element k of both halves side by side."""
    heads = {"q_proj": "num_attention_heads", "k_proj": "num_key_value_heads"}
    part = name.split(".")[-2]
    if part not in heads:
        return values
    n = model.number(heads[part], model.number("num_attention_heads"))
    halves = values.reshape(n, 2, -1, values.shape[-1])
    return halves.swapaxes(1, 2).reshape(values.shape)
