"""Each rule against steps worked out by hand."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from replay_traces import EOS, build

from simkit import policies
from simkit.drafters.path import PathLayout
from simkit.policies import Outcome, PolicyError
from simkit.policies.svip import largest_square
from simkit.steps import compiled, interpreted
from traces.sampler import Sampler

GREEDY, SAMPLED = Sampler(), Sampler(temperature=0.7)


def drafted(policy, trace, first=1):
    layout = PathLayout(trace)
    judge = interpreted.walk(policy, layout, first).drafted.tolist()
    assert compiled.walk(policy, layout, first).drafted.tolist() == judge
    return judge


def with_values(values, accepted, t_max=None, max_draft=9):
    """One sequence whose rows hold `values`; a branch row holds 0.5."""
    rows = [(1, 1) if ok else (1, 2) for ok in accepted]
    padded = lambda count: np.array([*values, *[0.5] * (count - len(values))])  # noqa: E731
    return build([rows], t_max=t_max or len(rows), max_draft=max_draft, values=padded)


def test_autoregressive_never_drafts():
    assert drafted(policies.Autoregressive(), with_values([0] * 4, [True] * 4)) == [0] * 4


def test_fixed_drafts_up_to_the_budget():
    trace = with_values([0] * 6, [True, True, False, True, True, True])
    assert drafted(policies.Fixed(4), trace) == [4, 2]  # 1-4 (3 is rejected), then 4 and 5
    assert drafted(policies.Fixed(1), trace) == [1, 1, 1, 0]


def test_oracle_drafts_what_will_be_accepted():
    trace = with_values([0] * 7, [True, True, False, False, True, True, True])
    assert drafted(policies.Oracle(), trace) == [2, 0, 2]
    assert drafted(policies.Oracle(max_draft=1), trace) == [1, 0, 0, 1, 0]


def test_svip_keeps_the_token_that_trips_it():
    # sqrt(0.25) = 0.5 does not exceed 0.5; the square root of the next float32 does.
    above = float(np.nextafter(np.float32(0.25), np.float32(1)))
    trace = with_values([0.25, 0.25, above, 0.0, 0.0, 0.0], [True] * 6)
    assert drafted(policies.SVIP(h=0.5), trace) == [3, 1]
    assert drafted(policies.SVIP(h=0.5, scale=0.5), trace) == [5]


@given(h=st.floats(0, 1e9), x=st.floats(0, 1e18))
def test_svip_takes_no_roots_but_decides_by_them(h, x):
    assert (x > largest_square(h)) == (math.sqrt(x) > h)
    near = largest_square(h)
    assert math.sqrt(near) <= h < math.sqrt(math.nextafter(near, math.inf))


def test_svip_takes_an_entropy_rounded_below_zero_as_zero():
    trace = with_values([-1e-9, 0.0, 0.0], [True] * 3)
    assert drafted(policies.SVIP(h=0.0), trace) == [2]


def test_svip_may_run_on_along_the_branch():
    trace = with_values([0.0] * 9, [False] * 9)  # branch rows: sqrt(0.5) = 0.707
    assert drafted(policies.SVIP(h=0.8, max_draft=4), trace)[:2] == [4, 4]
    assert drafted(policies.SVIP(h=0.7, max_draft=4), trace)[:2] == [2, 2]


def test_confidence_keeps_the_token_that_trips_it():
    half = float(np.nextafter(np.float32(0.5), np.float32(0)))
    trace = with_values([0.5, 0.5, half, 0.9, 0.9, 0.9], [True] * 6)
    assert drafted(policies.Confidence(threshold=0.5), trace) == [3, 1]


def test_confidence_reads_the_probability_that_was_sampled_with():
    point_mass = Sampler(temperature=1.0, draft_temperature=0.0)
    assert policies.Confidence().columns(GREEDY) == ("draft_prob_raw",)
    assert policies.Confidence().columns(SAMPLED) == ("draft_prob",)
    assert policies.Confidence().columns(point_mass) == ("draft_prob_raw",)


def test_heuristic_grows_by_two_and_shrinks_by_one():
    # n: 2 (both accepted), 4 (position 5 is rejected), 3 (all), then 5 cut to 1 by the budget
    accepted = [True, True, True, True, False, True, True, True, True, True, True]
    trace = with_values([0] * 11, accepted)
    assert drafted(policies.Heuristic(initial=2), trace) == [2, 4, 3, 1]


def test_heuristic_stays_above_zero():
    trace = with_values([0] * 5, [False] * 5)
    assert drafted(policies.Heuristic(initial=2), trace) == [2, 1, 1, 1, 0]


def test_heuristic_grows_beyond_max_draft_in_secret():
    policy = policies.Heuristic(initial=2, max_draft=2)
    state = policy.update(policy.begin(0), Outcome(2, 2, 2, False))
    assert state == (4,)
    assert policy.limit(state, -1) == 2


@pytest.mark.parametrize(
    ("spec", "second"),
    [
        # The first sequence ends at its budget, drafts 4 of n = 9 and has all of them accepted.
        ("heuristic(initial=9)", 9),
        ("heuristic(initial=9, schedule=heuristic)", 11),
        ("heuristic(initial=9, schedule=heuristic, feedback=nominal)", 8),
    ],
)
def test_heuristic_carries_n_over_sequences(spec, second):
    policy = policies.parse(spec)
    rows = [[(1, 1)] * 5, [(1, 2)] * 5]
    trace = build(rows, t_max=5, max_draft=9)
    assert drafted(policy, trace)[:2] == [4, 4]
    state = policy.update(policy.begin(0), Outcome(4, 4, 4, False))
    if policy.carried == "sequence":
        state = policy.begin(0)
    assert policy.limit(state, -1) == second


def test_heuristic_takes_an_accepted_eos_for_a_failure():
    rows = [[(1, 1), (EOS, EOS)], [(1, 1)] * 9]
    trace = build(rows, t_max=9, max_draft=9)
    assert drafted(policies.parse("heuristic(initial=3)"), trace)[:2] == [2, 3]
    assert drafted(policies.parse("heuristic(initial=3, schedule=heuristic)"), trace)[:2] == [2, 2]


def test_heuristic_takes_an_empty_draft_for_a_success():
    rows = [[(1, 2)], [(1, 1)] * 1]
    trace = build(rows, t_max=1, max_draft=1)
    policy = policies.parse("heuristic(initial=3, schedule=heuristic)")
    assert drafted(policy, trace) == [0, 0]
    assert policy.update((3,), Outcome(0, 0, 0, False)) == (5,)
    nominal = policies.parse("heuristic(initial=3, schedule=heuristic, feedback=nominal)")
    assert nominal.update((3,), Outcome(0, 0, 0, False)) == (2,)


def test_a_function_is_a_policy():
    def unsure(depth, row):
        return row.draft_entropy > 0.3 or depth == 2

    policy = policies.from_function(unsure, columns=("draft_entropy",), max_draft=3)
    trace = with_values([0.0, 0.5, 0.0, 0.5, 0.0, 0.0], [True] * 6)
    assert interpreted.walk(policy, PathLayout(trace), 1).drafted.tolist() == [2, 1, 0]
    assert str(policy) == "unsure"
    with pytest.raises(PolicyError, match="max_draft"):
        policies.from_function(unsure, max_draft=-1)
    with pytest.raises(PolicyError, match="cannot be a column's name"):
        policies.from_function(unsure, columns=("draft entropy",))


def test_a_class_written_in_python_is_a_policy():
    class EveryOther(policies.Sequential):
        """Stops after one token and after three, in turn; the turn lasts the whole run."""

        name = "every_other"
        max_draft = 3
        carried = "run"

        def columns(self, sampler):
            return ()

        def begin(self, sequence):
            return (False,)

        def limit(self, state, ahead):
            assert ahead == -1
            return 3 if state[0] else 1

        def trips(self, state, depth, row):
            assert row == ()
            return False, state

        def update(self, state, outcome):
            return (not state[0],)

    trace = build([[(1, 2)] * 3] * 2, t_max=3, max_draft=3)
    steps = interpreted.walk(EveryOther(), PathLayout(trace), 1)
    assert steps.drafted.tolist() == [1, 1, 0, 2, 1, 0]
