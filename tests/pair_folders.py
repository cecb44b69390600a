"""Folders of a tiny pair of models and of a trace of it, and the command run on them."""

import json
from contextlib import contextmanager

import pytest
import torch
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from simkit.cli import main
from traces.writer import TraceWriter


def model(noise=0.0):
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=40,
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        max_position_embeddings=64,
        initializer_range=0.3,
        bos_token_id=None,
        eos_token_id=0,
    )
    made = LlamaForCausalLM(config).eval()
    with torch.no_grad():
        for weight in made.parameters():
            weight += noise * weight.std() * torch.randn_like(weight) if weight.ndim > 1 else 0
    return made


def words_tokenizer(n):
    """n words by their ids: "<unk>", "w1", "w2", …"""
    words = WordLevel({"<unk>": 0, **{f"w{i}": i for i in range(1, n)}}, unk_token="<unk>")
    return PreTrainedTokenizerFast(tokenizer_object=Tokenizer(words), unk_token="<unk>")


def pair_folder(root):
    """`target`, `draft`, `other` (another draft), `prompts.jsonl` and `trace` in a folder."""
    tokenizer = words_tokenizer(40)
    for name, noise in (("target", 0.0), ("draft", 0.1), ("other", 0.2)):
        model(noise).save_pretrained(root / name)
        tokenizer.save_pretrained(root / name)
    rows = [{"prompt_tokens": [k + 1, 7, (3 * k) % 39 + 1, 5]} for k in range(12)]
    (root / "prompts.jsonl").write_text("\n".join(map(json.dumps, rows)))
    simkit(
        ["record", *pair(root), "--prompts", root / "prompts.jsonl", "--out", root / "trace"]
        + ["--max-new-tokens", 24, "--max-draft", 24]
    )
    return root


def pair(root, draft="draft"):
    return ["--target", root / "target", "--draft", root / draft, "--device", "cpu"]


def simkit(arguments):
    """Exit status of the command."""
    with pytest.raises(SystemExit) as end:
        main([str(a) for a in arguments])
    return end.value.code


@contextmanager
def after_one_shard(monkeypatch):
    """Recordings are interrupted when one shard is written."""
    write = TraceWriter.write_shard

    def once(self, index, *given, **named):
        if index:
            raise KeyboardInterrupt
        write(self, index, *given, **named)

    with monkeypatch.context() as stopped:
        stopped.setattr(TraceWriter, "write_shard", once)
        yield
