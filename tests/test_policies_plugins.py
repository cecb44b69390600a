"""Policies of other packages: found, loaded twice without harm, and their errors in one line."""

from __future__ import annotations

import importlib
import importlib.metadata
import os
import subprocess
import sys
from pathlib import Path

import pytest

import simkit
from simkit.policies import Policy, PolicyError, parse
from simkit.policies.registry import POLICIES
from traces.errors import UserError
from traces.synthetic import iid
from traces.versions import installed_version

ROOT = Path(__file__).parents[1]
MINE = """
from dataclasses import dataclass
from typing import NamedTuple

from simkit.policies import NumericPolicy, Slots, parse, register


class MineParams(NamedTuple):
    length: int
    max_draft: int


def trips(params, state, depth, row):
    return depth == params.length, state


@register
@dataclass(frozen=True)
class Mine(NumericPolicy):
    length: int
    max_draft: int = 40
    name = "mine"
    slots = Slots(trips=trips)

    def __post_init__(self):
        if self.length < 0:
            raise ValueError("length below 0\\nand that is wrong")

    @property
    def params(self):
        return MineParams(self.length, self.max_draft)

    def columns(self, sampler):
        return ()


if __name__ == "__main__":
    print(parse("mine(3)").length, parse("fixed(2)"))
"""
POINT = "[simkit.policies]\nmine = {}\n"


def installed(folder: Path, name: str = "my_rules", value: str | None = None) -> Path:
    """A package that offers `mine`, as pip leaves one: the module, and its entry point."""
    (folder / f"{name}.py").write_text(MINE)
    (folder / f"{name}_names.py").write_text(f"from {name} import Mine as Other\n")
    about = folder / f"{name}-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text(POINT.format(value or f"{name}:Mine"))
    return folder


@pytest.fixture
def package(tmp_path, monkeypatch):
    """`installed`, and a registry that forgets it afterwards."""
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(POLICIES, "_things", dict(POLICIES._things))
    monkeypatch.setattr(POLICIES, "_origins", dict(POLICIES._origins))
    monkeypatch.setattr(POLICIES, "_offers", None)
    yield tmp_path
    for name in [name for name in sys.modules if name.startswith("my_rules")]:
        del sys.modules[name]


@pytest.mark.parametrize("value", ["my_rules:Mine", "my_rules_names:Other"])
def test_its_module_may_be_imported_first(package, value):
    installed(package, value=value)
    mine = importlib.import_module("my_rules").Mine
    assert parse("mine(3)") == mine(3)
    assert str(parse("svip")) == "svip(h=0.4)"


def test_its_module_may_be_loaded_anew(package):
    installed(package)
    assert parse("mine(3)").length == 3  # type: ignore[attr-defined]
    module = importlib.reload(sys.modules["my_rules"])
    assert type(parse("mine(3)")) is module.Mine
    trace = iid(3, 20, 0.8, max_draft=20, seed=0)
    ours, fixed = simkit.replay(trace, ["mine(3)", "fixed(3)"]).records()
    assert ours["steps"] == fixed["steps"]


def test_its_module_may_be_the_program(tmp_path):
    installed(tmp_path)
    paths = os.pathsep.join([str(tmp_path), str(ROOT)])
    done = subprocess.run(
        [sys.executable, "-m", "my_rules"],
        env=os.environ | {"PYTHONPATH": paths},
        capture_output=True,
        text=True,
    )
    assert (done.stdout, done.stderr) == ("3 fixed(2)\n", "")


def test_a_policy_that_has_the_name_of_another_is_refused(package):
    installed(package)
    installed(package, "my_rules_too")
    with pytest.raises(PolicyError, match="two policies are named mine: my_rules") as caught:
        parse("mine(3)")
    assert "my_rules_too:Mine" in str(caught.value)
    assert str(parse("svip")) == "svip(h=0.4)"
    importlib.import_module("my_rules")
    with pytest.raises(PolicyError, match="a policy named mine exists: Mine"):
        importlib.import_module("my_rules_too")


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        (
            "mine(-1)",
            "mine: its arguments are refused: ValueError: length below 0 and that is wrong",
        ),
        (
            "mine(big)",
            "mine: its arguments are refused: TypeError:"
            " '<' not supported between instances of 'str' and 'int'",
        ),
        ("mine()", "mine: length is not given"),
    ],
)
def test_its_check_of_arguments_complains_in_one_line(package, spec, said):
    installed(package)
    with pytest.raises(UserError) as caught:
        parse(spec)
    assert str(caught.value) == said


def test_a_checkout_that_is_not_installed(monkeypatch):
    """A sweep says which version made it; a source tree has none."""

    def none(name):
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "distribution", none)
    trace = iid(3, 20, 0.8, max_draft=20, seed=0)
    cost = "linear(draft_s=1, target_s=6)"
    assert simkit.sweep(trace, ["fixed(1:2)"], cost).facts["version"] == "unknown"
    assert installed_version("no-such-package") == "unknown"


def test_a_policy_of_no_family_is_refused_by_name():
    """What a step of it did is known to nobody."""

    class Own(Policy):
        name, max_draft = "own", 4

        def columns(self, sampler):
            return ()

        def __str__(self):
            return "own()"

    for family in (None, "forest"):
        Own.family = family  # type: ignore[assignment]
        with pytest.raises(PolicyError, match=r"own\(\): its family is .*, not one of chain"):
            simkit.replay(iid(2, 9, 0.7, max_draft=4, seed=1), Own())
