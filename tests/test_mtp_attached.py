"""A target's MTP layers attached to a recording: a decoder that is handed y, and `generate`."""

import filecmp
import json
import shutil
from typing import Any

import pytest
import torch
import transformers
from commands import refused
from pair_folders import simkit, words_tokenizer
from safetensors.torch import load_file, save_file
from test_attach import check
from test_mtp_drafter import (
    LAYERS,
    MTP_LAYERS,
    V,
    load_target,
    proposer,
    pytestmark,
    tiny_checkpoints,
    write_target,
)

import simkit as toolkit
from traces import load
from traces.attach import registry, run
from traces.attach.drafter import Means

__all__ = ["pytestmark", "tiny_checkpoints"]  # both hold for this module, too
T_MAX = 14
FAMILIES = ("deepseek", "mellum")  # of three layers, and of one
TRACES = {"greedy": ("float32", []), "sampled": ("float64", ["--temperature", 0.7])}


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    folder = tmp_path_factory.mktemp("mtp")
    tokenizer = words_tokenizer(V)
    rows = [{"prompt_tokens": [k % 12 + 1, 2, 3 * k % 12 + 1, 4][: k % 4 + 1]} for k in range(16)]
    (folder / "prompts.jsonl").write_text("\n".join(map(json.dumps, rows)))
    for family in FAMILIES:
        place = folder / family
        tokenizer.save_pretrained(write_target(place / "target", family))
        for name, (dtype, options) in TRACES.items():
            given = ["--target", place / "target", "--device", "cpu", "--dtype", dtype]
            given += ["--prompts", folder / "prompts.jsonl", "--out", place / name]
            limits = ["--batch-size", 6, "--max-new-tokens", T_MAX]
            assert simkit(["record", *given, *limits, *options]) == 0
            assert attach(place, name) == 0
    return folder


def attach(folder, trace, *options, spec="mtp()", target="target"):
    given = ["--target", folder / target, "--device", "cpu", *options]
    return simkit(["attach", folder / trace, "--drafter", spec, *given])


@pytest.mark.parametrize("trace", TRACES)
@pytest.mark.parametrize("family", FAMILIES)
def test_it_replays_as_it_decodes(root, family, trace):
    target = load_target(root / family / "target", TRACES[trace][0])
    found = load(root / family / trace, "mtp")
    depth = MTP_LAYERS[family]
    assert found.max_draft == depth and found.manifest.draft_passes == "chain"
    specs = (f"fixed({depth})", f"svip(h=0.9, max_draft={depth})")
    check(found, target, proposer(target), specs, by_start=True)
    assert simkit(["validate", root / family / trace]) == 0


@pytest.mark.parametrize("family", FAMILIES)
def test_generate_takes_the_same_steps(root, family, monkeypatch):
    """Where each of transformers' steps begins, over whole texts: so equal accepted counts.

    Its generator cannot draft behind prompts of fewer tokens than there are MTP layers.
    """
    generate: Any = load_target(root / family / "target", "float32").generate
    kind = transformers.generation.candidate_generator.MTPCandidateGenerator
    plain, begun = kind.get_candidates, []

    def kept(self, input_ids, is_first_iteration, **options):
        if not is_first_iteration:
            begun.append(input_ids.shape[1])
        return plain(self, input_ids, is_first_iteration=is_first_iteration, **options)

    monkeypatch.setattr(kind, "get_candidates", kept)
    depth = MTP_LAYERS[family]
    found = load(root / family / "greedy", "mtp")
    replay = toolkit.replay(found, f"fixed({depth})", first_token="prefill", by="step").frame
    accepted = compared = 0
    for row in found.sequences.to_pylist():
        prompt = row["prompt_tokens"]
        if len(prompt) < depth:
            continue
        begun.clear()
        output = generate(
            torch.tensor([prompt]),
            attention_mask=torch.ones(1, len(prompt), dtype=torch.long),
            use_mtp=True,
            max_new_tokens=T_MAX,
            do_sample=False,
        )[0, len(prompt) :].tolist()
        assert output == row["output_tokens"]
        mine = replay.filter(replay["sequence"] == row["sequence"])
        assert [known - len(prompt) + 1 for known in begun] == mine["start"].to_list()
        accepted += sum(mine["accepted"].to_list())
        compared += 1
    assert accepted > 10 and compared == (8 if depth == 3 else 16)


