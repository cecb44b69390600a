"""Tiny models of random weights, of every class of causal LM that transformers maps.

A configuration's numbers are made small by their names; its windows are 8 tokens and the lengths
that rotary embeddings were made for 16, so that texts of some dozen tokens go past them. Output
layers are not tied to embeddings: tied random ones repeat a token, which hides every difference.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Mapping
from typing import Any

import torch
from torch import nn
from transformers import CONFIG_MAPPING, AutoModelForCausalLM, PreTrainedModel
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

MAPPED = dict(MODEL_FOR_CAUSAL_LM_MAPPING_NAMES)  # class names by model type
VOCAB = 64
EOS = 0
WINDOW = 8
ORIGINAL = 16
CONTEXT = 256
WIDE = 128  # a window that no text reaches
_MOST_PARAMETERS = 20_000_000

# What a number becomes, by its name; the first pattern that fits counts.
_TINY: tuple[tuple[str, int], ...] = (
    (r"^(pad|eos|eod|forced_eos|sep)_token_id$", EOS),
    (r"num_kv_shared_layers", 0),
    (r"original_max_position_embeddings", ORIGINAL),
    (r"max_position_embeddings|n_positions|n_ctx|max_seq_len|max_target_positions", CONTEXT),
    (r"context_length|max_source_positions|model_max_length|num_position_embeddings", CONTEXT),
    (r"sliding_window(_size)?$|window_size$|attention_chunk_size|local_attention", WINDOW),
    (r"relative_attention_max_distance|index_topk$|rel_extent|index_block_size", WINDOW),
    (r"vocab_size(_per_layer_input)?$|decoder_vocab_size", VOCAB),
    (r"(kv|q|o)_lora_rank|qk_nope_head_dim|v_head_dim|qk_rope_head_dim|index_head_dim", 8),
    (r"qk_head_dim", 16),
    (r"^(swa_|global_)?head_dim$|d_kv|d_head|kv_channels|linear_(key_|value_)?head_dim", 8),
    (r"attention_head_(size|dim)|mamba_(d_head|head_dim|headdim)|linear_head_dim", 8),
    (r"num_key_value_heads|num_kv_heads|kv_n_heads|num_query_groups|linear_num_key_heads", 2),
    (r"mamba_n_groups|mamba_ngroups|^n_groups$|n_group$|topk_group|num_expert_group", 1),
    (r"heads$|^n_head$", 4),
    (r"num_experts_per_tok(en)?|moe_topk|moe_top_k|moe_k$|experts_top_k|top_k_experts", 2),
    (r"n_shared_experts|num_shared_experts", 1),
    (r"n_routed_experts|num_(local_)?experts$|zero_expert_num", 4),
    (
        r"intermediate_size|ffn_dim|ffn_hidden_size|dim_ff$|^dff$|^d_ff|d_inner|^feed_forward_size",
        48,
    ),
    (r"hidden_size(_per_layer_input|_global)?$|d_model|n_embd|^emb_dim$|input_size", 32),
    (r"embedding_dim$|embedding_size$|word_embed_proj_dim|lru_width|embed_dim$", 32),
    (r"layers$|^n_layer$|num_blocks|depth$", 2),
    (r"mamba_d_state|state_size|mamba_dt_rank|time_step_rank", 4),
    (r"chunk_size$|block_size$", WINDOW),
    (r"rotary_dim|laurel_rank|gated_norm_rank|adapter_rank", 4),
    (r"first_k_dense_replace|num_dense_layers|num_nextn_predict_layers|num_mtp", 0),
)
_LAYERS = ("num_hidden_layers", "n_layer", "n_layers", "num_layers", "num_blocks")


def tiny_config(model_type: str, **changed: Any) -> Any:
    """A small configuration of a type; `changed` replaces some of its numbers."""
    kind = CONFIG_MAPPING[model_type]
    own = _OWN.get(model_type, {}) | changed
    return kind(**_shrunk(kind().to_dict(), own))


def tiny_model(config: Any, dtype: torch.dtype, seed: int = 0) -> PreTrainedModel:
    """A model whose weights are drawn so wide that tokens depend on what was read.

    Raises:
        ValueError: it is not small.
    """
    with torch.device("meta"):
        skeleton = AutoModelForCausalLM.from_config(copy.deepcopy(config))
    size = sum(weight.numel() for weight in skeleton.parameters())
    if size > _MOST_PARAMETERS:
        raise ValueError(f"it has {size / 1e6:,.0f} million parameters")
    torch.manual_seed(seed)
    model = AutoModelForCausalLM.from_config(copy.deepcopy(config)).to(dtype).eval()
    if hasattr(model, "set_experts_implementation"):
        model.set_experts_implementation("eager")  # the other one has no float64
    with torch.no_grad():
        for module in model.modules():
            weight = getattr(module, "weight", None)
            if isinstance(module, nn.Linear | nn.Embedding) or type(module).__name__ == "Conv1D":
                weight.normal_(0, 0.25)  # pyright: ignore
    return model


def noisy(model: PreTrainedModel, noise: float = 0.1) -> PreTrainedModel:
    """A draft of a model: itself with noise in its weights."""
    draft = copy.deepcopy(model)
    torch.manual_seed(1)
    with torch.no_grad():
        for weight in draft.parameters():
            if weight.ndim > 1 and weight.is_floating_point():
                weight += noise * weight.std() * torch.randn_like(weight)
    return draft


def _shrunk(given: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
    """A configuration's values, made small."""
    found: dict[str, Any] = {}
    n_layers = next((given[name] for name in _LAYERS if name in given), None)
    for name, value in given.items():
        if name in ("transformers_version", "architectures", "model_type", "id2label", "label2id"):
            continue
        if isinstance(value, dict) and "model_type" in value:
            inner = {k: v for k, v in own.items() if k in value}
            found[name] = _shrunk(value, inner) | {"model_type": value["model_type"]}
        elif value is None:
            found[name] = _NONE.get(name)
        elif isinstance(value, list) and len(value) == n_layers and isinstance(value[0], int):
            found[name] = [x if isinstance(x, bool) else _small(name, x) for x in value]
        elif isinstance(value, bool) or not isinstance(value, int):
            found[name] = value
        else:
            found[name] = _small(name, value)
    for name, value in (
        ("tie_word_embeddings", False),
        ("bos_token_id", 1),
        ("use_sliding_window", True),
        ("max_window_layers", 0),
    ):
        if name in found:
            found[name] = value
    if "kv_lora_rank" in found:  # one key and value for each head, out of one projection
        found["num_key_value_heads"] = found.get("num_attention_heads")
    _fit_layers(found, n_layers)
    return found | dict(own)


