"""A DFlash assistant attached to a recording: a decoder that is handed y, and `generate` itself."""

import json

import numpy as np
import pytest
import torch
import transformers
from commands import refused
from models import tiny_pair, with_states
from pair_folders import simkit, words_tokenizer
from test_attach import check
from test_block_drafter import BLOCK, assistant

import simkit as toolkit
from traces import load
from traces.record.drafters import dflash
from traces.record.drafters.texts import make_texts

pytestmark = pytest.mark.skipif(
    not hasattr(transformers, "MuseGlimmerAssistantModel"), reason="an older transformers"
)
V, T_MAX = 6, 14


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    folder = tmp_path_factory.mktemp("block")
    tokenizer = words_tokenizer(V)
    target = tiny_pair(vocab_size=V).target
    with torch.no_grad():  # two ids share most of the mass, so that random weights often agree
        output = target.get_output_embeddings().weight
        output[3] *= 3
        output[2] = -output[3]
    target.save_pretrained(folder / "target")
    tokenizer.save_pretrained(folder / "target")
    assistant().save_pretrained(folder / "assistant")
    rows = [{"prompt_tokens": [k % 5 + 1, 2, 3 * k % 5 + 1, 4][: k % 3 + 2]} for k in range(16)]
    (folder / "prompts.jsonl").write_text("\n".join(map(json.dumps, rows)))
    for name, options in (("greedy", []), ("sampled", ["--temperature", 0.7])):
        given = ["--target", folder / "target", "--device", "cpu", "--dtype", "float64"]
        given += ["--prompts", folder / "prompts.jsonl", "--out", folder / name]
        limits = ["--batch-size", 6, "--max-new-tokens", T_MAX]
        assert simkit(["record", *given, *limits, *options]) == 0
        assert attach(folder, name) == 0
    return folder


def attach(folder, trace, *options):
    spec = f'block("{folder / "assistant"}")'
    given = ["--target", folder / "target", "--device", "cpu", *options]
    return simkit(["attach", folder / trace, "--drafter", spec, *given])


def target_of(root):
    kind = transformers.AutoModelForCausalLM
    return kind.from_pretrained(root / "target", dtype=torch.float64).eval()


@pytest.mark.parametrize("trace", ["greedy", "sampled"])
def test_it_replays_as_it_decodes(root, trace):
    target = target_of(root)
    drafter = dflash.load(root / "assistant", target, dtype="float64")

    def propose(known, tokens):
        if len(tokens) >= drafter.block:
            return None
        texts = with_states(target, make_texts([known], [[0]]), drafter.layers)
        (drafts,) = drafter.draft(texts)
        return drafts.logits[:, len(tokens)]

    found = load(root / trace, "block")
    assert found.max_draft == BLOCK - 1 and found.manifest.draft_passes == "block"
    check(found, target, propose, ("fixed(3)", "svip(h=0.9, max_draft=4)"), True)
    assert simkit(["validate", root / trace]) == 0


def test_generate_takes_the_same_steps(root, monkeypatch):
    """Where each of transformers' steps begins, over whole texts: so equal accepted counts."""
    target = target_of(root)
    model = transformers.AutoModel.from_pretrained(root / "assistant", dtype=torch.float64).eval()
    model.generation_config = transformers.GenerationConfig(speculation_type="dflash")
    kind = transformers.generation.candidate_generator.DFlashTokenCandidateGenerator
    plain, begun = kind.get_candidates, []

    def kept(self, input_ids, is_first_iteration, **options):
        if not is_first_iteration:
            begun.append(input_ids.shape[1])
        return plain(self, input_ids, is_first_iteration=is_first_iteration, **options)

    monkeypatch.setattr(kind, "get_candidates", kept)
    found = load(root / "greedy", "block")
    replay = toolkit.replay(found, f"fixed({BLOCK - 1})", first_token="prefill", by="step").frame
    accepted = 0
    for row in found.sequences.to_pylist():
        begun.clear()
        prompt = row["prompt_tokens"]
        output = target.generate(
            torch.tensor([prompt]),
            attention_mask=torch.ones(1, len(prompt), dtype=torch.long),
            assistant_model=model,
            speculation_type="dflash",
            max_new_tokens=T_MAX,
            do_sample=False,
        )[0, len(prompt) :].tolist()
        assert output == row["output_tokens"]
        mine = replay.filter(replay["sequence"] == row["sequence"])
        assert [known - len(prompt) + 1 for known in begun] == mine["start"].to_list()
        accepted += mine["accepted"].sum()
    assert accepted > 10


def test_a_shorter_verification_pays_the_whole_block(root):
    found = load(root / "greedy", "block")
    cost = "linear(draft_s=1, draft_per_token_s=0.5, target_s=4)"
    steps = toolkit.replay(found, "fixed(2)", cost, by="step").frame
    drafts = steps.filter(steps["drafted"] > 0)
    assert set(drafts["draft_passes"].to_list()) == {1}
    emitted = np.array(drafts["draft_s"].to_list()) / 0.5 - 2 - (BLOCK - 1)
    assert emitted.min() == 1  # tokens that were kept since the last draft


def test_bad_input(root, tmp_path, capsys):
    (tmp_path / "target").symlink_to(root / "target")
    (tmp_path / "greedy").symlink_to(root / "greedy")
    assistant(mask_token_id=V).save_pretrained(tmp_path / "assistant")
    assert attach(tmp_path, "greedy", "--name", "bad") == 2
    said = capsys.readouterr().err
    assert f"mask_token_id {V} is outside the target's vocabulary of {V}" in said
    assert "bad" not in load(root / "greedy").drafters
    given = ["latency", "--target", root / "target", "--drafter", "block", "--device", "cpu"]
    assert "are not timed: give a cost" in refused(capsys, *given, "--out", root / "greedy")
