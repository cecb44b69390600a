"""`simkit latency` of attached drafters and of a target alone: what is timed, what it prices."""

import shutil
from dataclasses import replace

import numpy as np
import pyarrow.compute as pc
import pytest
import torch
from commands import refused
from pair_folders import simkit
from test_attach_networks import attach, make_target, root  # noqa: F401

import simkit as toolkit
from simkit.costs import Measured
from traces import load
from traces.conditions import conditions
from traces.record.drafters import feature
from traces.record.drafters.layers import Layers
from traces.record.drafters.texts import make_texts
from traces.record.drafters.timing import ChainBench
from traces.record.latency import PassShape, plan
from traces.validate import validate

FEW = ["--context", "8,16", "--tokens", "1,2,4,6", "--repeats", 3, "--device", "cpu"]


@pytest.fixture(scope="module")
def timed(root, tmp_path_factory):  # noqa: F811
    """A copy of the recording of the target alone, timed, and its drafters beside it."""
    folder = tmp_path_factory.mktemp("timed")
    for name in ("target", "independent", "dependent", "eagle1", "eagle3"):
        (folder / name).symlink_to(root / name)
    shutil.copytree(root / "greedy", folder / "greedy")
    assert latency(folder) == 0
    for name in ("independent", "dependent", "eagle1", "eagle3"):
        attach(folder, "greedy", name, length=3)
        assert latency(folder, "--drafter", name) == 0
    assert simkit(["attach", folder / "greedy", "--drafter", "ngram()"]) == 0
    return folder


def latency(folder, *more):
    given = ["latency", "--target", folder / "target", "--out", folder / "greedy"]
    return simkit([*given, *FEW, *more])


def shapes_of(table, component):
    rows = table.filter(pc.field("component") == component).to_pylist()
    return {(row["tokens_in"], row["context_len"]) for row in rows}


def test_a_target_alone_is_timed(timed):
    samples = load(timed / "greedy").latency()
    assert set(samples["component"].to_pylist()) == {"target", "control:target"}
    assert {(1, 8), (4, 16), (6, 8), (8, 0), (16, 0)} <= shapes_of(samples, "target")
    assert validate(timed / "greedy") == []


@pytest.mark.parametrize(
    "name, widest", [("independent", 6), ("dependent", 6), ("eagle1", 4), ("eagle3", 4)]
)
def test_a_drafter_is_timed_in_its_own_shapes(timed, name, widest):
    """A parallel draft keeps up to K + 1 tokens before K - 1 masks; a chain reads K + 1 anew."""
    found = load(timed / "greedy", name)
    own = found.own_latency()
    assert set(own["component"].to_pylist()) == {"draft", "control:draft"}
    tokens = {n for n in (1, 2, 4, 6) if n <= widest}
    places = {(n, c) for n in tokens for c in (8, 16)} | {(8, 0), (16, 0)}
    assert shapes_of(own, "draft") == places
    assert set(own["repeat"].to_pylist()) == {0, 1, 2}
    known = conditions(own)
    assert known.apart is not None and known.load is not None
    both = found.latency()
    assert {"draft", "target"} <= set(both["component"].to_pylist())


@pytest.mark.parametrize("name", ["independent", "eagle3"])
def test_a_replay_is_priced_by_what_was_timed(timed, name):
    found = load(timed / "greedy", name)
    result = toolkit.replay(found, ["fixed(3)", "svip(h=0.9, max_draft=3)"])
    (one, other) = result.records()
    assert one["draft_s"] > 0 and one["speedup"] > 0 and other["draft_s"] > 0
    assert not [note for note in result.notes if "there are no times" in note]
    assert not [note for note in result.notes if "no draft pass over several tokens" in note]
    times = Measured().times(found)
    assert times.knows_blocks and len(times.drawn_anew(4)) == 4
    rows = found.own_latency().filter(
        (pc.field("component") == "draft") & (pc.field("tokens_in") == 1)
    )
    near, far = (
        np.median(rows.filter(pc.field("context_len") == c)["seconds"].to_numpy()) for c in (8, 16)
    )
    want = near if near <= far else (near + far) / 2  # never less behind more context
    assert times.draft(np.array([8]))[0] == pytest.approx(want)


