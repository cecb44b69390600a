"""What the reference pair is: where it lies, its tokens and prompts.

Libraries that models need are imported where one is asked for.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tokenizers import Tokenizer

_HOME = Path(__file__).parents[2] / "reference"
MODELS = _HOME / "models"
PROMPTS = _HOME / "prompts.jsonl"
VOCAB_SIZE = 4096
CONTEXT = 1024
EOS = "<|endoftext|>"
PAD = "<|pad|>"
EOS_ID, PAD_ID = 0, 1


def load_target() -> Any:
    """The target in float32, in eval mode."""
    import torch
    from transformers import LlamaForCausalLM

    loaded: Any = LlamaForCausalLM.from_pretrained(MODELS / "target", dtype=torch.float32)
    return loaded.eval()


def load_tokenizer() -> Tokenizer:
    """The tokenizer of both models."""
    from tokenizers import Tokenizer

    return Tokenizer.from_file(str(MODELS / "target" / "tokenizer.json"))


def load_prompts() -> list[dict[str, Any]]:
    """The prompts that ship with the pair, in the file's order."""
    return [json.loads(line) for line in PROMPTS.read_text(encoding="utf-8").splitlines()]
