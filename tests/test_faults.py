"""Every writer, killed or out of space at each of its calls, leaves the old or the new, whole."""

import os
import re
import shutil

import fault_cases as cases
import pytest
from fault_cases import WRITERS, names
from faults import KILLED, MODES, stopped
from trace_files import hashes

from traces.errors import UserError

FULL = "No space left on device"


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", WRITERS)
def test_stopped_at_every_call(name, mode, tmp_path, monkeypatch):
    monkeypatch.setattr(os, "fsync", lambda handle: None)
    writer, act = WRITERS[name], getattr(cases, name)
    start, whole = tmp_path / "start", tmp_path / "whole"
    start.mkdir()
    if writer.before:
        getattr(cases, writer.before)(start)
    shutil.copytree(start, whole)
    act(whole)
    assert writer.look(whole) == "new"
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
        seen.append(writer.look(folder))
        if said is not None:
            assert said.startswith(f"{folder}/") and said.endswith(FULL) and "\n" not in said
            if seen[-1] == writer.old:
                only_kept(writer, start, folder)
        elif not hit or mode != KILLED:
            assert seen[-1] == "new" and names(folder) == names(whole)
        if names(folder) != names(whole) or seen[-1] != "new":  # the same again, and all is well
            assert hit
            act(folder)
            assert writer.look(folder) == "new" and names(folder) == names(whole)
        shutil.rmtree(folder)
    assert len(seen) > 5 and seen[0] == writer.old and seen[-1] == "new"


def only_kept(writer, start, folder):
    """Nothing of the writer's own is left but what the next run takes up; folders neither."""
    before, after = hashes(start), hashes(folder)
    assert before.items() <= after.items()
    extra = set(names(folder)) - set(names(start))
    assert all(writer.keeps and re.fullmatch(writer.keeps, path) for path in extra), extra
