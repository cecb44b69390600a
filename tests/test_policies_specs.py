"""The text form of policies, and the registry."""

import pickle
from dataclasses import FrozenInstanceError, dataclass

import numpy as np
import pytest
from replay_traces import bound, build

from simkit import policies
from simkit.policies import PolicyError

CANONICAL = {
    "fixed(5)": policies.Fixed(5),
    "fixed(7, max_draft=9)": policies.Fixed(7, 9),
    "svip(h=0.4)": policies.SVIP(),
    "svip(h=0.3, scale=0.15)": policies.SVIP(0.3, 0.15),
    "autoregressive()": policies.Autoregressive(),
    "oracle()": policies.Oracle(),
    "oracle(max_draft=6)": policies.Oracle(6),
    "confidence(threshold=0.4)": policies.Confidence(),
    "heuristic(initial=5, schedule=heuristic, feedback=nominal)": policies.Heuristic(
        5, "heuristic", "nominal"
    ),
}


@pytest.mark.parametrize("text", CANONICAL)
def test_canonical_specs_round_trip(text):
    policy = CANONICAL[text]
    assert policies.parse(text) == policy
    assert str(policy) == text


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        (" fixed ( 5 ) ", "fixed(5)"),
        ("fixed(length = 5)", "fixed(5)"),
        ("fixed", "fixed(5)"),
        ("svip(1)", "svip(h=1)"),
        ("svip(h=5e-1,)", "svip(h=0.5)"),
        ("heuristic(schedule='heuristic')", "heuristic(initial=20, schedule=heuristic)"),
        ('heuristic(schedule="transient")', "heuristic(initial=20)"),
    ],
)
def test_other_ways_to_write_them(text, canonical):
    assert str(policies.parse(text)) == canonical


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("svpi(h=0.4)", r"unknown policy 'svpi' \(did you mean svip\?\)"),
        ("zzz", r"unknown policy 'zzz' \(known: acceptance_head, adaedl, "),
        ("svip(x=0.4)", r"svip has no argument 'x' \(known: h, max_draft, scale\)"),
        ("svip(scal=1)", r"did you mean scale\?"),
        ("svip(h=0.4", "not of the form"),
        ("", "not of the form"),
        ("svip(h=)", r"svip\(h=\): cannot read 'h='"),
        ("svip(h=0.4 0.5)", "cannot read"),
        ("svip(h=0.4, 0.5)", "has no name"),
        ("svip(h=0.4, h=0.5)", "h is given twice"),
        ("svip(0.4, h=0.5)", "h is given twice"),
        ("svip(1, 2, 3, 4)", "svip takes 3 arguments, not 4"),
        ("autoregressive(1)", "autoregressive takes 0 arguments, not 1"),
        ("svip(h=nan)", "h must be a number >= 0, not 'nan'"),
        ("svip(h=-0.1)", "h must be a number >= 0, not -0.1"),
        ("svip(h=true)", "h must be a number >= 0, not True"),
        ("confidence(threshold=1.5)", r"threshold must be a number in \[0, 1\], not 1.5"),
        ("fixed(2.5)", "length must be a whole number >= 0, not 2.5"),
        ("fixed(-1)", "length must be a whole number >= 0, not -1"),
        ("fixed(50)", "length 50 is above max_draft 40; if the trace was recorded that deep"),
        ("heuristic(initial=0)", "initial must be a whole number >= 1"),
        ("heuristic(schedule=constant)", "schedule must be transient or heuristic"),
        ("heuristic(feedback=none)", "feedback must be actual or nominal"),
        ("fixed(1:10)", r"fixed\(1:10\): 1:10 is a range"),
        ("fixed(10:1)", "the range 10:1 is empty"),
        ("svip(h=0:1:0)", "the range 0:1:0 is empty"),
        ("svip(h=0:1e999999999)", "numbers that are too large or too close"),
    ],
)
def test_bad_specs_are_refused_in_one_line(text, message):
    with pytest.raises(PolicyError, match=message) as caught:
        policies.parse(text)
    assert "\n" not in str(caught.value)


