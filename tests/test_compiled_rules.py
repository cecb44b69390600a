"""Which compiled code belongs to which rule, and that a rule reads the values of the day."""

import math
import os
import pickle
import subprocess
import sys
import types
from dataclasses import dataclass
from typing import NamedTuple

import numba
import numpy as np
import pytest
from numba.extending import register_jitable

import simkit
from simkit import policies
from simkit.policies import SVIP, NumericPolicy, PolicyError, Slots, surroundings
from simkit.policies.arguments import as_it_is, whole_number
from simkit.serving import controllers
from simkit.serving.controllers.base import Slots as Decides
from simkit.serving.controllers.static import Static, StaticParams
from simkit.simulator.arguments import setting
from simkit.steps import compiled, compiled_rules, interpreted
from traces.own_sources import is_own
from traces.synthetic import iid

COLUMNS = ("draft_prob_raw",)
RULES = """
from dataclasses import dataclass
import simkit, sys
from simkit.policies import SVIP, Slots
from traces.synthetic import iid

def first(params, state, depth, row):
    return depth >= 2, state
def second(params, state, depth, row):
    return depth >= 3, state
def named(base, slots):
    return dataclass(frozen=True)(type("Mine", (base,), {"slots": slots, "name": "mine"}))

trace = iid(20, 60, 0.7, max_draft=12, seed=3)
KNOWN = {
    "svip": "svip(h=0.4)",
    "first": named(SVIP, Slots(trips=first))(),
    "second": named(SVIP, Slots(trips=second))(),
    "borrowed": named(SVIP, Slots(trips=simkit.policies.get("fixed").slots.trips))(max_draft=5),
}
for name in sys.argv[1:]:
    print(simkit.replay(trace, KNOWN[name]).records()[0]["steps"])
"""


@pytest.fixture(scope="module")
def trace():
    return iid(20, 60, 0.7, max_draft=12, seed=3)


@pytest.fixture(scope="module")
def layout(trace):
    return setting(trace, None, "draft").layout


def run_in_process(names, folder):
    environment = {**os.environ, "XDG_CACHE_HOME": str(folder), "NUMBA_CACHE_DIR": ""}
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, sys.path))
    command = [sys.executable, "-c", RULES, *names]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return [int(line) for line in done.stdout.split()]


@pytest.fixture(scope="module")
def steps(trace, layout):
    """Of each rule, from the plain replay."""
    found = {
        "svip": "svip(h=0.4)",
        "first": "fixed(2)",
        "second": "fixed(3)",
        "borrowed": "fixed(5)",
    }
    return {
        n: len(interpreted.walk(policies.parse(s), layout, 1).drafted) for n, s in found.items()
    }


def test_a_subclass_has_its_own_rule_in_every_order_and_process(steps, tmp_path):
    """`svip` was replayed by what the subclass had left on the disk, and so was the next one."""
    assert len(set(steps.values())) == 4
    for names in (["first", "svip"], ["svip", "second", "borrowed"]):
        assert run_in_process(names, tmp_path) == [steps[name] for name in names]


def test_a_controller_that_derives_from_another_has_its_own_rule(trace):
    """Both had the same number, and the disk kept it."""

    def third_of(params, state, view, prices, drafted):
        drafted[:] = params.length // 3

    @dataclass(frozen=True)
    class Third(Static):
        name = "third"
        slots = Decides(third_of)

    cost = "linear(draft_s=0.001, target_s=0.01, target_per_token_s=0.001, draft_per_token_s=1e-4)"
    given = {"concurrency": 2, "requests": 20, "seeds": 2}
    found = simkit.serve(trace, [Third(6), "static(6)"], cost, **given).records()
    third, static = (row["length"] for row in found)
    assert 1.9 < third <= 2 and 5.6 < static <= 6  # cut at the ends of outputs alone
    for controller, kept in ((Third(6), False), (Static(6), True)):
        rule = compiled_rules.rule_of(controller, StaticParams, controller.slots)
        assert bool(rule.kept_as) == kept


def told(params, state, depth, row):
    return depth >= 2, state


def pretends(params, state, depth, row):
    return depth >= 2, state


pretends.__module__, pretends.__qualname__ = SVIP.slots.trips.__module__, "trips"


