"""Every command that reads a model in packed passes refuses one that they read wrongly."""

import shutil
from pathlib import Path

import pytest
import torch
from pair_folders import pair_folder, simkit
from transformers import MistralConfig, MistralForCausalLM, RwkvConfig, RwkvForCausalLM

SIZES = {"vocab_size": 40, "hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A pair and a trace of it; a model with a window of 8, and one that keeps a state."""
    root = pair_folder(tmp_path_factory.mktemp("proof"))
    torch.manual_seed(0)
    window = MistralConfig(
        **SIZES,
        num_attention_heads=2,
        num_key_value_heads=1,
        max_position_embeddings=64,
        sliding_window=8,
        eos_token_id=0,
    )
    state = RwkvConfig(
        **SIZES, attention_hidden_size=16, context_length=64, bos_token_id=1, eos_token_id=0
    )
    for name, made in (("window", MistralForCausalLM(window)), ("state", RwkvForCausalLM(state))):
        shutil.copytree(root / "target", root / name)
        made.save_pretrained(root / name)
    return root


def words(root, target, draft=None):
    given = ["--target", root / target, "--device", "cpu"]
    return [*given, "--draft", root / draft] if draft else given


def commands(root, model):
    prompts = ["--prompts", root / "prompts.jsonl", "--max-new-tokens", 24]
    live = [*prompts, "--n-prompts", 2, "--rounds", 1]
    attach = ["attach", root / "trace", *words(root, "target"), "--drafter"]
    out = ["--out", root / "new"]
    return {
        "record, draft": ["record", *words(root, "target", model), *prompts, *out],
        "record, target": ["record", *words(root, model), *prompts, *out],
        "attach": [*attach, f'model("{root / model}")'],
        "attach, tree": [*attach, f'model("{root / model}")', "--tree", "eagle2(top_k=2, depth=1)"],
        "live": ["live", *words(root, "target", model), *live, "--policy", "fixed(2)"],
        "live, tree": [
            *("live", *words(root, "target"), *live, "--drafter", f'model("{root / model}")'),
            *("--policy", "eagle2(top_k=2, depth=2)", "--policy", "eagle2(top_k=2, depth=1)"),
        ],
    }


@pytest.mark.parametrize("command", commands(Path("/"), ""))
@pytest.mark.parametrize("model", ["window", "state"])
def test_refused_by_name(folder, model, command, capsys):
    says = {"window": "mistral (MistralForCausalLM)", "state": "rwkv (RwkvForCausalLM)"}[model]
    why = {"window": "sliding_window=8", "state": "keeps a state"}[model]
    before = {f for f in folder.rglob("*") if f.is_file()}
    assert simkit(commands(folder, model)[command]) == 2
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert line.startswith(f"simkit: {says} cannot be recorded: ") and why in line
    assert before == {f for f in folder.rglob("*") if f.is_file()}


def test_passes_of_a_model_with_a_window_are_timed(folder):
    """Times need no text; a model that takes no packed passes has none of a recording's."""
    given = ["--context", "16", "--repeats", "1", "--max-draft", "2", "--out"]
    out = folder / "latency.parquet"
    assert simkit(["latency", *words(folder, "target", "window"), *given, out]) == 0
    assert simkit(["latency", *words(folder, "target", "state"), *given, folder / "no"]) == 2
