"""Where compiled code is kept."""

import errno
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numba
import pytest

from traces import kernels, own_sources
from traces.errors import SimkitWarning

HERE = Path(__file__).parent


def plus_one(x):
    return x + 1


def plus_two(x):
    return x + 2


@pytest.fixture(autouse=True)
def kept_here(monkeypatch):
    """Functions of this file are kept as those of the packages are."""
    monkeypatch.setattr(own_sources, "SOURCES", (*own_sources.SOURCES, HERE))
    for found_once in (kernels._folder, own_sources.first_digest):
        found_once.cache_clear()
    yield
    for found_once in (kernels._folder, own_sources.first_digest):
        found_once.cache_clear()


def cache_of(function):
    return getattr(function._cache, "cache_path", None)


def test_code_is_kept_under_a_name_made_from_its_sources(monkeypatch, tmp_path):
    monkeypatch.setattr(kernels, "_bases", lambda package: [tmp_path])
    function = kernels.compiled(plus_one)
    assert function(1) == 2
    (folder,) = tmp_path.iterdir()
    assert folder.name == f"simkit-{kernels._fingerprint(own_sources.first_digest())}"
    assert str(cache_of(function)).startswith(str(folder))
    assert list(folder.rglob("*.nbc"))


def test_numba_s_settings_have_no_say(monkeypatch, tmp_path):
    """In a folder of its own choice nothing would tell sources apart."""
    monkeypatch.setattr(kernels, "_bases", lambda package: [tmp_path])
    monkeypatch.setattr(numba.config, "CACHE_LOCATOR_CLASSES", "InTreeCacheLocator", raising=False)
    assert str(cache_of(kernels.compiled(plus_one))).startswith(str(tmp_path))


def test_code_of_others_is_not_kept(monkeypatch, tmp_path):
    monkeypatch.setattr(kernels, "_bases", lambda package: [tmp_path])
    monkeypatch.setattr(own_sources, "SOURCES", own_sources.SOURCES[:-1])
    assert kernels.compiled(plus_one)(1) == 2
    assert not list(tmp_path.rglob("*.nbc"))


FILES = (
    "traces/trees/forest.py",
    "simkit/drafters/tree.py",
    "simkit/policies/svip.py",
    "analysis/gap.py",
)


@pytest.fixture
def packages(monkeypatch, tmp_path):
    """Packages of one file a folder, as the sources of which code is made."""
    for file in FILES:
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).write_text("x = 1\n")
    names = ("traces", "simkit", "analysis")
    monkeypatch.setattr(own_sources, "SOURCES", tuple(tmp_path / name for name in names))
    return tmp_path


@pytest.mark.parametrize("file", FILES)
def test_a_change_in_any_source_changes_the_name(packages, file):
    """Those of the folder of a function alone did, so old code was run with new callees."""
    before = own_sources.digest()
    assert own_sources.digest() == before
    (packages / file).write_text("x = 2\n")
    assert own_sources.digest() != before
    (packages / file).write_text("x = 1\n")
    assert own_sources.digest() == before
    (packages / file).rename((packages / file).with_name("other.py"))
    assert own_sources.digest() not in (before, None)
    assert kernels._fingerprint("one") != kernels._fingerprint("other")


def test_what_is_no_source_changes_nothing(packages):
    before = own_sources.digest()
    (packages / "traces" / "__pycache__").mkdir()
    (packages / "traces" / "__pycache__" / "forest.pyc").touch()
    (packages / "traces" / "notes.txt").touch()
    assert own_sources.digest() == before


def test_nothing_is_kept_of_sources_that_cannot_be_read(monkeypatch, packages):
    """As in an archive, or in packages without sources: nothing would tell them apart."""
    monkeypatch.setattr(kernels, "_bases", lambda package: [packages / "cache"])
    monkeypatch.setattr(kernels, "first_digest", own_sources.digest)
    (packages / "analysis" / "gap.py").unlink()
    assert own_sources.digest() is None and kernels._folder() is None
    kernels._folder.cache_clear()
    shutil.rmtree(packages / "analysis")
    assert own_sources.digest() is None and kernels._folder() is None
    assert kernels._fingerprint(None) == ""


def test_code_of_a_process_whose_sources_have_changed_is_not_kept(monkeypatch, tmp_path):
    """It is made of what was imported, under the name of what is there now."""
    monkeypatch.setattr(kernels, "_bases", lambda package: [tmp_path])
    function = kernels.compiled(plus_one)
    monkeypatch.setattr(kernels, "digest", lambda: "of other sources")
    assert function(1) == 2
    assert not list(tmp_path.rglob("*.nb*"))


