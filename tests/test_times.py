"""Timing samples that a recording takes over from another one of the same models."""

import shutil

import pytest

import simkit
import traces
from traces import copy_timings
from traces.errors import TraceError
from traces.trace import DATA


def components(trace):
    found = set(trace.own_latency()["component"].to_pylist())
    return {name.removeprefix("draw:") for name in found}


def test_times_go_to_a_trace_of_the_same_models_alone(tmp_path):
    to = shutil.copytree(DATA / "smollm2-long", tmp_path / "long")
    with pytest.raises(TraceError, match="has no timing samples"):
        copy_timings.copy(DATA / "smollm2-long", to)
    with pytest.raises(TraceError, match="are not of the same target"):
        copy_timings.copy(DATA / "reference", to)
    with pytest.raises(TraceError, match="nowhere"):
        copy_timings.copy(tmp_path / "nowhere", to)
    copy_timings.copy(DATA / "smollm2", to)
    assert traces.load(to).latency() == traces.load("smollm2").latency()


def test_a_target_recording_and_its_draft_model_take_each_what_is_theirs(tmp_path):
    to, given = tmp_path / "target", DATA / "reference-sampled"
    shutil.copytree(DATA / "reference-target", to)
    copy_timings.copy(given, to)
    copy_timings.copy(given, to / "drafters" / "draft")
    assert components(traces.load(to)) == components(traces.load(given)) - {"draft"}
    drafted = traces.load(to, "draft")
    assert components(drafted) == {"draft"}
    assert simkit.replay(drafted, "svip").frame["speedup"][0] > 1
    with pytest.raises(TraceError, match="are not of the same draft"):
        copy_timings.copy(given, to / "drafters" / "pard2")
