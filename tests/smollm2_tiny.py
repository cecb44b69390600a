"""A tiny random model that stands for the real one, and answers of it."""

from pathlib import Path

import numpy as np
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from traces.recipes.smollm2 import teacher

VOCAB = 300


def tiny_model(scale=8, layers=1):
    """Few layers, 160 wide; the larger the scale of its embeddings, the surer it is."""
    torch.manual_seed(0)
    sizes = {"hidden_size": 160, "intermediate_size": 64, "num_hidden_layers": layers}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2, "tie_word_embeddings": True}
    config = LlamaConfig(vocab_size=VOCAB, max_position_embeddings=64, **sizes, **heads)
    net = LlamaForCausalLM(config).eval()
    net.get_input_embeddings().weight.data.mul_(scale)
    return net


def write_answers(folder, model) -> Path:
    """Two files of answers and the likeliest tokens behind them."""
    rng = np.random.default_rng(0)
    matrix = model.get_output_embeddings().weight.detach()
    for number in range(2):
        n_text = rng.integers(8, 20, 30).astype(np.int32)
        tokens = rng.integers(VOCAB, size=n_text.sum()).astype(np.uint16)
        states = [
            model.base_model(torch.from_numpy(part.astype(np.int64))[None])
            .last_hidden_state[0]
            .detach()
            for part in np.split(tokens, n_text.cumsum()[:-1])
        ]
        arrays = {"tokens": tokens, "n_prompt": np.full(30, 4, np.int32), "n_text": n_text}
        arrays["states"] = torch.cat(states).half().numpy()
        file = folder / f"{number:03d}.npz"
        np.savez(file, **arrays)
        ids, probs = teacher.likeliest(torch.from_numpy(arrays["states"]), matrix)
        np.savez(teacher.top_of(file), ids=ids, probs=probs)
    return folder