def test_code_of_old_sources_is_removed(monkeypatch, tmp_path):
    monkeypatch.setattr(kernels, "_bases", lambda package: [tmp_path])
    monkeypatch.setattr(kernels, "_MOST_FOLDERS", 2)
    for k in range(3):
        (tmp_path / f"simkit-{k:016x}").mkdir()
        os.utime(tmp_path / f"simkit-{k:016x}", (k, k))
    (tmp_path / "simkit").mkdir()
    os.utime(tmp_path / "simkit", (0, 0))
    mine = kernels._folder()
    assert {*tmp_path.iterdir()} == {tmp_path / "simkit", tmp_path / f"simkit-{2:016x}", mine}


def test_folders_that_cannot_be_written_are_passed_over(monkeypatch, tmp_path):
    blocked = tmp_path / "file"
    blocked.touch()
    monkeypatch.setattr(kernels, "_bases", lambda package: [blocked, tmp_path / "next"])
    assert kernels._folder().parent == tmp_path / "next"
    monkeypatch.setattr(kernels, "_bases", lambda package: [blocked])
    kernels._folder.cache_clear()
    assert kernels._folder() is None
    function = kernels.compiled(plus_one)
    assert function(1) == 2
    assert not list(tmp_path.rglob("*.nbc"))


def test_the_folders_that_are_tried(monkeypatch, tmp_path):
    own = tmp_path / "own" / "__pycache__"
    monkeypatch.setattr(numba.config, "CACHE_DIR", "")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "mine"))
    assert kernels._bases(tmp_path / "own") == [tmp_path / "mine", own]
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path / "numba"))
    assert kernels._bases(tmp_path / "own")[0] == tmp_path / "numba"
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    assert kernels._bases(tmp_path / "own") == [tmp_path / "numba", own]


@pytest.fixture
def kept(monkeypatch, tmp_path):
    """A folder that holds the compiled `plus_one`."""
    monkeypatch.setattr(kernels, "_bases", lambda package: [tmp_path])
    monkeypatch.setattr(kernels, "_said", set())
    assert kernels.compiled(plus_one)(1) == 2
    return tmp_path


