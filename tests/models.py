"""Tiny random-weight pairs of the papers' families, correlated so that drafts are accepted."""

import copy
from dataclasses import replace

import torch
from transformers import (
    AutoModelForCausalLM,
    GPTNeoXConfig,
    LlamaConfig,
    Qwen2Config,
    Qwen3Config,
)

from traces.record.drafters.layers import Layers
from traces.record.pair import Pair
from traces.record.prompts import Prompt

EOS = 0


def _common(vocab_size, layers):
    return dict(
        vocab_size=vocab_size,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=layers,
        num_attention_heads=4,
        max_position_embeddings=256,
        initializer_range=0.25,
        bos_token_id=None,
        eos_token_id=EOS,
        pad_token_id=EOS,
    )


CONFIGS = {
    "llama": lambda v, n: LlamaConfig(**_common(v, n), num_key_value_heads=4),
    "llama-gqa": lambda v, n: LlamaConfig(**_common(v, n), num_key_value_heads=2),
    "qwen2.5": lambda v, n: Qwen2Config(**_common(v, n), num_key_value_heads=2),
    "qwen3": lambda v, n: Qwen3Config(**_common(v, n), num_key_value_heads=2, head_dim=8),
    "gpt-neox": lambda v, n: GPTNeoXConfig(**_common(v, n), rotary_pct=0.5),
}


def tiny_pair(
    family="llama", vocab_size=61, draft_vocab_size=None, dtype=torch.float64, noise=0.3, seed=0
):
    """A target of three layers; its draft is the target with noise in the weights."""
    torch.manual_seed(seed)
    config = CONFIGS[family](vocab_size, 3)
    target = AutoModelForCausalLM.from_config(config).to(dtype).eval()
    draft = copy.deepcopy(target)
    with torch.no_grad():
        for weight in draft.parameters():
            weight += noise * weight.std() * torch.randn_like(weight) if weight.ndim > 1 else 0
    if draft_vocab_size:
        draft.resize_token_embeddings(draft_vocab_size, mean_resizing=False)
    rows = min(vocab_size, draft_vocab_size or vocab_size)
    return Pair(target, draft, None, rows, (EOS,))


def tiny_prompts(n, vocab_size=61, seed=0):
    g = torch.Generator().manual_seed(seed)
    lengths = torch.randint(2, 20, (n,), generator=g).tolist()
    rows = [torch.randint(1, vocab_size, (k,), generator=g).tolist() for k in lengths]
    return [Prompt(str(i), "ab"[i % 2], None, row) for i, row in enumerate(rows)]


def with_states(target, texts, layers):
    """Texts with the target's states at some layers."""
    bias = torch.zeros(texts.mask.shape, dtype=target.dtype).masked_fill(~texts.mask, -1e30)
    with Layers(target, layers) as kept, torch.inference_mode():
        target(input_ids=texts.tokens, position_ids=texts.text_positions, attention_mask=bias)
    return replace(texts, states=kept.joined())
