"""Registries: one rule for what is registered twice, and for what other packages offer."""

import subprocess
import sys
import types
from importlib.metadata import EntryPoint

import pytest

from simkit import costs, policies
from traces.errors import UserError
from traces.registry import Registry


class WrongError(UserError):
    """What this registry raises."""


class Base:
    """What is registered."""

    name = ""


class One(Base):
    name = "one"


class Other(Base):
    name = "one"


GROUP = "things"


def registry(*points: tuple[str, str], own: dict[str, str] | None = None) -> Registry[type[Base]]:
    made: Registry[type[Base]] = Registry(
        "policy",
        WrongError,
        GROUP,
        lambda name, thing: isinstance(thing, type) and getattr(thing, "name", "") == name,
        own,
    )
    made._offers = {}
    for name, value in points:
        made._offers.setdefault(name, []).append(EntryPoint(name, value, GROUP))
    return made


def test_another_of_a_name_is_refused():
    things = registry()
    things.add("one", One)
    with pytest.raises(WrongError, match="a policy named one exists: One"):
        things.add("one", Other)
    assert things["one"] is One


def test_the_same_module_run_anew_takes_its_place():
    things = registry()
    things.add("one", One)
    again = type("One", (Base,), {"name": "one", "__module__": One.__module__})
    things.add("one", again)
    assert things["one"] is again


def test_a_module_that_is_run_and_imported_is_one(monkeypatch):
    things = registry(("one", "my.policies:One"))
    run = type("One", (Base,), {"name": "one", "__module__": "__main__"})
    main = types.ModuleType("__main__")
    main.__spec__ = types.SimpleNamespace(name="my.policies")  # type: ignore[assignment]
    monkeypatch.setitem(sys.modules, "__main__", main)
    things.add("one", run)
    assert things["one"] is run


def test_registered_by_an_import_and_offered_by_its_package():
    for value in (f"{__name__}:One", f"{__name__}:ALSO"):  # the place itself, and another way to it
        things = registry(("one", value))
        things.add("one", One)
        assert things["one"] is One
        assert list(things) == ["one"]


ALSO = One


@pytest.mark.parametrize(
    ("own", "points", "says"),
    [
        (One, [("one", f"{__name__}:Other")], f"{__name__}:One and {__name__}:Other"),
        (None, [("one", "a:B"), ("one", "c:B")], "a:B and c:B"),
    ],
)
def test_two_of_one_name_are_refused_when_that_name_is_asked_for(own, points, says):
    things = registry(*points)
    things.add("two", One)
    if own:
        things.add("one", own)
    assert things["two"] is One
    with pytest.raises(WrongError, match=f"two policies are named one: {says}"):
        things["one"]
    with pytest.warns(UserWarning, match="two policies are named one"):
        assert "two" in list(things)


@pytest.mark.parametrize(
    ("value", "says"),
    [
        ("no_such_module:Gone", "one: no_such_module:Gone cannot be loaded: ModuleNotFoundError"),
        (f"{__name__}:GROUP", "one: .*GROUP is no policy of that name"),
        (f"{__name__}:Base", "one: .*Base is no policy of that name"),
    ],
)
def test_what_a_package_offers_in_vain(value, says):
    things = registry(("one", value))
    with pytest.raises(WrongError, match=says) as caught:
        things["one"]
    assert "\n" not in str(caught.value)
    with pytest.warns(UserWarning, match="policy one: "):
        assert list(things) == []


def test_unknown_names_get_suggestions_of_all_that_there_are():
    things = registry(("newer", f"{__name__}:One"))
    things.add("one", One)
    with pytest.raises(WrongError, match=r"unknown policy 'newr' \(did you mean newer\?\)"):
        things["newr"]
    with pytest.raises(WrongError, match=r"\(known: newer, one\)"):
        things["zzzzz"]


def test_what_is_the_projects_own_is_loaded_when_it_is_asked_for(monkeypatch):
    monkeypatch.delitem(sys.modules, "colorsys", raising=False)
    things = registry(own={"one": f"{__name__}:One", "hue": "colorsys:ONE_THIRD"})
    assert things.known() == ["one", "hue"] and "hue" in things
    assert things["one"] is One
    assert "colorsys" not in sys.modules
    with pytest.raises(WrongError, match=r"unknown policy 'hu' \(did you mean hue\?\)"):
        things["hu"]
    with pytest.raises(WrongError, match="hue: colorsys:ONE_THIRD is no policy of that name"):
        things["hue"]
    assert "colorsys" in sys.modules


def test_a_name_of_the_projects_own_is_taken_before_it_is_loaded():
    things = registry(own={"one": f"{__name__}:One"})
    with pytest.raises(WrongError, match="a policy named one exists: One"):
        things.add("one", Other)
    assert things.add("one", One) is things["one"] is One
    things = registry(("one", f"{__name__}:Other"), own={"one": f"{__name__}:One"})
    with pytest.raises(WrongError, match="two policies are named one: .*:One and .*:Other"):
        things["one"]


@pytest.mark.parametrize("package", [policies, costs])
def test_classes_of_a_package_are_those_of_its_registry(package):
    for name, place in package.registry.BUILT_IN.items():
        cls = getattr(package, place.partition(":")[2])
        assert (cls.name, f"{cls.__module__}:{cls.__name__}") == (name, place)
        assert cls.__name__ in package.__all__
    with pytest.raises(AttributeError, match="has no attribute 'Nothing'"):
        _ = package.Nothing


def test_a_replay_imports_the_policy_and_the_cost_that_it_names():
    code = "import sys, simkit; from traces.synthetic import iid;"
    code += "cost = 'linear(draft_s=0.002, target_s=0.03)';"
    code += "simkit.replay(iid(3, 9, 0.7, max_draft=4, seed=1), 'fixed(2)', cost).records();"
    code += "from simkit.policies.registry import BUILT_IN as rules;"
    code += "from simkit.costs.registry import BUILT_IN as prices;"
    code += "places = [place.partition(':')[0] for place in (*rules.values(), *prices.values())];"
    code += "print(*(place for place in places if place in sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.split() == [
        "simkit.policies.fixed",
        "simkit.costs.linear",
        "simkit.costs.measured",  # a replay's intervals draw as many times as its samples do
    ]
