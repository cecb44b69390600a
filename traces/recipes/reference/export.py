"""Turns trained weights into the Hugging Face folders that ship, below ``models``.

``python -m traces.recipes.reference.export --weights DIR`` reads ``target.safetensors``,
``draft.safetensors`` and ``training.json`` as ``traces.recipes.reference.train`` wrote them.
"""

from __future__ import annotations

import argparse
import json
import shutil
from pathlib import Path
from typing import Any

from traces.outputs import write_atomic
from traces.recipes.reference.net import NORM_EPS, ROPE_THETA, SHAPES, Shape
from traces.recipes.reference.pair import CONTEXT, EOS_ID, MODELS, PAD_ID, VOCAB_SIZE


def config(shape: Shape) -> dict[str, Any]:
    """``config.json`` of a model."""
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "dtype": "bfloat16",
        "vocab_size": VOCAB_SIZE,
        "hidden_size": shape.hidden,
        "intermediate_size": shape.ffn,
        "num_hidden_layers": shape.layers,
        "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.heads,
        "head_dim": shape.hidden // shape.heads,
        "hidden_act": "silu",
        "max_position_embeddings": CONTEXT,
        "rms_norm_eps": NORM_EPS,
        "rope_theta": ROPE_THETA,
        "rope_parameters": {"rope_type": "default", "rope_theta": ROPE_THETA},
        "attention_bias": False,
        "mlp_bias": False,
        "tie_word_embeddings": True,
        "use_cache": True,
        "bos_token_id": None,
        "eos_token_id": EOS_ID,
        "pad_token_id": PAD_ID,
    }


def export(weights: Path, shape: Shape, folder: Path) -> None:
    """Write a model's folder from its safetensors, all but the tokenizer's files."""
    ids = {"bos_token_id": None, "eos_token_id": EOS_ID, "pad_token_id": PAD_ID}
    files = {"config.json": config(shape), "generation_config.json": {**ids, "do_sample": False}}
    for name, values in files.items():
        write_atomic(folder / name, (json.dumps(values, indent=2) + "\n").encode())
    write_atomic(folder / "model.safetensors", weights.read_bytes())


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--weights", type=Path, required=True)
    args = parser.parse_args()
    for name, shape in SHAPES.items():
        export(args.weights / f"{name}.safetensors", shape, MODELS / name)
    shutil.copyfile(args.weights / "training.json", MODELS / "training.json")


if __name__ == "__main__":
    main()
