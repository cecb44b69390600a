"""Where compiled code is kept."""

import errno
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numba
import pytest

from simkit.simulator.kernels import SOURCES
from traces import kernels
from traces.errors import SimkitWarning

HERE = Path(__file__).parent


def plus_one(x):
    return x + 1


def cache_of(function):
    return getattr(function._cache, "cache_path", None)


def test_code_is_kept_under_a_name_made_from_its_sources(monkeypatch, tmp_path):
    monkeypatch.setattr(kernels, "_bases", lambda package: [tmp_path])
    before = numba.config.CACHE_DIR
    function = kernels.compiled(plus_one)
    assert numba.config.CACHE_DIR == before
    assert function(1) == 2
    (folder,) = tmp_path.iterdir()
    assert folder.name == f"simkit-{kernels._fingerprint((HERE,))}"
    assert str(cache_of(function)).startswith(str(folder))
    assert list(folder.rglob("*.nbc"))


@pytest.mark.parametrize("file", ["policies/svip.py", "simulator/compiled.py"])
def test_a_change_in_any_source_changes_the_name(tmp_path, file):
    sources = tuple(tmp_path / folder.name for folder in SOURCES)
    for folder, copy in zip(SOURCES, sources, strict=True):
        shutil.copytree(folder, copy, ignore=shutil.ignore_patterns("__pycache__"))
    before = kernels._fingerprint(sources)
    assert kernels._fingerprint(sources) == before
    with (tmp_path / file).open("a") as out:
        out.write("# changed\n")
    assert kernels._fingerprint(sources) != before


def test_folders_that_cannot_be_written_are_passed_over(monkeypatch, tmp_path):
    blocked = tmp_path / "file"
    blocked.touch()
    monkeypatch.setattr(kernels, "_bases", lambda package: [blocked, tmp_path / "next"])
    assert kernels._folder(SOURCES).parent == tmp_path / "next"
    monkeypatch.setattr(kernels, "_bases", lambda package: [blocked])
    assert kernels._folder(SOURCES) is None
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
