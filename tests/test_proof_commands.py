"""Every command that reads a model in packed passes refuses one that they read wrongly."""

import json
import shutil
from pathlib import Path

import pytest
import torch
from commands import refused, run
from pair_folders import pair_folder, simkit
from transformers import (
    GPTNeoConfig,
    GPTNeoForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    RwkvConfig,
    RwkvForCausalLM,
)

from simkit import replay
from simkit.live.tree_arms import load_network
from traces import load
from traces.errors import RecordError
from traces.record import forward
from traces.record.pair import load_pair, load_target
from traces.record.rolled import Rolled

SIZES = {"vocab_size": 40, "hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A pair and a trace of it, and what is refused: models with a window of 8, with a state, and
    with a window of 40 slots of the cache, which no text of 28 tokens fills, but branches do.
    """
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
    slots = GPTNeoConfig(
        vocab_size=40,
        hidden_size=16,
        num_layers=2,
        num_heads=2,
        max_position_embeddings=64,
        attention_types=[[["global", "local"], 1]],
        window_size=40,
        bos_token_id=1,
        eos_token_id=0,
    )
    models = MistralForCausalLM(window), RwkvForCausalLM(state), GPTNeoForCausalLM(slots)
    for name, model in zip(("window", "state", "slots"), models, strict=True):
        shutil.copytree(root / "target", root / name)
        model.save_pretrained(root / name)
    shutil.copytree(root / "target", root / "small state")
    RwkvForCausalLM(state).save_pretrained(root / "small state")
    return root


def words(root, target, draft=None):
    given = ["--target", root / target, "--device", "cpu"]
    return [*given, "--draft", root / draft] if draft else given


def commands(root, model):
    prompts = ["--prompts", root / "prompts.jsonl", "--max-new-tokens", 24]
    live = [*prompts, "--n-prompts", 2, "--rounds", 1]
    attach = ["attach", root / "trace", *words(root, "target"), "--drafter"]
    out = ["--out", root / "new"]
    serving = ["live", *live, "--controller", "static(2)", "--concurrency", 2]
    trees = ["--policy", "eagle2(top_k=2, depth=2)", "--policy", "eagle2(top_k=2, depth=1)"]
    return {
        "record, draft": ["record", *words(root, "target", model), *prompts, *out],
        "record, pair's target": ["record", *words(root, model, "draft"), *prompts, *out],
        "record, target": ["record", *words(root, model), *prompts, *out],
        "attach": [*attach, f'model("{root / model}")'],
        "attach, tree": [*attach, f'model("{root / model}")', "--tree", "eagle2(top_k=2, depth=1)"],
        "live": ["live", *words(root, "target", model), *live, "--policy", "fixed(2)"],
        "live, target": ["live", *words(root, model, "draft"), *live, "--policy", "fixed(2)"],
        "live, serving": [*serving, *words(root, "target", model)],
        "live, tree": ["live", *words(root, "target", model), *live, *trees],
        "live, tree, target": ["live", *words(root, model, "draft"), *live, *trees],
    }


@pytest.fixture(autouse=True)
def blind(monkeypatch):
    """Windows are not heeded, as by a reader that gives all layers one mask."""
    monkeypatch.setattr(forward, "reaches", lambda config: {})


REFUSED = {
    "window": ("mistral (MistralForCausalLM)", "sliding_window=8"),
    "state": ("rwkv (RwkvForCausalLM)", "keeps a state"),
    "slots": ("gpt_neo (GPTNeoForCausalLM)", "window_size=40"),
}
EVERY = tuple(commands(Path("/"), ""))
OWN = (
    "record, draft",
    "record, pair's target",
    "attach",
)  # which may read a model in its own passes
REFUSING = [name for name in EVERY if name not in (*OWN, "record, target")]
BRANCHING = [name for name in EVERY if "tree" in name]


@pytest.mark.parametrize(
    ("model", "command"),
    [
        *((model, command) for model in ("window", "state") for command in REFUSING),
        *(("slots", command) for command in BRANCHING),
    ],
)
def test_refused_by_name(folder, model, command, capsys):
    says, why = REFUSED[model]
    before = {f for f in folder.rglob("*") if f.is_file()}
    assert simkit(commands(folder, model)[command]) == 2
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert line.startswith(f"simkit: {says} cannot be recorded: ") and why in line
    assert before == {f for f in folder.rglob("*") if f.is_file()}


@pytest.mark.filterwarnings("ignore:the target takes no masks")
@pytest.mark.parametrize("model", ["window", "state"])
def test_a_target_alone_is_recorded_in_its_own_passes(folder, tmp_path, model, capsys):
    """And a draft model attached to it, in rows; a tree asks it for more."""
    trace, target = tmp_path / "trace", ["--target", folder / model, "--device", "cpu"]
    prompts = ["--prompts", folder / "prompts.jsonl", "--max-new-tokens", 24]
    assert run(capsys, "record", *target, *prompts, "--out", trace)[0] == 0
    attach = ["attach", trace, *target, "--drafter", f'model("{folder / "draft"}")']
    assert "cannot be recorded" in refused(
        capsys, *attach, "--tree", "eagle2(top_k=2, depth=1)", "--name", "tree"
    )
    assert run(capsys, *attach)[0] == 0
    assert run(capsys, "validate", trace)[0] == 0
    assert len(replay(load(trace, "model"), ["fixed(3)"]).frame) == 1


@pytest.mark.filterwarnings("default:the (target|draft) takes no masks")
@pytest.mark.parametrize("model", REFUSED)
@pytest.mark.parametrize("command", OWN)
def test_recorded_token_by_token(folder, tmp_path, model, command, capsys):
    """And said in one line at the start; live decoders refuse the same pairs (above)."""
    out = tmp_path / "new"
    if command == "attach":
        shutil.copytree(folder / "trace", out)
    swap = {folder / "new": out, folder / "trace": out}
    given = [swap.get(word, word) for word in commands(folder, model)[command]]
    status, _, err = run(capsys, *given)
    assert status == 0, err
    who = "target" if "target" in command else "draft"
    (said,) = [line for line in err.splitlines() if "takes no masks" in line]
    assert f"the {who} takes no masks" in said and "slower" in said
    assert run(capsys, "validate", out)[0] == 0
    found = replay(load(out, "model" if command == "attach" else None), ["fixed(3)"]).frame
    assert 0 <= found["accepted"].item() <= found["drafted"].item() > 0


@pytest.mark.filterwarnings("ignore:the (target|draft) takes no masks")
@pytest.mark.parametrize("what", ["pair", "outputs", "attach"])
def test_stopped_and_resumed_to_the_same_bytes(folder, tmp_path, what, capsys, monkeypatch):
    pairs = {"pair": ("state", "state"), "outputs": ("target", "state")}
    target = folder / pairs.get(what, ("state",))[0]
    source = ["--prompts", folder / "prompts.jsonl", "--max-new-tokens", 24, "--batch-size", 4]
    alone, sampled = ["--target", target, "--device", "cpu"], ["--temperature", 1]
    if what != "pair":
        known = ["record", *alone, *source, *sampled, "--out", tmp_path / "known"]
        assert run(capsys, *known)[0] == 0
    if what == "outputs":
        rows = load(tmp_path / "known").sequences.select(["id", "prompt_tokens", "output_tokens"])
        lines = "\n".join(map(json.dumps, rows.to_pylist()))
        (tmp_path / "outputs.jsonl").write_text(lines)
        source = ["--outputs", tmp_path / "outputs.jsonl", "--batch-size", 4]
    for name, stops in (("whole", 0), ("part", 1)):
        out = tmp_path / name
        if what == "attach":
            shutil.copytree(tmp_path / "known", out)
            given = ["attach", out, *alone, "--drafter", f'model("{folder / "small state"}")']
        else:
            given = ["record", *alone, "--draft", folder / "small state", *source, *sampled]
            given += ["--out", out]
        if stops:
            monkeypatch.setattr(Rolled, "feed", stopping(Rolled.feed, 2))
            assert simkit(given) == 130
            monkeypatch.undo()
            given.append("--resume")
        assert run(capsys, *given)[0] == 0
    whole, part = (files_of(tmp_path / name) for name in ("whole", "part"))
    assert whole == part and any("branches" in name for name in whole)


def stopping(real, after):
    """A function that is interrupted when it has been called so often."""
    left = [after]

    def feed(*given):
        left[0] -= 1
        if left[0] < 0:
            raise KeyboardInterrupt
        return real(*given)

    return feed


def files_of(root):
    return {str(f.relative_to(root)): f.read_bytes() for f in root.rglob("*.*") if f.is_file()}


@pytest.mark.filterwarnings("ignore:the (target|draft) takes no masks")
def test_what_is_read_in_packed_passes_alone_is_refused(folder, tmp_path, capsys):
    out = ["--prompts", folder / "prompts.jsonl", "--max-new-tokens", 8, "--out", tmp_path / "new"]
    for option, message in (
        (["--hidden"], "hidden states are read in packed passes, which rwkv"),
        (["--mix", 0.5], "mixed contexts are read in packed passes, which rwkv"),
    ):
        line = refused(capsys, "record", *words(folder, "target", "state"), *out, *option)
        assert message in line
    given = ["record", *words(folder, "state", "draft"), *out, "--branch-target"]
    assert "the target's view of branches" in refused(capsys, *given)
    shutil.copytree(folder / "trace", tmp_path / "trace")
    drafter = f'model("{folder / "state"}", hidden=true)'
    attach = ["attach", tmp_path / "trace", *words(folder, "target"), "--drafter", drafter]
    assert "hidden states are read in packed passes" in refused(capsys, *attach)
    assert not (tmp_path / "new").exists() and not (tmp_path / "trace" / "drafters").exists()


@pytest.mark.filterwarnings("default:the target takes no masks")
def test_own_passes_are_said(folder, tmp_path, capsys):
    target = ["--target", folder / "state", "--prompts", folder / "prompts.jsonl"]
    given = ["record", *target, "--max-new-tokens", 4, "--out", tmp_path / "new"]
    assert "one text at a time, by its own generate" in run(capsys, *given)[2]


def test_models_are_proved_as_they_are_loaded(folder):
    """Whatever they are loaded for: some commands read no text of a known length."""
    state, target, draft = (str(folder / name) for name in ("state", "target", "draft"))
    loads = (
        lambda: load_target(state, "cpu"),
        lambda: load_pair(state, draft, "cpu"),
        lambda: load_pair(target, state, "cpu"),
        lambda: load_network(f'model("{state}")', load_target(target, "cpu"), "float32"),
    )
    for one in loads:
        with pytest.raises(RecordError, match="keeps a state"):
            one()


def test_passes_of_a_model_with_a_window_are_timed(folder):
    """Times need no text; a model that takes no packed passes has none of a recording's."""
    given = ["--context", "16", "--repeats", "1", "--max-draft", "2", "--out"]
    out = folder / "latency.parquet"
    assert simkit(["latency", *words(folder, "target", "window"), *given, out]) == 0
    assert simkit(["latency", *words(folder, "target", "state"), *given, folder / "no"]) == 2
