"""Every writer, killed or out of space at each of its calls, leaves the old or the new, whole."""

import os
import shutil

import fault_cases as cases
import pytest
from fault_cases import NAMES, NEW, OLD
from faults import MODES, stopped
from trace_files import hashes

from simkit.heads import files as heads
from simkit.live.log import read
from traces import scores
from traces.errors import TraceError, UserError
from traces.trace import load
from traces.validate import validate

NONE, FULL = "nothing", "No space left on device"


def of_trace(folder):
    """What is at a place for a trace: nothing, or a whole one."""
    try:
        load(folder / "t")
    except TraceError as error:
        assert any(words in str(error) for words in ("no such", "has no manifest", "incomplete"))
        return NONE
    assert validate(folder / "t") == []
    return "new"


def of_latency(folder):
    assert validate(folder / "t") == []
    rows = load(folder / "t").extra("latency.parquet").num_rows
    return {2: "old", 4: "new"}[rows]


def of_scores(folder):
    assert validate(folder / "t") == []
    there = load(folder / "t")
    if there.extra("scores/pacer.parquet") is None:
        return "old"
    assert scores.load(there, "pacer").path.min() == 1
    return "new"


def of_files(folder):
    found = {(folder / name).read_bytes() for name in NAMES}
    assert found <= {OLD, NEW}
    return "old" if found == {OLD} else "new" if found == {NEW} else "some"


def of_file(folder):
    file = folder / "below" / "x.html"
    assert not file.exists() or file.read_bytes() == NEW
    return "new" if file.exists() else NONE


def of_head(folder):
    found = heads.load(folder / "h.safetensors")
    [weight] = {float(value.detach().min()) for value in found.module.parameters()}
    assert found.facts == {"weight": weight}
    return {0.25: "old", 0.5: "new"}[weight]


def of_log(folder):
    [policy] = set(read(folder / "live.parquet")["policy"].to_pylist())
    for part in folder.glob("live.partial*.parquet"):
        assert set(read(part)["policy"].to_pylist()) == {"new"}
    return policy


def of_trace_log(folder):
    assert validate(folder / "t") == []
    [policy] = set(load(folder / "t").extra("live.parquet")["policy"].to_pylist())
    for file in folder.glob("t.live*.parquet"):
        assert set(read(file)["policy"].to_pylist()) == {"new"}
    return policy


WRITERS = {
    "recording": (None, NONE, of_trace),
    "saved": (None, NONE, of_trace),
    "latency": ("traced", "old", of_latency),
    "score": ("traced", "old", of_scores),
    "together": ("earlier", "old", of_files),
    "alone": (None, NONE, of_file),
    "new_head": ("old_head", "old", of_head),
    "new_log": ("old_log", "old", of_log),
    "into_trace": ("traced_log", "old", of_trace_log),
}


KEEP = ("recording", "new_log", "into_trace")  # shards or parts, which the next run takes up


def names(folder):
    """All files and folders; logs of runs that broke off are extra, a lock is taken over."""
    found = (path.relative_to(folder).as_posix() for path in folder.rglob("*"))
    return sorted(name for name in found if ".partial" not in name and ".lock" not in name)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("writer", WRITERS)
def test_stopped_at_every_call(writer, mode, tmp_path, monkeypatch):
    monkeypatch.setattr(os, "fsync", lambda handle: None)
    prepare, before, look = WRITERS[writer]
    act, start, whole = getattr(cases, writer), tmp_path / "start", tmp_path / "whole"
    start.mkdir()
    if prepare:
        getattr(cases, prepare)(start)
    shutil.copytree(start, whole)
    act(whole)
    assert look(whole) == "new"
    seen, hit = [], True
    while hit:
        folder = tmp_path / str(len(seen))
        shutil.copytree(start, folder)
        said = None
        with stopped(mode, len(seen)) as stop:
            try:
                act(folder)
            except UserError as error:
                said = str(error)
        hit = stop.hit
        seen.append(look(folder))
        if said is not None:
            assert said.startswith(f"{folder}/") and FULL in said and "\n" not in said
            if seen[-1] == before and writer not in KEEP:
                assert hashes(folder) == hashes(start), said  # nothing of its own is left
        if names(folder) != names(whole) or seen[-1] != "new":  # the same again, and all is well
            act(folder)
            assert look(folder) == "new" and names(folder) == names(whole)
        shutil.rmtree(folder)
    assert len(seen) > 5 and seen[0] == before and seen[-1] == "new"
