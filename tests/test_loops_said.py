"""Outputs that repeat themselves are named where a trace, or a speed on it, is shown."""

from __future__ import annotations

import json
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from pair_folders import pair_folder
from pair_folders import simkit as run
from replay_traces import build
from trace_files import MODEL
from typer.testing import CliRunner

import simkit
from analysis.claims import CLAIMS, check
from simkit.cli import app
from simkit.serving import Engine, serve
from traces import Sampler, synthetic
from traces.loops import (
    LONGEST,
    MUCH,
    Looping,
    again,
    drafts_made_of,
    in_loop,
    looping,
    remarks_of,
)
from traces.streamed import stream
from traces.subset import select
from traces.synthetic import iid
from traces.trace import load
from traces.writer import save

COST = "linear(draft_s=1, target_s=6)"
SAID = "8 of 8 outputs repeat themselves word for word (98% of positions)"


def looped(outputs: int = 8, length: int = 40):
    """Outputs of one repeated token, all of it accepted."""
    return build([[(1, 1)] * length] * outputs, t_max=length, max_draft=8)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The same as a trace in a folder."""
    constant = lambda rows, name, n: np.ones(n, np.int32)  # noqa: E731
    monkeypatch.setattr(synthetic._Columns, "_tokens", constant)
    save(iid(8, 40, 1.0, max_draft=8, seed=0), tmp_path / "trace")
    return str(tmp_path / "trace")


def mixed(period: int, rounds: int, before: int = 50):
    """Text that does not repeat, and a loop behind it."""
    text = np.arange(100, 100 + before)
    return np.concatenate([text, np.tile(np.arange(period), rounds)])


@pytest.mark.parametrize(
    ("period", "rounds", "repeats"), [(1, 9, 8), (1, 8, 0), (4, 3, 8), (5, 2, 0), (64, 3, 128)]
)
def test_what_a_loop_is(period, rounds, repeats):
    tokens = mixed(period, rounds)
    assert in_loop(tokens, np.array([0, len(tokens)])).sum() == repeats


def test_longer_rounds_and_other_outputs_do_not_count():
    tokens = mixed(LONGEST + 1, 4)
    assert not in_loop(tokens, np.array([0, len(tokens)])).any()
    same = np.tile(np.arange(20), 6)  # each output once, all alike
    assert not in_loop(same, np.arange(0, 121, 20)).any()


def test_how_much_of_a_trace_loops():
    assert looping(looped()) == Looping(8, 8, 39 / 40)
    assert remarks_of(iid(12, 30, 0.7, max_draft=8, seed=1)) == []
    assert not Looping(1, 100, MUCH - 0.01).remark and Looping(1, 100, MUCH).remark


def test_of_a_long_trace_some_outputs_are_looked_at():
    found = looping(looped(100), most=400)
    assert found == Looping(10, 10, 39 / 40)


def test_of_outputs_in_windows_it_is_said_that_nobody_looked(folder):
    whole = stream(folder, memory=2**30)
    assert looping(whole) is None
    assert [note for note in remarks_of(whole) if "was not looked at" in note]


def test_info_and_validate_say_it(folder):
    for command in ("info", "validate"):
        found = CliRunner().invoke(app, [command, folder])
        assert found.exit_code == 0
        assert SAID in " ".join((found.stdout + found.stderr).split())
    facts = CliRunner().invoke(app, ["info", folder, "--format", "json"])
    assert json.loads(facts.stdout)["loops"] == {"outputs": 8, "looked_at": 8, "share": 39 / 40}


RESULTS = [
    lambda t: simkit.replay(t, "fixed(2)"),
    lambda t: simkit.replay(t, "fixed(2)", cost=COST),
    lambda t: simkit.sweep(t, "fixed(1:2)", cost=COST),
    lambda t: simkit.tune(t, "fixed(1:2)", cost=COST, folds=2),
    lambda t: serve(t, "static(2)", COST, rate=1, requests=5, engine=Engine(max_batch=1)),
]


@pytest.mark.parametrize("made", RESULTS)
def test_results_say_it(made):
    assert any(SAID in note for note in made(looped()).notes)


SAME = "draft and target are the same model"
OTHER = replace(MODEL, weights_sha256="1" * 64)


@pytest.mark.parametrize(
    ("draft", "sampler", "said"),
    [
        (MODEL, Sampler(), [f"{SAME}: every token is accepted"]),
        (replace(MODEL, id="copy"), Sampler(1.0), [f"{SAME}: every token is accepted"]),
        (MODEL, Sampler(1.0, draft_temperature=0.5), [f"{SAME}, at two temperatures"]),
        (OTHER, Sampler(), []),
        (None, Sampler(), []),
    ],
)
def test_a_model_beside_itself(draft, sampler, said):
    trace = iid(8, 30, 0.9, max_draft=8, seed=1)
    trace.manifest = replace(trace.manifest, target=MODEL, draft=draft, sampler=sampler)
    assert remarks_of(trace) == said
    if sampler.greedy:
        assert all([n for n in made(trace).notes if SAME in n] == said for made in RESULTS)


@pytest.mark.filterwarnings("default:draft and target")  # which are errors in tests
def test_recorded_and_attached_beside_itself(tmp_path, capsys):
    root = pair_folder(tmp_path)
    few = ["--max-new-tokens", "12", "--device", "cpu"]
    models = ["--target", root / "target", "--prompts", root / "prompts.jsonl"]
    out, drafter = root / "same", f'model("{root / "target"}")'
    capsys.readouterr()
    for words in (
        ["record", *models, "--draft", root / "target", "--out", out, *few],
        ["replay", out, "--policy", "fixed(2)"],
        ["attach", root / "trace", "--target", root / "target", "--drafter", drafter],
        ["replay", root / "trace", "--drafter", "model", "--policy", "fixed(2)"],
    ):
        assert run(words) == 0
        assert " ".join("".join(capsys.readouterr()).split()).count(SAME) == 1
    assert run(["replay", root / "trace", "--policy", "fixed(2)"]) == 0
    assert SAME not in "".join(capsys.readouterr())


ROUNDED = "from the target, not an independent small model: q3-g32 (its weights rounded to 3 bits"


def test_drafts_that_are_made_of_the_target_are_said_to_be(capsys):
    drafter = load("ladder", "q3-g32")
    assert any(ROUNDED in note for note in simkit.replay(drafter, "fixed(2)").notes)
    assert ROUNDED in check(drafter, claims=[CLAIMS["marginal_falls"]]).note()
    (said,) = [note for note in remarks_of(load("ladder")) if note.startswith("made from")]
    assert "models: exit8 (its first eight layers" in said and "q3-g16, q3-g32, q3-g64 (" in said
    assert "distilled" not in said and not drafts_made_of(load("smollm2"))
    (few,) = (note for note in remarks_of(load("ladder"), ["q3-g32"]) if note.startswith("made"))
    assert ROUNDED in few and "exit8" not in few
    assert run(["info", "ladder"]) == 0
    assert "the target's own: 15 of its 30 layers" in " ".join(capsys.readouterr().out.split())


def test_the_bundled_pair_is_known_to_loop():
    (said,) = remarks_of(load("reference"))
    assert said.startswith("79 of 128 outputs repeat themselves word for word (69% of positions)")
    assert remarks_of(load("reference-target")) == []


def test_prompts_that_repeat_are_said():
    """Their outputs are no independent ones; those behind one token, or behind none, are."""
    table = load("reference").sequences
    twice = np.array([0, 1, 2, 0, 2])
    few = select(load("reference"), range(3))
    assert again(few) == "" and again(iid(12, 30, 0.7, max_draft=8, seed=1)) == ""
    repeated = SimpleNamespace(sequences=table.take(twice))
    assert again(repeated).startswith("2 of 5 prompts repeat an earlier one: intervals")
    windows = SimpleNamespace(sequences=table.take(twice).drop_columns(["prompt_tokens"]))
    assert again(windows) == ""