def _small(name: str, value: int) -> int:
    for pattern, tiny in _TINY:
        if re.search(pattern, name):
            return tiny
    if name.endswith(("_token_id", "_token_index", "_index")) and value >= VOCAB:
        return VOCAB - 1
    return value


def _fit_layers(found: dict[str, Any], n_layers: int | None) -> None:
    """As few layers as have one of each kind, two at least; lists of layers are cut to them."""
    lists = [k for k, v in found.items() if isinstance(v, list) and v and len(v) == n_layers]
    n = 2
    for name in lists:
        kinds = found[name]
        if isinstance(kinds[0], str):
            n = max(n, *(kinds.index(kind) + 1 for kind in set(kinds)))
    n = min(n, 12)
    for name in lists:
        found[name] = found[name][:n]
    for name, value in found.items():
        if name == "per_layer_config" and value:
            found[name] = {k: v for k, v in value.items() if int(k) < n}
    for name in _LAYERS:
        if name in found:
            found[name] = n


_NONE = {
    "sliding_window": WINDOW,
    "head_dim": 8,
    "num_key_value_heads": 2,
    "n_shared_experts": 1,
    "n_routed_experts": 4,
    "num_experts_per_tok": 2,
}
_OWN: dict[str, dict[str, Any]] = {
    "bamba": {"mamba_n_heads": 8, "attn_layer_indices": [1]},
    "granitemoehybrid": {
        "mamba_n_heads": 8,
        "layer_types": ["linear_attention", "full_attention"],
    },
    "jamba": {"attn_layer_period": 2, "attn_layer_offset": 1},
    "recurrent_gemma": {"block_types": ["recurrent", "attention"]},
    "falcon_h1": {"mamba_n_heads": 8, "mamba_d_ssm": 64},
    "mamba2": {"num_heads": 8},
    "nemotron_h": {"mamba_num_heads": 8},
    "blt": {"encoder_hash_byte_group_vocab": VOCAB},
    "cohere_compass_text": {
        "rope_parameters": {
            k: {"rope_type": "default", "rope_theta": 1e4}
            for k in ("full_attention", "sliding_attention")
        }
    },
    "gpt_neo": {
        "attention_types": [[["global", "local"], 1]],
        "attention_layers": ["global", "local"],
    },
    "dots3_note": {"swa_head_dim": 16},
    "dots3_note_text": {"swa_head_dim": 16},
    "gemma3n_text": {
        "num_hidden_layers": 6,
        "num_kv_shared_layers": 1,
        "layer_types": ["sliding_attention", "full_attention"] * 3,
        "intermediate_size": [48] * 6,
        "activation_sparsity_pattern": [0.5] * 6,
    },
    "lfm2": {"layer_types": ["conv", "full_attention"]},
    "lfm2_moe": {"layer_types": ["conv", "full_attention"]},
    "phi3": {
        "rope_parameters": {
            "rope_type": "longrope",
            "rope_theta": 1e4,
            "short_factor": [1.0] * 4,
            "long_factor": [1.5, 2.5, 3.5, 4.5],
        }
    },
    "reformer": {"is_decoder": True, "axial_pos_embds": False, "attn_layers": ["local", "lsh"]},
    "xmod": {"default_language": "en_XX"},
    "zamba": {"attention_head_dim": 16, "attention_hidden_size": 64},
    "zamba2": {
        "attention_head_dim": 16,
        "attention_hidden_size": 64,
        "n_mamba_heads": 8,
        "hybrid_layer_ids": [6],
    },
    "zaya": {"num_experts_per_tok": 1},
}