@pytest.mark.parametrize("trips", [told, pretends, lambda params, state, depth, row: (True, state)])
def test_code_of_a_function_of_ones_own_is_not_kept(trips):
    """Wherever its module claims to be."""
    assert is_own(SVIP.slots.trips) and not is_own(trips)
    rule = compiled_rules.rule_of("mine", type(SVIP().params), Slots(trips=trips))
    assert rule.kept_as == "" and rule.params is not type(SVIP().params)


def test_what_is_put_into_our_modules_is_not_ours(monkeypatch):
    module, params = sys.modules[SVIP.slots.trips.__module__], type(SVIP().params)
    monkeypatch.setattr(module, "trips", pretends)
    assert not is_own(pretends)
    assert not is_own(SVIP.slots.trips)  # which is no longer what the module has
    monkeypatch.setattr(module, "SVIPParams", StaticParams)
    assert not is_own(params)


def test_all_slots_and_the_parameters_tell_rules_apart():
    """Of rules of ours too: the word for their files names each of them."""
    svip, params = SVIP(), type(SVIP().params)
    borrowed = Slots(trips=policies.get("confidence").slots.trips)
    words = {compiled_rules._word(params, slots) for slots in (svip.slots, borrowed)}
    words |= {compiled_rules._word(type(policies.get("confidence")().params), borrowed)}
    for other in (policies.get("heuristic"), policies.get("pacer")):
        words.add(compiled_rules._word(type(other().params), other.slots))
    assert len(words) == 5
    assert compiled_rules.rule_of(svip, params, svip.slots).kept_as in words
    assert compiled_rules.rule_of("Mine", params, borrowed).params is not params


def test_no_two_rules_of_ours_share_their_parameters():
    """Else only the code of the first one would be kept."""
    kinds = [policies.get(name) for name in policies.names()]
    rules = {
        (type(made.params), made.slots)
        for kind in kinds
        if issubclass(kind, NumericPolicy) and kind.name not in ("prophet", "rate_optimal")
        for made in [kind()]
    }
    assert len({params for params, _ in rules}) == len(rules) > 10
    assert all(compiled_rules.rule_of("one", *rule).kept_as for rule in rules)


def test_a_method_that_is_overridden_counts(layout):
    """The loop calls slots: it would have left the method out."""

    @dataclass(frozen=True)
    class Mine(SVIP):
        name = "mine"

        def trips(self, state, depth, row):
            return depth >= 2, state

    assert compiled.compiles(SVIP()) and not compiled.compiles(Mine())
    (row,) = simkit.replay(layout.trace, Mine()).records()
    assert row["steps"] == len(interpreted.walk(policies.Fixed(2), layout, 1).drafted)


H = 0.5
NUMBERS = np.array([0.5])
PAIR = (1, 0.5)
OTHER = types.ModuleType("other")
OTHER.H = 0.5
OTHER.inner = types.ModuleType("inner")
OTHER.inner.H = 0.5


@numba.njit
def helper(x):
    return x < H


@numba.njit
def outer_helper(x):
    return helper(x)


def by_global(depth, row):
    return row.draft_prob_raw < H


def by_array(depth, row):
    return row.draft_prob_raw < NUMBERS[0]


def by_tuple(depth, row):
    return row.draft_prob_raw < PAIR[1]


def by_module(depth, row):
    return row.draft_prob_raw < OTHER.H


def by_inner_module(depth, row):
    near = OTHER.inner
    return row.draft_prob_raw < near.H


def by_helper(depth, row):
    return helper(row.draft_prob_raw)


def by_helper_of_a_helper(depth, row):
    return outer_helper(row.draft_prob_raw)


def by_default(depth, row, most=0.5):
    return row.draft_prob_raw < most


def closed_over():
    most = 0.5

    def by_cell(depth, row):
        return row.draft_prob_raw < most

    def change(value):
        nonlocal most
        most = value

    return by_cell, change


by_cell, change_cell = closed_over()


def set_global(value):
    global H
    H = value


def set_tuple(value):
    global PAIR
    PAIR = (1, value)


READS = {
    by_global: set_global,
    by_array: lambda value: NUMBERS.__setitem__(0, value),
    by_tuple: set_tuple,
    by_module: lambda value: setattr(OTHER, "H", value),
    by_inner_module: lambda value: setattr(OTHER.inner, "H", value),
    by_helper: set_global,
    by_helper_of_a_helper: set_global,
    by_default: lambda value: setattr(by_default, "__defaults__", (value,)),
    by_cell: change_cell,
}


