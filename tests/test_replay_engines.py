"""Both engines give the steps that the design's words give, for every registered policy."""

from importlib import import_module
from importlib.metadata import EntryPoint
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from replay_traces import (
    EOS,
    SEQUENTIAL,
    bound,
    build,
    holds,
    steps_by_hand,
    tiny_traces,
    with_scores,
)

from simkit import policies
from simkit.drafters.path import PathLayout
from simkit.errors import ReplayError
from simkit.policies.registry import POLICIES
from simkit.simulator.arguments import setting
from simkit.simulator.run import run
from simkit.steps import compiled, interpreted
from traces.sampler import Sampler
from traces.synthetic import iid

SPECS = [
    *SEQUENTIAL,
    "fixed(0)",
    "fixed(1)",
    "fixed(3)",
    "oracle(max_draft=2)",
    "heuristic(initial=2)",
    "heuristic(initial=3, schedule=heuristic)",
    "heuristic(initial=2, schedule=heuristic, feedback=nominal)",
    "heuristic(initial=1, max_draft=2)",
    "svip(h=0.8)",
    "svip(h=0.5, scale=0.5, max_draft=3)",
    "confidence(threshold=0.1)",
]
CASES = settings(max_examples=25, deadline=None)


def ready(spec, trace, first=1):
    """The bound policy; another example where its rule does not hold or cannot be fitted."""
    assume(holds(spec, trace))
    try:
        return bound(spec, trace, first)
    except ReplayError:  # fitting replays too, and may run out of rows
        assume(False)


def listed(steps) -> list[tuple[int, ...]]:
    columns = (steps.sequence, steps.start, steps.drafted, steps.proposed, steps.accepted)
    return list(zip(*(column.tolist() for column in columns), strict=True))


@pytest.mark.parametrize("spec", SPECS)
@CASES
@given(trace=tiny_traces(), first=st.sampled_from([1, 2]))
def test_steps_are_those_of_the_design(spec, trace, first):
    policy = ready(spec, trace, first)
    layout = PathLayout(trace)
    expected = steps_by_hand(trace, policy, first)
    assert listed(interpreted.walk(policy, layout, first)) == expected
    assert listed(compiled.walk(policy, layout, first)) == expected


@pytest.mark.parametrize("spec", SPECS)
@CASES
@given(trace=tiny_traces(whole=False))
def test_engines_run_out_of_rows_at_the_same_place(spec, trace):
    assume(holds(spec, trace))
    try:
        policy = bound(spec, trace)
    except ReplayError as error:  # a policy that replays itself while it is fitted
        assert "was not recorded" in str(error)
        return
    layout = PathLayout(trace)
    try:
        expected = steps_by_hand(trace, policy)
    except LookupError as error:
        sequence, start, depth = error.args[0]
        words = f"sequence {sequence}, position {start}: depth {depth} was not recorded"
        for engine in (interpreted, compiled):
            with pytest.raises(ReplayError, match=words) as caught:
                engine.walk(policy, layout, 1)
            assert f"= {trace.max_draft} token" in str(caught.value)
        with pytest.raises(ReplayError, match=words):
            compiled.total(policy, layout, 1)
    else:
        assert listed(interpreted.walk(policy, layout, 1)) == expected
        assert listed(compiled.walk(policy, layout, 1)) == expected


@pytest.mark.parametrize("spec", SPECS)
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_engines_agree_on_a_larger_trace(spec, temperature):
    trace = iid(
        30, 120, 0.75, max_draft=41, seed=3, eos_prob=0.01, sampler=Sampler(temperature=temperature)
    )
    trace = with_scores(trace)
    if not holds(spec, trace):
        pytest.skip("the rule does not hold under this sampler")
    policy, layout = bound(spec, trace), PathLayout(trace)
    judge, fast = interpreted.walk(policy, layout, 1), compiled.walk(policy, layout, 1)
    for name in ("offsets", "drafted", "proposed", "accepted", "start", "emitted"):
        np.testing.assert_array_equal(getattr(judge, name), getattr(fast, name))
    sums = compiled.total(policy, layout, 1)
    np.testing.assert_array_equal(sums.steps, judge.counts)
    np.testing.assert_array_equal(
        sums.calls, np.bincount(judge.sequence, policy.calls(judge.drafted), trace.n_sequences)
    )
    for name in ("drafted", "proposed", "accepted"):
        per_step = getattr(judge, name)
        expected = np.bincount(judge.sequence, per_step, trace.n_sequences)
        np.testing.assert_array_equal(getattr(sums, name), expected)


