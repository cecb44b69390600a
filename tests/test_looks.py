"""One look for each policy, controller and drafter."""

from importlib import metadata
from itertools import combinations

import pytest

from analysis import series_styles
from analysis.series_styles import (
    CONTROLLERS,
    DRAFTERS,
    LENGTHS,
    POLICIES,
    of_controller,
    of_policy,
)
from simkit import policies, serving
from simkit.policies.registry import POLICIES as REGISTERED
from traces.attach import registry
from traces.trace import OWN, load


@pytest.mark.parametrize(
    "some",
    [
        list(POLICIES.values()),
        [*LENGTHS, *(look for name, look in CONTROLLERS.items() if name != "none")],
        [look for kind, both in DRAFTERS.items() if kind != "model" for look in both],
    ],
    ids=["policies", "controllers", "drafters"],
)
def test_looks_of_one_kind_are_told_apart(some):
    """By colour, and in grey by marks; bars of one colour by their hatches."""
    for one, other in combinations(some, 2):
        assert one.marker != other.marker
        assert (one.color, one.hatch) != (other.color, other.hatch)


def test_all_that_comes_with_the_package_has_a_look():
    others = {point.name for point in metadata.entry_points(group="simkit.policies")}
    assert set(REGISTERED) - others <= POLICIES.keys()
    others = {point.name for point in metadata.entry_points(group="simkit.controllers")}
    known = {*CONTROLLERS, "static"}
    assert set(serving.controllers.CONTROLLERS) - others - {"function", "schedule"} <= known
    assert set(registry.names()) <= DRAFTERS.keys()


def test_a_look_follows_from_a_policy_s_name():
    assert of_policy("svip(h=0.4)") == of_policy(policies.SVIP(h=0.9)) == POLICIES["svip"]
    assert of_controller("svip(h=0.4)") == POLICIES["svip"]
    assert of_controller("static(1)") != of_controller("static(3)") != of_controller("static(7)")


def test_a_policy_of_ones_own_keeps_its_look():
    """The same on every machine: a hash of the name, and a mark that nothing listed has."""
    assert of_policy("mine(a=1)") == of_policy("mine(a=2)") == series_styles.of_name("mine")
    assert series_styles.of_name("mine") != series_styles.of_name("yours")
    assert series_styles.of_name("mine") == ("#009E73", (8, 1, 22.5), ":", "xxxx")
    listed = {look.marker for look in (*POLICIES.values(), *CONTROLLERS.values(), *LENGTHS)}
    assert listed.isdisjoint(series_styles.of_name(f"rule{k}").marker for k in range(50))


def test_drafters_keep_their_looks_where_others_are_left_out():
    found = series_styles.drafters_of(load("reference"))
    assert list(found) == [OWN, *load("reference").drafters]
    assert found == series_styles.drafters_of(load("reference", "pard2"))
    assert found["pard"].color != found["pard2"].color
    alone = series_styles.of_drafters({"a": "parallel(x)", "b": "parallel(y)", "c": "parallel(z)"})
    assert len(set(alone.values())) == 3 and alone["c"] == series_styles.of_name("c")


def test_ink_is_seen_on_any_page():
    import matplotlib as mpl

    prophet = of_policy("prophet")
    with mpl.rc_context({"text.color": "white"}):
        assert prophet.line["color"] == prophet.bar["facecolor"] == "white"
    assert of_policy("fixed(3)").color.startswith("#")