def columns(function, is_compiled):
    return simkit.policy(function, columns=COLUMNS, compiled=is_compiled, max_draft=6)


def number(trace, policy):
    return simkit.replay(trace, policy).records()[0]["steps"]


@pytest.mark.parametrize("function", READS, ids=lambda function: function.__name__)
def test_a_compiled_rule_reads_what_it_does_plainly(function, layout):
    """And is made anew where a value has changed: it kept the one of its first replay."""
    READS[function](0.5)
    found = []
    for value in (0.5, 0.0, 0.5):
        READS[function](value)
        bound = columns(function, True).bind(setting(layout.trace, None, "draft"))
        said = bound.params, bound.slots.trips(bound.params, (), 1, (0.3,))[0]
        plainly = columns(function, False)
        plainly = plainly.bind(setting(layout.trace, None, "draft"))
        assert said[1] == plainly.trips((), 1, (0.3,))[0] == (0.3 < value)
        found.append(type(bound.params))
    assert found[0] is found[2] is not found[1]  # nothing is compiled twice


def test_a_change_is_seen_in_a_replay(trace):
    """0.7 of the tokens are accepted; the rule stops before the first where H is large."""
    found = []
    for value in (0.0, 2.0):
        set_global(value)
        both = [number(trace, columns(by_global, is_compiled)) for is_compiled in (True, False)]
        assert both[0] == both[1]
        found.append(both[0])
    set_global(0.5)
    assert found[0] < found[1]


def test_a_numeric_policy_of_ones_own_reads_the_values_of_the_day(trace, layout):
    class MineParams(NamedTuple):
        max_draft: int

    def trips(params, state, depth, row):
        return row[0] < H, state

    @dataclass(frozen=True)
    class Mine(NumericPolicy):
        max_draft: int = 6
        name = "mine"
        slots = Slots(trips=trips)

        @property
        def params(self):
            return MineParams(self.max_draft)

        def columns(self, sampler):
            return COLUMNS

    for value in (0.0, 2.0):
        set_global(value)
        assert compiled.compiles(Mine())
        assert number(trace, Mine()) == len(interpreted.walk(Mine(), layout, 1).drafted)
    set_global(0.5)


@register_jitable
def registered(x):
    return x < H


@register_jitable
def harmless(x):
    return math.sqrt(x) < 0.5


def test_a_helper_that_would_keep_its_first_value_is_refused(trace):
    rule = simkit.policy(lambda depth, row: registered(row.draft_prob_raw), compiled=True, name="r")
    with pytest.raises(policies.PolicyError) as error:
        simkit.replay(trace, rule)
    assert str(error.value) == (
        "r: registered, which it calls, reads H, and compiled code would keep the value of H for"
        " ever: decorate registered with numba.njit, or give it H as an argument"
    )
    fine = simkit.policy(lambda depth, row: harmless(row.draft_prob_raw), compiled=True)
    assert fine.bind(setting(trace, None, "draft"))


def test_values_are_told_apart():
    """What numba takes for constants by value, all else by being the same object."""
    by_value = surroundings.by_value
    assert by_value(1) != by_value(True) and by_value(1) != by_value(1.0)
    assert by_value(0.0) != by_value(-0.0) and by_value(math.nan) == by_value(float("nan"))
    assert by_value((1, 2.0)) != by_value((1, 2)) and by_value("a") == by_value("a")
    assert by_value(np.ones(2)) == by_value(np.ones(2)) != by_value(np.ones(2, np.float32))
    assert by_value(np.ones(2)) != by_value(np.ones((2, 1)))
    assert by_value(object()) != by_value(object())


def test_functions_of_ours_are_not_compiled_anew():
    """Their numbers do not change, and their code is kept."""
    from simkit.serving.pass_prices import draft_s

    read = surroundings.values_read([lambda: draft_s])
    assert [name for name, _ in read] == ["draft_s"]


