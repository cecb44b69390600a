"""Where compiled code is kept."""

import shutil

import numba
import pytest

from simkit.simulator import kernels


def plus_one(x):
    return x + 1


def cache_of(function):
    return getattr(function._cache, "cache_path", None)


def test_code_is_kept_under_a_name_made_from_its_sources(monkeypatch, tmp_path):
    monkeypatch.setattr(kernels, "_bases", lambda: [tmp_path])
    before = numba.config.CACHE_DIR
    function = kernels.compiled(plus_one)
    assert numba.config.CACHE_DIR == before
    assert function(1) == 2
    (folder,) = tmp_path.iterdir()
    assert folder.name == f"simkit-{kernels._fingerprint()}"
    assert str(cache_of(function)).startswith(str(folder))
    assert list(folder.rglob("*.nbc"))


@pytest.mark.parametrize("file", ["policies/svip.py", "simulator/compiled.py"])
def test_a_change_in_any_source_changes_the_name(monkeypatch, tmp_path, file):
    package = tmp_path / "simkit"
    shutil.copytree(kernels._PACKAGE, package, ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr(kernels, "_PACKAGE", package)
    before = kernels._fingerprint()
    assert kernels._fingerprint() == before
    with (package / file).open("a") as out:
        out.write("# changed\n")
    assert kernels._fingerprint() != before


def test_folders_that_cannot_be_written_are_passed_over(monkeypatch, tmp_path):
    blocked = tmp_path / "file"
    blocked.touch()
    monkeypatch.setattr(kernels, "_bases", lambda: [blocked, tmp_path / "next"])
    assert kernels._folder().parent == tmp_path / "next"
    monkeypatch.setattr(kernels, "_bases", lambda: [blocked])
    assert kernels._folder() is None
    function = kernels.compiled(plus_one)
    assert function(1) == 2
    assert not list(tmp_path.rglob("*.nbc"))


def test_the_folders_that_are_tried(monkeypatch, tmp_path):
    monkeypatch.setattr(numba.config, "CACHE_DIR", "")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "mine"))
    assert kernels._bases() == [tmp_path / "mine", kernels._PACKAGE / "__pycache__"]
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path / "numba"))
    assert kernels._bases()[0] == tmp_path / "numba"
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    assert kernels._bases() == [tmp_path / "numba", kernels._PACKAGE / "__pycache__"]