def damage(file, how):
    data = bytearray(file.read_bytes())
    if how == "flipped":
        data[len(data) // 2] ^= 1
    elif how == "folder":
        file.unlink()
        file.mkdir()
        return
    file.write_bytes(data[: {"empty": 0, "cut": len(data) // 2}.get(how, len(data))])


@pytest.mark.parametrize("suffix", ["nbi", "nbc"])
@pytest.mark.parametrize("how", ["flipped", "empty", "cut"])
def test_damaged_code_is_made_again_and_said(kept, suffix, how):
    (file,) = kept.rglob(f"*.{suffix}")
    damage(file, how)
    with pytest.warns(SimkitWarning, match="damaged, and made again"):
        assert kernels.compiled(plus_one)(1) == 2
    again = kernels.compiled(plus_one)  # no warning: it is whole
    assert again(1) == 2
    assert sum(again._cache_hits.values()) == 1


@pytest.mark.parametrize("suffix", ["nbi", "nbc"])
def test_code_of_another_function_is_made_again(kept, suffix):
    assert kernels.compiled(plus_two)(1) == 3
    one, two = sorted(kept.rglob(f"*.{suffix}"))
    first, second = one.read_bytes(), two.read_bytes()
    one.write_bytes(second)
    two.write_bytes(first)
    with pytest.warns(SimkitWarning, match="damaged, and made again"):
        assert (kernels.compiled(plus_one)(1), kernels.compiled(plus_two)(1)) == (2, 3)


def test_code_that_cannot_be_read_nor_written_is_done_without(kept):
    (file,) = kept.rglob("*.nbi")
    damage(file, "folder")
    with pytest.warns(SimkitWarning) as said:
        assert kernels.compiled(plus_one)(1) == 2
    assert "damaged" in str(said[0].message) and "cannot be kept" in str(said[-1].message)


def test_a_full_disk_stops_nothing(monkeypatch, kept):
    shutil.rmtree(kept)
    kept.mkdir()

    def full(*arguments):
        raise OSError(errno.ENOSPC, "No space left on device")

    function = kernels.compiled(plus_one)
    monkeypatch.setattr(kernels._File, "_save_data", full)
    with pytest.warns(SimkitWarning, match="cannot be kept in .*: No space left on device"):
        assert function(1) == 2


def test_two_first_processes_share_no_name(kept):
    """Nor does one that read the index before another wrote it."""
    first, second = kernels.compiled(plus_one), kernels.compiled(plus_one)
    shutil.rmtree(kept)
    kept.mkdir()
    assert first(1.5) == 2.5 and second(1) == 2
    names = [file.name for file in kept.rglob("*.nbc")]
    assert len(names) == 2
    third = kernels.compiled(plus_one)
    assert (third(1.5), third(1)) == (2.5, 2)


def test_kept_code_runs_before_numba_has_installed_anything(kept):
    """And what is compiled after it finds what it needs."""
    code = "import sys, pathlib, numpy as np; from numba.core.registry import cpu_target;"
    code += f"from traces import own_sources; here = pathlib.Path({str(HERE)!r});"
    code += "own_sources.SOURCES = (*own_sources.SOURCES, here);"
    code += "import test_kernels; from traces import kernels;"
    code += f"kernels._bases = lambda package: [pathlib.Path({str(kept)!r})];"
    code += "plus_one = kernels.compiled(test_kernels.plus_one); assert plus_one(1) == 2;"
    code += "assert sum(plus_one._cache_hits.values()) == 1;"
    code += "assert not cpu_target.target_context._registries;"
    code += "sorts = kernels.compiled_part(lambda x: np.sort(x)[0] + {1: 2.0}[1]);"
    code += "print(sorts(np.array([3.0, 1.0])), plus_one(1.5))"
    paths = os.pathsep.join(filter(None, sys.path))
    environment = {**os.environ, "PYTHONPATH": paths}
    command = [sys.executable, "-W", "error", "-c", code]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("3.0 2.5\n", "")


def test_code_for_one_thing_is_read_without_that_for_another(kept):
    for word in ("this", "that"):
        assert kernels.compiled(plus_one, made_for=word)(1) == 2
    (file,) = kept.rglob("*.that.nbi")
    damage(file, "flipped")
    assert kernels.compiled(plus_one, made_for="this")(1) == 2  # no warning
    with pytest.warns(SimkitWarning, match="damaged, and made again"):
        assert kernels.compiled(plus_one, made_for="that")(1) == 2


BEAMS = """
import hashlib, sys, traces
from simkit.simulator.arguments import setting
from simkit.trees.beams import beams_of
layout = setting(traces.load(sys.argv[1], "eagle-tree"), None, "draft").layout
digest = hashlib.sha256()
for values in beams_of(layout, 3):
    digest.update(values.tobytes())
print(digest.hexdigest())
"""
EXCHANGED = {
    "    first: np.ndarray\n    children: np": "    children: np.ndarray\n    first: np",
    "links = parent, depth, rank, total, first, children": (
        "links = parent, depth, rank, total, children, first"
    ),
}
BEST_ALONE = {"heads[b] < min(width, children[node])": "heads[b] < min(1, children[node])"}


def test_edits_of_what_compiled_code_calls_and_of_what_it_is_given_take_effect(tmp_path):
    """The folder was named after the sources beside the loop: old code ran, on other fields."""
    home, copy = Path(own_sources.__file__).parent.parent, tmp_path / "copy"
    for source in (
        file for name in ("traces", "simkit", "analysis") for file in (home / name).rglob("*.py")
    ):
        place = copy / source.relative_to(home)
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(source, place)
    trace = str(home / "traces" / "data" / "reference-trees")

    def found(file="", edits=None):
        place = copy / file
        before = place.read_text() if edits else ""
        for old, new in (edits or {}).items():
            assert place.read_text().count(old) == 1
            place.write_text(place.read_text().replace(old, new))
        environment = {**os.environ, "PYTHONPATH": str(copy), "XDG_CACHE_HOME": str(tmp_path)}
        command = [sys.executable, "-c", BEAMS, trace]
        given = {"env": environment, "cwd": tmp_path, "capture_output": True, "text": True}
        done = subprocess.run(command, check=False, **given)
        assert done.returncode == 0, done.stderr
        if edits:
            place.write_text(before)
        return done.stdout

    first = found()
    assert found("simkit/drafters/tree.py", EXCHANGED) == first
    assert found("traces/trees/forest.py", BEST_ALONE) != first
    assert found() == first
