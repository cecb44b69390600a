"""Tiny models of kinds that do not heed what the recorder tells them, or only up to a length."""

import torch
import transformers as hf

# Untied: a random output layer that is the embedding repeats a token, which hides everything.
_COMMON = {
    "vocab_size": 64,
    "tie_word_embeddings": False,
    "bos_token_id": None,
    "eos_token_id": 0,
    "pad_token_id": 0,
}
_SIZES = _COMMON | {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 256,
}
_GROUPED = _SIZES | {"num_key_value_heads": 2}
_EXPERTS = _GROUPED | {"num_local_experts": 4, "num_experts_per_tok": 2}
_DECODER = _COMMON | {
    "d_model": 32,
    "decoder_layers": 2,
    "decoder_attention_heads": 4,
    "decoder_ffn_dim": 48,
    "max_position_embeddings": 256,
}
_LONG = {
    "rope_type": "longrope",
    "rope_theta": 10000.0,
    "short_factor": [1.0] * 4,
    "long_factor": [1.5, 2.5, 3.5, 4.5],
}
_NEO = _COMMON | {
    "bos_token_id": 1,
    "hidden_size": 32,
    "num_layers": 2,
    "num_heads": 4,
    "max_position_embeddings": 256,
    "attention_types": [[["global", "local"], 1]],
}

MAKERS = {
    "llama": lambda **kw: hf.LlamaConfig(**_GROUPED | kw),
    "qwen2": lambda **kw: hf.Qwen2Config(**_GROUPED | kw),
    "gpt2": lambda **kw: hf.GPT2Config(
        **_COMMON | {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 256} | kw
    ),
    "mistral": lambda **kw: hf.MistralConfig(**_GROUPED | {"sliding_window": 8} | kw),
    "mixtral": lambda **kw: hf.MixtralConfig(**_EXPERTS | {"sliding_window": 8} | kw),
    "phimoe": lambda **kw: hf.PhimoeConfig(**_EXPERTS | {"sliding_window": 8} | kw),
    "starcoder2": lambda **kw: hf.Starcoder2Config(**_GROUPED | {"sliding_window": 8} | kw),
    "qwen3_moe": lambda **kw: hf.Qwen3MoeConfig(
        **_GROUPED
        | {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16, "head_dim": 8}
        | {"use_sliding_window": True, "sliding_window": 8}
        | kw
    ),
    "ministral3": lambda **kw: hf.Ministral3Config(
        **_GROUPED | {"sliding_window": 8, "head_dim": 8} | kw
    ),
    "doge": lambda **kw: hf.DogeConfig(**_GROUPED | {"sliding_window": 8} | kw),
    "gemma2": lambda **kw: hf.Gemma2Config(**_GROUPED | {"sliding_window": 8, "head_dim": 8} | kw),
    "gemma3": lambda **kw: hf.Gemma3TextConfig(
        **_GROUPED
        | {"sliding_window": 8, "head_dim": 8}
        | {"layer_types": ["sliding_attention", "full_attention"]}
        | kw
    ),
    "phi3": lambda **kw: hf.Phi3Config(
        **_GROUPED
        | {"sliding_window": None, "rope_parameters": _LONG}
        | {"original_max_position_embeddings": 16}
        | kw
    ),
    "phi3-window": lambda **kw: hf.Phi3Config(**_GROUPED | {"sliding_window": 8} | kw),
    "mpt": lambda **kw: hf.MptConfig(
        **_COMMON | {"d_model": 32, "n_heads": 4, "n_layers": 2, "max_seq_len": 256} | kw
    ),
    "gpt_neo": lambda **kw: hf.GPTNeoConfig(**_NEO | {"window_size": 8} | kw),
    "rwkv": lambda **kw: hf.RwkvConfig(
        **_COMMON
        | {"hidden_size": 32, "attention_hidden_size": 32, "intermediate_size": 48}
        | {"num_hidden_layers": 2, "context_length": 256}
        | kw
    ),
    "bert": lambda **kw: hf.BertConfig(**_SIZES | kw),
    "roberta": lambda **kw: hf.RobertaConfig(**_SIZES | {"pad_token_id": 1} | kw),
    "roberta-decoder": lambda **kw: hf.RobertaConfig(
        **_SIZES | {"pad_token_id": 1, "is_decoder": True} | kw
    ),
    "bloom": lambda **kw: hf.BloomConfig(
        **_COMMON | {"hidden_size": 32, "n_layer": 2, "n_head": 4} | kw
    ),
    "falcon-alibi": lambda **kw: hf.FalconConfig(**_SIZES | {"alibi": True} | kw),
    "openai-gpt": lambda **kw: hf.OpenAIGPTConfig(
        vocab_size=64, n_positions=256, n_embd=32, n_layer=2, n_head=4, **kw
    ),
    "gemma3n": lambda **kw: hf.Gemma3nTextConfig(
        **_GROUPED
        | {"vocab_size_per_layer_input": 64, "hidden_size_per_layer_input": 8, "head_dim": 8}
        | {"layer_types": ["sliding_attention", "full_attention"] * 2, "sliding_window": 8}
        | {"num_hidden_layers": 4, "num_kv_shared_layers": 2, "laurel_rank": 4}
        | {"intermediate_size": [48] * 4, "activation_sparsity_pattern": [0.0] * 4}
        | kw
    ),
    "xlstm": lambda **kw: hf.xLSTMConfig(
        **_COMMON | {"hidden_size": 32, "num_heads": 4, "num_hidden_layers": 2} | kw
    ),
    "whisper": lambda **kw: hf.WhisperConfig(
        **_DECODER
        | {"encoder_layers": 2, "encoder_attention_heads": 4, "max_target_positions": 256}
        | {"begin_suppress_tokens": None, "decoder_start_token_id": 1}
        | kw
    ),
    "bart": lambda **kw: hf.BartConfig(**_DECODER | {"encoder_layers": 2} | kw),
    "moshi": lambda **kw: hf.MoshiConfig(
        **_GROUPED | {"ffn_dim": 48, "head_dim": 8, "sliding_window": 8} | kw
    ),
    "xlnet": lambda **kw: hf.XLNetConfig(
        **_COMMON | {"d_model": 32, "n_layer": 2, "n_head": 4, "d_inner": 48} | kw
    ),
}


def tiny_model(name, dtype=torch.float32, seed=0, **changed):
    """A model of random weights; `changed` replaces numbers of its configuration."""
    torch.manual_seed(seed)
    config = MAKERS[name](**changed)
    return hf.AutoModelForCausalLM.from_config(config).to(dtype).eval()
