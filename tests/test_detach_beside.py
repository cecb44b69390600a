"""Readers beside a detach, and recordings beside an attach: each ends well or with one line."""

import os
import shutil
from threading import Event, Thread

import pytest
from trace_files import record, trace

import simkit
from traces.attach import registry, run
from traces.errors import TraceError, UserError
from traces.finding import attached
from traces.trace import load
from traces.validate import validate
from traces.writer import TraceWriter


@pytest.fixture
def folder(tmp_path):
    record(tmp_path / "trace", trace(5, eos_prob=0.0))
    return tmp_path / "trace"


def attach(folder):
    run.attach(load(folder), registry.parse("ngram(least=1, most=2)"), name="text")


def test_replays_beside_a_detach(folder):
    """A replay has the numbers of before, or says in one line what is gone."""
    attach(folder)
    wanted = simkit.replay(load(folder, "text"), "fixed(2)").frame
    shutil.copytree(folder / "drafters", folder.parent / "kept")
    found, done = [], Event()

    def replays():
        while not done.is_set():
            try:
                found.append(simkit.replay(load(folder, "text"), "fixed(2)").frame.equals(wanted))
            except UserError as error:
                found.append(str(error))

    reader = Thread(target=replays)
    reader.start()
    for _ in range(10):
        run.detach(load(folder), "text")
        shutil.copytree(folder.parent / "kept", folder / "drafters")
    done.set()
    reader.join()
    assert found
    for one in found:
        assert one is True or (isinstance(one, str) and "\n" not in one)
    assert validate(folder) == []


def test_a_column_that_is_read_after_the_detach_is_refused(folder):
    attach(folder)
    opened = load(folder, "text")
    run.detach(load(folder), "text")
    with pytest.raises(TraceError, match="missing|no such|No such|cannot be read"):
        opened.lattice("accepted")


def test_nothing_is_attached_beside_a_recording(folder, tmp_path):
    """Neither to one that is not whole, nor is one begun in a folder with a drafter."""
    attach(folder)
    header = load(folder).manifest
    with pytest.raises(TraceError, match="not empty"):
        TraceWriter(folder, header)
    part = tmp_path / "part"
    with TraceWriter(part, header), pytest.raises(TraceError, match="incomplete"):
        attach(part)


def test_a_folder_that_goes_while_it_is_looked_at_holds_no_drafters(folder, monkeypatch):
    """As in a detach beside it: it was there a moment before."""
    attach(folder)
    assert attached(folder) == ["text"]
    place = folder / "drafters"

    def going(usual):
        def look(path="."):
            if os.fspath(path) == os.fspath(place) and place.exists():
                place.rename(folder / "elsewhere")
            return usual(path)

        return look

    for name in ("listdir", "scandir"):
        monkeypatch.setattr(os, name, going(getattr(os, name)))
    assert attached(folder) == []
