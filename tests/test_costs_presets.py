"""The papers' times by name, and the list of all costs."""

import json

import pytest
from commands import refused, run
from replay_traces import build, with_scores
from typer import Context
from typer.main import get_command

import simkit
from simkit import costs
from simkit.cli import app
from simkit.costs import CostError, Linear
from simkit.costs.presets import PRESETS
from simkit.costs.shapes import DEVICES


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_is_a_linear_cost_with_a_source(name):
    cost = costs.parse(name)
    assert isinstance(cost, Linear)
    assert cost.target_s > cost.draft_s > 0
    assert "Table" in PRESETS[name].source or "simulator" in PRESETS[name].source


def test_a_preset_takes_arguments_too(tmp_path):
    plain = costs.parse("pacer:deepseek-1.3b-33b")
    other = costs.parse(" pacer:deepseek-1.3b-33b (decode_s=0.05, overhead_s=1) ")
    assert isinstance(plain, Linear)
    assert isinstance(other, Linear)
    assert (other.decode_s, other.overhead_s) == (0.05, 1)
    assert (other.draft_s, other.head_s) == (plain.draft_s, plain.head_s)
    file = tmp_path / "cost.json"
    file.write_text(json.dumps({"kind": "pacer:deepseek-1.3b-33b", "overhead_s": 2}))
    read = costs.parse(str(file))
    assert isinstance(read, Linear)
    assert (read.overhead_s, read.draft_s) == (2, plain.draft_s)


def test_catalogue():
    entries = {entry.name: entry for entry in costs.catalogue()}
    devices = {f"roofline(device={name})" for name in DEVICES}
    assert set(entries) == {*costs.names(), *devices, *PRESETS}
    assert all(entry.what and entry.source for entry in entries.values())
    assert entries["pacer:deepseek-1.3b-33b"].what == (
        "draft 16.52 ms, verification 67.31 ms, decoding 55.22 ms, head 1.81 ms"
    )


@pytest.mark.parametrize("arguments", [[], ["no-such-trace"], ["reference", "--policy", "x"]])
def test_cost_list_needs_nothing_else(arguments, capsys):
    ended, shown, _ = run(capsys, "replay", *arguments, "--cost", "list")
    assert ended == 0
    for entry in costs.catalogue():
        assert entry.name in shown


def test_cost_list_is_the_same_for_every_command_that_takes_a_cost(capsys):
    takes, group = [], get_command(app)
    context = Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if any("--cost" in option.opts for option in command.params):
            takes.append((name, *run(capsys, name, "--cost", "list")[:2]))
    assert {"replay", "sweep", "tune", "figures", "claims", "report"} <= {n for n, *_ in takes}
    assert len({(code, shown) for _, code, shown in takes}) == 1 and takes[0][1] == 0


@pytest.mark.parametrize("cost", [3, 2.5, {"kind": "measured"}, costs.Measured])
def test_what_is_no_cost_is_refused(cost):
    trace = build([[(1, 1)] * 7], t_max=7, max_draft=7)
    with pytest.raises(CostError, match="is no cost: give an object, a spec or a file's name"):
        simkit.replay(trace, "fixed(2)", cost)


def test_an_unknown_cost_is_one_line(capsys):
    words = "replay", "reference", "--policy", "fixed(3)", "--cost", "pacer:deepseek"
    said = "unknown cost model 'pacer:deepseek' (did you mean pacer:deepseek-1.3b-33b?)"
    assert said in refused(capsys, *words)


def test_replay_by_name():
    """Two steps of a draft of two, then a last step at the end without one."""
    trace = build([[(1, 1)] * 7], t_max=7, max_draft=7)
    (record,) = simkit.replay(trace, "fixed(2)", "pacer:deepseek-1.3b-33b").records()
    assert [record[key] for key in ("steps", "drafted")] == [3, 4]
    assert record["draft_s"] == pytest.approx(4 * 16.52e-3)
    assert record["verify_s"] == pytest.approx(3 * 67.31e-3)
    assert record["baseline_s"] == pytest.approx(67.31e-3 + 7 / 18.11)


def test_a_head_is_charged_by_its_calls():
    """PACER's layer runs once for each whole block, and for nothing else."""
    trace = with_scores(build([[(1, 1)] * 7, [(1, 2)] * 7], t_max=7, max_draft=7))
    cost = "pacer:deepseek-1.3b-33b"
    result = simkit.replay(trace, ["pacer(block=2)", "fixed(4)"], cost, by="step")
    for record in result.records():
        calls = record["drafted"] // 2 if record["policy"].startswith("pacer") else 0
        assert record["policy_s"] == pytest.approx(calls * 1.81e-3)
