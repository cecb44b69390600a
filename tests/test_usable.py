"""Policies that a trace cannot replay are left out, and say why; the others are shown."""

import json

import pytest
from commands import refused, run

import simkit
from analysis.replays import Replays
from analysis.study import Study
from simkit.drafters.layout import DepthError
from simkit.simulator.usable import replay_usable
from traces import load, scores
from traces.errors import UserError

ALIKE = None, "trace", "draft"


def test_what_cannot_be_replayed_is_left_out_and_said(capsys):
    words = ["replay", "smollm2", "--format", "json", "--policy", "fixed(2)"]
    words += ["--policy", "fixed(20)", "--policy", "svip(h=3)", "--policy", "llamacpp(p_min=0)"]
    ended, out, said = run(capsys, *words)
    assert ended == 0
    assert [row["policy"] for row in json.loads(out)] == [
        "fixed(2)",
        "svip(h=3, max_draft=16)",
        "llamacpp(p_min=0)",
    ]
    assert "note: fixed(20) is left out: sequence 0, position" in said
    assert "note: svip(h=3) drafts up to 16 tokens here, as many as were recorded" in said


def test_a_drafter_that_cannot_follow_a_policy_is_left_out():
    found, notes = replay_usable(
        load("smollm2"), {"own": ["svip(h=1)"], "suffix": ["svip(h=1)"]}, *ALIKE
    )
    assert list(found.results) == ["own"]
    (note,) = [line for line in notes if "left out" in line]
    assert note.startswith("svip(h=1) on suffix is left out: ")
    assert "draft_entropy" in note


def test_an_attached_drafter_has_a_depth_of_its_own():
    found, (note,) = replay_usable(load("ladder"), {"q3-g32": ["svip(h=1.2)"]}, *ALIKE)
    assert found.records()[0]["policy"] == "svip(h=1.2, max_draft=16)"
    assert note.startswith("svip(h=1.2) drafts up to 16 tokens here")


def test_a_head_that_scored_less_deep_is_asked_no_deeper():
    whole = load("reference")
    some = scores.StartScores(scores.load(whole, "pacer").values[:, :4])
    table = scores.to_table(whole, some, {"max_draft": 4})
    trace = scores.with_table(whole, scores.file_name("pacer"), table)
    found, (note,) = replay_usable(trace, {"own": ["pacer(block=3)"]}, *ALIKE)
    assert found.records()[0]["policy"] == "pacer(block=3, max_draft=4)"
    assert "drafts up to 4 tokens here, as many as were recorded and scored" in note
    with pytest.raises(DepthError, match=r"depth 5 was not scored; .*; write pacer\(.*max_draft=4"):
        simkit.replay(trace, "pacer", None)
    deepest = {
        policy.max_draft for policy in Replays(Study(trace), "measured").within("pacer(block=1:4)")
    }
    assert deepest == {4}


@pytest.mark.parametrize("deepest", ["8", None, 8.5])
def test_a_head_s_depth_that_is_no_number_is_refused(deepest):
    whole = load("reference")
    table = scores.to_table(whole, scores.load(whole, "pacer"), {"max_draft": deepest})
    trace = scores.with_table(whole, scores.file_name("pacer"), table)
    replays = Replays(Study(trace), "measured")
    with pytest.raises(UserError, match="belong to another trace; write them again"):
        replays.scored("pacer(block=1:2)")


def test_a_longest_draft_that_is_given_is_kept():
    with pytest.raises(DepthError, match=r"svip\(h=3, max_draft=17\): sequence"):
        replay_usable(load("smollm2"), {"own": ["svip(h=3, max_draft=17)"]}, *ALIKE)


def test_nothing_left_and_specs_that_cannot_be_read_are_refused(capsys):
    with pytest.raises(UserError, match="depth 17 was not recorded"):
        replay_usable(load("smollm2"), {"own": ["fixed(17)", "fixed(20)"]}, *ALIKE)
    words = "replay", "reference", "--policy", "fixed(2)", "--policy", "svpi(h=1)"
    assert "unknown policy 'svpi'" in refused(capsys, *words)
    words = (
        "replay",
        "reference",
        "--policy",
        "fixed(2)",
        "--policy",
        "fixed(3)",
        "--cost",
        "lineal",
    )
    assert "did you mean linear?" in refused(capsys, *words)