@pytest.mark.parametrize("spec", [*SPECS, "pearl(3)"])
def test_pieces_are_the_whole_steps(spec, monkeypatch):
    trace = with_scores(iid(30, 120, 0.75, max_draft=41, seed=3, eos_prob=0.01))
    if not holds(spec, trace):
        pytest.skip("the rule does not hold under this sampler")
    monkeypatch.setattr(import_module("simkit.simulator.run"), "PIECE", 500)
    cost = "linear(draft_s=0.001, target_s=0.006, target_per_token_s=0.0001, overhead_s=0.0002)"
    one = run(policies.parse(spec), *setting(trace, cost, "prefill"))
    steps, seconds = one.steps()
    pieces = list(one.pieces())
    sums, divided = [piece for piece, _ in pieces], len(pieces) > 1
    assert divided == (getattr(one.bound, "carried", "sequence") == "sequence")
    for name in ("sequence", "number", "start", "drafted", "proposed", "accepted", "emitted"):
        joined = np.concatenate([getattr(piece, name) for piece in sums])
        np.testing.assert_array_equal(joined, getattr(steps, name))
    for part, values in seconds.items():
        np.testing.assert_array_equal(np.concatenate([s[part] for _, s in pieces]), values)


def test_a_rejected_eos_ends_the_draft_and_has_no_branch():
    trace = build([[(1, 1), (EOS, 2), (1, 1), (1, 1), (2, 1)]], t_max=5, max_draft=5)
    assert trace.n_branch_rows == 0
    for engine in (interpreted, compiled):
        steps = engine.walk(policies.Fixed(4), PathLayout(trace), 1)
        assert listed(steps) == [(0, 1, 2, 2, 1), (0, 3, 2, 2, 2)]
        assert steps.emitted.tolist() == [2, 3]


def test_an_accepted_eos_ends_the_output_without_a_bonus_token():
    trace = build([[(1, 1), (2, 2), (EOS, EOS)]], t_max=9, max_draft=4)
    for engine in (interpreted, compiled):
        steps = engine.walk(policies.Fixed(5), PathLayout(trace), 1)
        assert listed(steps) == [(0, 1, 3, 3, 3)]
        assert steps.emitted.tolist() == [3]
        steps = engine.walk(policies.Fixed(2), PathLayout(trace), 1)
        assert listed(steps) == [(0, 1, 2, 2, 2)]
        assert steps.emitted.tolist() == [3]


def test_a_branch_ends_at_its_eos_and_at_the_budget_without_complaint():
    trace = build(
        [[(1, 2)] * 7],
        t_max=7,
        max_draft=4,
        branch_tokens=lambda s, m: (1, EOS) if m == 1 else (1,),
    )
    drafted = [3, 4, 4, 3, 2, 1, 0]
    expected = [(0, i, n, n, 0) for i, n in enumerate(drafted, start=1)]
    for engine in (interpreted, compiled):
        assert listed(engine.walk(policies.Fixed(4), PathLayout(trace), 1)) == expected
        with pytest.raises(ReplayError, match=r"sequence 0, position 2: depth 5 .* \(Γ\) = 4"):
            engine.walk(policies.Fixed(5), PathLayout(trace), 1)


def test_the_path_itself_has_no_depth_limit():
    trace = build([[(1, 1)] * 50], t_max=50, max_draft=1)
    for engine in (interpreted, compiled):
        steps = engine.walk(policies.Fixed(60, max_draft=60), PathLayout(trace), 1)
        assert listed(steps) == [(0, 1, 49, 49, 49)]


def test_a_trace_of_no_sequences():
    layout = PathLayout(build([], t_max=4, max_draft=2))
    for engine in (interpreted, compiled):
        assert len(engine.walk(policies.Fixed(2), layout, 1)) == 0