def test_rounds_of_a_drafter_are_drawn_apart(timed):
    """Timed in more rounds than the target: both are drawn anew, each in as many as it has."""
    assert latency(timed, "--drafter", "eagle1", "--repeats", 5) == 0
    times = Measured().times(load(timed / "greedy", "eagle1"))
    drawn = times.drawn_anew(8)
    assert len({float(t.draft(np.array([8]))[0]) for t in drawn}) > 1
    assert len({float(t.decode(np.array([8]))[0]) for t in drawn}) > 1


def test_without_times_of_the_target_it_is_said(root, tmp_path, capsys):  # noqa: F811
    for name in ("target", "eagle1"):
        (tmp_path / name).symlink_to(root / name)
    shutil.copytree(root / "greedy", tmp_path / "greedy", ignore=lambda *_: ["drafters"])
    attach(tmp_path, "greedy", "eagle1", length=2)
    capsys.readouterr()
    assert latency(tmp_path, "--drafter", "eagle1", "--repeats", 1) == 0
    said = capsys.readouterr().err
    assert "note: no cost of eagle1" in said and "simkit latency --target" in said
    assert load(tmp_path / "greedy", "eagle1").latency() is None


@pytest.mark.parametrize(
    "options, words",
    [
        (["--drafter", "ngram"], "ngram has no passes to time"),
        (["--drafter", "nobody"], "no drafter 'nobody' is attached"),
        (["--drafter", "eagle1", "--fit"], "--fit and --cost-out need a pair"),
        (["--drafter", "eagle1", "--max-draft", 3], "--max-draft cannot be used with --drafter"),
        (["--fit"], "--fit and --cost-out need a pair"),
        (["--drafter", "eagle1", "--draft", "nowhere"], "nowhere"),
        (["--drafter", "eagle1", "--context", "4000"], "a pass needs 4,004 positions"),
    ],
)
def test_what_cannot_be_timed_is_refused(timed, options, words, capsys):
    before = (timed / "greedy" / "drafters" / "eagle1" / "latency.parquet").read_bytes()
    capsys.readouterr()
    assert latency(timed, *options) == 2
    said = capsys.readouterr().err
    assert words in said and "\n" not in said.strip()
    after = (timed / "greedy" / "drafters" / "eagle1" / "latency.parquet").read_bytes()
    assert before == after


def test_a_drafter_without_its_trace_is_refused(timed, capsys):
    given = ["latency", "--target", timed / "target", "--drafter", "eagle1", *FEW]
    assert "name the trace that it is attached to with --out" in refused(capsys, *given)


def test_another_target_is_refused(timed, capsys):
    other = timed / "other"
    shutil.copytree(timed / "target", other)
    model = make_target(torch.float32)
    with torch.no_grad():
        model.get_input_embeddings().weight += 1
    model.save_pretrained(other)
    given = ["latency", "--target", other, "--out", timed / "greedy", "--drafter", "eagle1", *FEW]
    assert "its weights are not those of" in refused(capsys, *given)


@pytest.mark.parametrize("kind", ["eagle1", "eagle3"])
def test_a_chain_s_pass_is_the_drafter_s_own(root, kind):  # noqa: F811
    """The timed passes give what the drafter gives: kept tokens encoded anew, then its own."""
    target = make_target(torch.float32)
    drafter = feature.load(root / kind, target)
    shapes = [s for s in plan(3, (6,), (1, 3), widest={"draft": 3}) if s.component == "draft"]
    bench = ChainBench(drafter, shapes, seed=0)
    text = [1, *bench.ids[0].tolist()]  # a first token has no state before it
    texts = make_texts([text[:9]], [[0]])
    with Layers(target, drafter.layers) as layers, torch.inference_mode():
        target(texts.tokens)
        states = layers.joined()
    (drafts,) = drafter.draft(replace(texts, states=states), 1)
    bench._states = states[:, :6]
    cache = bench._new_cache()
    bench._run([text[1:7]], cache, 1)
    bench._states = states[:, 6:8]
    found = bench._run([text[7:9]], cache, 1)
    assert found == drafts.logits[:1, 0].argmax(-1, keepdim=True).tolist()
    bench._states = states[:, :6]
    assert bench.sample(PassShape("draft", 3, 6)) > 0 and bench.caches[1, 6].length == 6