def test_a_shorter_chain_is_the_beginning_of_the_whole(root):
    place = root / "deepseek"
    assert attach(place, "greedy", "--name", "two", spec="mtp(length=2)") == 0
    found, two = load(place / "greedy", "mtp"), load(place / "greedy", "two")
    assert two.max_draft == 2 and two.manifest.spec == "mtp(length=2)"
    shallow = found.lattice("depth") <= 2
    assert found.lattice("draft_token")[shallow].tolist() == two.lattice("draft_token").tolist()
    cost = "linear(draft_s=1, target_s=4)"
    steps = toolkit.replay(found, "fixed(3)", cost, by="step").frame
    assert steps["draft_passes"].to_list() == steps["drafted"].to_list()


def test_a_run_that_was_stopped_goes_on(root, tmp_path):
    """Whole shards are kept; in the end the bytes are those of a run that was not stopped."""
    place = root / "mellum"
    ignored = shutil.ignore_patterns("drafters")
    shutil.copytree(place / "greedy", tmp_path / "greedy", ignore=ignored)
    means = Means(str(place / "target"), "cpu")

    def stop(done):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run.attach(load(tmp_path / "greedy"), registry.parse("mtp()"), means=means, on_shard=stop)
    run.attach(load(tmp_path / "greedy"), registry.parse("mtp()"), means=means, resume=True)
    for shard in range(3):
        name = f"greedy/drafters/mtp/lattice/{shard:05d}.parquet"
        assert filecmp.cmp(place / name, tmp_path / name, shallow=False)
    assert simkit(["info", tmp_path / "greedy"]) == 0


def strip(found, values):
    for name in [name for name in found if name.startswith(f"model.layers.{LAYERS + 1}.")]:
        found.pop(name)


def reshape(found, values):
    found[f"model.layers.{LAYERS}.eh_proj.weight"] = torch.zeros(3, 4)


def none(found, values):
    values["num_nextn_predict_layers"] = 0


@pytest.mark.parametrize(
    "change, spec, why",
    [
        (None, "mtp(length=4)", "mtp: length 4 is too long: the target has 3 MTP layers"),
        (None, "mtp(length=-1)", "mtp: length must be a whole number >= 1, not -1"),
        (none, "mtp()", "the target has no MTP layers (num_mtp_layers in its config)"),
        (strip, "mtp()", "its MTP layers cannot be loaded: "),
        (reshape, "mtp()", "its MTP layers cannot be loaded: "),
    ],
)
def test_bad_input(root, tmp_path, capsys, change, spec, why):
    place = root / "deepseek"
    (tmp_path / "greedy").symlink_to(place / "greedy")
    (tmp_path / "target").mkdir()
    for file in (place / "target").iterdir():
        (tmp_path / "target" / file.name).write_bytes(file.read_bytes())
    found = load_file(place / "target/model.safetensors")
    values = json.loads((place / "target/config.json").read_text())
    if change is not None:
        change(found, values)
    save_file(found, tmp_path / "target/model.safetensors", {"format": "pt"})
    (tmp_path / "target/config.json").write_text(json.dumps(values))
    assert attach(tmp_path, "greedy", "--name", "bad", spec=spec) == 2
    said = capsys.readouterr().err
    assert why in said and said.count("\n") == 1
    assert "bad" not in load(place / "greedy").drafters


def test_other_targets_are_refused(root, tmp_path, capsys):
    """Another model's MTP layers, and a family that has none."""
    assert attach(root, "deepseek/greedy", "--name", "bad", target="mellum/target") == 2
    said = capsys.readouterr().err
    assert "its weights are not those of" in said and said.count("\n") == 1
    given = ["latency", "--target", root / "deepseek/target", "--drafter", "mtp", "--device", "cpu"]
    line = refused(capsys, *given, "--out", root / "deepseek/greedy")
    assert "are not timed: give a cost" in line