PARAMS = {  # what rules are given: names, order and types
    "adaedl(threshold=1)": "AdaEDLParams(scale=0.2, threshold=1.0, target=0.9, beta1=0.5,"
    " beta2=0.9, epsilon=0.01, first_rate=0.0, rests=False, drops=None, min_draft=0, max_draft=40)",
    "adaedl(keep=false, rests=true, min_draft=1)": "AdaEDLParams(scale=0.2, threshold=0.3,"
    " target=0.9, beta1=0.5, beta2=0.9, epsilon=0.01, first_rate=0.0, rests=True, drops=True,"
    " min_draft=1, max_draft=40)",
    "autoregressive": "AutoregressiveParams(max_draft=0)",
    "confidence(threshold=1)": "ConfidenceParams(threshold=1.0, max_draft=20)",
    "draft_verify(epsilon=0)": "DraftVerifyParams(threshold=0.6, target=0.9, beta1=0.5, beta2=0.9,"
    " epsilon=0.0, max_draft=8)",
    "fixed(3)": "FixedParams(max_draft=3)",
    "heuristic(feedback=nominal)": "HeuristicParams(initial=20, nominal=True, max_draft=40)",
    "llamacpp(p_min=1)": "LlamaCppParams(p_min=1.0, n_min=0, keep=False, max_draft=16)",
    "pacer(criterion=any)": "PacerParams(block=4, threshold=0.7, growth=1.05, mean=False,"
    " last=False, nothing=inf, carry=False, max_draft=40)",
    "specdecpp": "SpecDecPPParams(threshold=0.3, min_draft=2, lag=None, max_draft=20)",
    "specdecpp(lag=1)": "SpecDecPPParams(threshold=0.3, min_draft=2, lag=1, max_draft=20)",
    "svip(h=1, scale=2)": "SVIPParams(most=1.0000000000000002, scale=2.0, max_draft=40)",
    "none": "NothingParams(max_draft=0)",
    "off_above(2)": "OffAboveParams(length=2, batch=32)",
    "budget(search=global)": "BudgetParams(stale=2, calibrated=True, refit=100, least=50,"
    " ridge=0.001, first_drop=False, max_draft=7)",
}


@pytest.mark.parametrize("spec", PARAMS)
def test_numbers_of_rules_follow_from_fields(spec):
    known = spec.partition("(")[0] in policies.names()
    made = policies.parse(spec) if known else controllers.parse(spec)
    assert repr(made.params) == PARAMS[spec] and is_own(type(made.params))
    assert made.params is made.params  # they are made once, not in each step
    again = pickle.loads(pickle.dumps(made))
    assert again == made and type(again.params) is type(made.params)


@dataclass(frozen=True)
class Later(SVIP):
    """SVIP from a depth on: one number more, and a default of its own."""

    h: float = 0.5
    after: int = 2
    name = "later"
    slots = Slots(trips=lambda params, state, depth, row: (depth > params.after, state))


@pytest.mark.parametrize("first", [SVIP, Later])
def test_a_subclass_with_a_number_more_has_a_class_of_its_own(first, trace, layout):
    second = {SVIP: Later, Later: SVIP}[first]
    for kind in (first, second):
        assert number(trace, kind()) == len(interpreted.walk(kind(), layout, 1).drafted)
    assert repr(Later(h=1).params) == (
        "LaterParams(most=1.0000000000000002, scale=1.0, after=2, max_draft=40)"
    )
    assert not compiled.rule(Later()).kept_as and compiled.rule(SVIP()).kept_as
    assert type(pickle.loads(pickle.dumps(Later())).params) is type(Later().params)
    with pytest.raises(policies.PolicyError, match="later: h must be a number >= 0, not -1"):
        Later(h=-1)  # as its parent checks it


def test_parameters_do_not_draft_beyond_the_policy():
    """Else compiled code would draft more than plain code, and read prices past their table."""

    @dataclass(frozen=True)
    class Longer(NumericPolicy):
        length: int = whole_number(5, numbers={"max_draft": as_it_is})
        max_draft: int = whole_number(8, numbers={})
        name = "longer"
        slots = Slots()

    trace = iid(4, 30, 0.9, max_draft=30, seed=0)
    assert simkit.replay(trace, Longer(8)).records()[0]["steps"] > 0
    with pytest.raises(PolicyError, match="a longest draft of 20 tokens among its params is"):
        simkit.replay(trace, Longer(20))