def test_ranges_expand_with_both_ends():
    assert [p.length for p in policies.expand("fixed(1:10)")] == list(range(1, 11))
    assert [p.length for p in policies.expand("fixed(1:10:3)")] == [1, 4, 7, 10]
    thresholds = [p.h for p in policies.expand("svip(h=0.1:1.0:0.05)")]
    assert thresholds == [round(0.05 * k, 2) for k in range(2, 21)]
    both = [str(p) for p in policies.expand("svip(h=0.1:0.2:0.1, scale=0.5:1.0:0.5)")]
    assert both == [
        "svip(h=0.1, scale=0.5)", "svip(h=0.1)", "svip(h=0.2, scale=0.5)", "svip(h=0.2)",
    ]  # fmt: skip
    assert policies.expand("oracle") == [policies.Oracle()]


def test_too_many_policies_are_refused():
    with pytest.raises(PolicyError, match="means 1,000,000,000 policies, more than 10"):
        policies.expand("svip(h=1:1000000000)", limit=10)


def test_a_name_is_registered_once():
    with pytest.raises(PolicyError, match="a policy named fixed exists: Fixed"):

        @policies.register
        class Other(policies.Fixed):
            name = "fixed"

    assert policies.get("fixed") is policies.Fixed


@pytest.mark.parametrize("name", policies.names())
def test_every_policy(name):
    cls = policies.get(name)
    policy = cls()
    assert policies.parse(name) == policy
    assert policies.parse(str(policy)) == policy
    assert pickle.loads(pickle.dumps(policy)) == policy
    assert hash(policy) == hash(cls())
    with pytest.raises(FrozenInstanceError):
        policy.max_draft = 3
    for words in ("Tripping token:", "Score:", "State:", "Feedback:"):
        assert words in cls.__doc__
    if isinstance(policy, policies.Sequential):
        fitted = bound(policy, build([[(1, 1), (1, 2)]], t_max=2, max_draft=2))
        assert fitted.limit(fitted.begin(0), 7) <= policy.max_draft


def test_subclass_without_registration_has_a_spec_too():
    @dataclass(frozen=True)
    class Mine(policies.SVIP):
        name = "mine"

    assert str(Mine(0.2)) == "mine(h=0.2)"


def test_numbers_of_numpy_become_those_of_python():
    for policy, text in (
        (policies.Fixed(np.int64(5)), "fixed(5)"),
        (policies.SVIP(h=np.float64(0.4), scale=np.int32(2)), "svip(h=0.4, scale=2)"),
        (policies.Confidence(np.float32(0.5)), "confidence(threshold=0.5)"),
    ):
        assert str(policy) == text
        assert policy == policies.parse(text)
    assert type(policies.SVIP(h=np.float64(0.4)).h) is float
    for wrong in (np.float64(5), np.True_, np.array([5])):
        with pytest.raises(PolicyError, match="length must be a whole number"):
            policies.Fixed(wrong)


@pytest.mark.parametrize(
    "spec, deepest, expected",
    [
        ("svip(h=0.4)", 16, "svip(h=0.4, max_draft=16)"),
        ("svip(h=0.4, max_draft=16)", 16, "svip(h=0.4, max_draft=16)"),
        ("fixed(4)", 3, None),
        ("fixed(4)", 4, "fixed(4, max_draft=4)"),
        ("llamacpp(n_max=20)", 16, None),
        ("pearl(window=12)", 8, None),
        ("autoregressive", 0, "autoregressive"),
    ],
)
def test_shortened(spec, deepest, expected):
    found = policies.shortened(policies.parse(spec), deepest)
    assert (found and str(found)) == (expected and str(policies.parse(expected)))


def test_a_number_beyond_all_floats_is_refused():
    with pytest.raises(PolicyError, match="h must be a number >= 0"):
        policies.parse(f"svip(h=1{'0' * 400})")