def test_an_output_that_ends_too_early_is_refused():
    trace = build([[(1, 1)] * 3], t_max=9, max_draft=4, scored=False)
    with pytest.raises(ReplayError, match="sequence 0: its 3 output tokens do not fit"):
        PathLayout(trace)


def test_names_of_parameters_differ():
    """Compiled functions are told apart by the names of their arguments' types."""
    trace = with_scores(iid(2, 9, 0.5, max_draft=9, seed=0))
    kinds = [type(bound(name, trace).params) for name in SEQUENTIAL]
    assert len({kind.__name__ for kind in kinds}) == len(kinds)


def test_what_is_compiled():
    class Mine(policies.Fixed):
        name = "mine"

    class Other(policies.Fixed):
        """Another rule on the same parameters: its functions tell them apart."""

        name = "other"
        slots = policies.Slots(limit=lambda params, state, ahead: 1)

    layout = PathLayout(iid(3, 20, 0.8, max_draft=20, seed=0))
    assert compiled.compiles(policies.Fixed())
    assert listed(compiled.walk(Mine(), layout, 1)) == listed(interpreted.walk(Mine(), layout, 1))
    assert compiled.compiles(Other())
    assert listed(compiled.walk(Other(), layout, 1)) == listed(interpreted.walk(Other(), layout, 1))
    assert not compiled.compiles(policies.from_function(lambda depth, row: True))


class NewParams(NamedTuple):
    max_draft: int


def test_max_draft_bounds_a_limit_beyond_it_and_no_more_is_proposed_than_drafted():
    class Params(NamedTuple):
        max_draft: int

    class Eager(policies.NumericPolicy):
        name = "eager"
        max_draft = 3
        params = Params(3)
        slots = policies.Slots(
            limit=lambda params, state, ahead: 30,
            proposed=lambda params, state, drafted: drafted + 7,
        )

        def columns(self, sampler):
            return ()

    layout = PathLayout(iid(3, 20, 0.8, max_draft=20, seed=0))
    for engine in (interpreted, compiled):
        steps = engine.walk(Eager(), layout, 1)
        assert steps.drafted.max() == 3
        assert np.array_equal(steps.proposed, steps.drafted)


class New(policies.NumericPolicy):
    """One that another package brings: stops before an even depth."""

    name = "new"
    max_draft = 9
    slots = policies.Slots(trips=lambda params, state, depth, row: (depth % 2 == 0, state))
    params = NewParams(9)

    def columns(self, sampler):
        return ()


def test_a_policy_of_another_package(monkeypatch):
    point = EntryPoint("new", f"{__name__}:New", POLICIES.group)
    monkeypatch.setattr(POLICIES, "_offers", {"new": [point]})
    monkeypatch.setattr(POLICIES, "_things", dict(POLICIES._things))
    monkeypatch.setattr(POLICIES, "_origins", dict(POLICIES._origins))
    with pytest.raises(policies.PolicyError, match="did you mean new"):
        policies.parse("nwe()")
    policy = policies.parse("new()")
    layout = PathLayout(iid(3, 20, 0.8, max_draft=20, seed=0))
    assert listed(compiled.walk(policy, layout, 1)) == listed(interpreted.walk(policy, layout, 1))
    assert "new" in policies.names()


@pytest.mark.parametrize("spec", ["fixed(3)", "pearl(4)"])
def test_steps_of_some_sequences(spec):
    layout = PathLayout(iid(6, 20, 0.8, max_draft=20, seed=0))
    found = run(policies.parse(spec), layout, None, 1)
    whole, part = found.steps()[0], found.steps((2, 5))[0]
    among = (whole.sequence >= 2) & (whole.sequence < 5)
    for column in ("sequence", "start", "drafted", "accepted", "emitted"):
        assert np.array_equal(getattr(part, column), getattr(whole, column)[among])


@pytest.mark.parametrize("policy", ["heuristic(schedule=heuristic)", lambda depth, row: depth == 2])
def test_steps_of_some_sequences_are_not_had_of_what_cannot_be_cut(policy):
    layout = PathLayout(iid(6, 20, 0.8, max_draft=20, seed=0))
    given = policies.parse(policy) if isinstance(policy, str) else policies.from_function(policy)
    with pytest.raises(ReplayError, match="cannot be replayed on some sequences alone"):
        run(given, layout, None, 1).steps((2, 5))
