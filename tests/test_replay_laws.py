"""Laws that hold for every policy on every trace, and closed forms."""

import math

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from replay_traces import SEQUENTIAL, bound, holds, tiny_traces

from simkit import policies
from simkit.drafters.path import PathLayout
from simkit.steps import compiled
from traces.synthetic import iid

SPECS = [*SEQUENTIAL, "fixed(2)", "heuristic(initial=1, schedule=heuristic)"]


@pytest.mark.parametrize("spec", SPECS)
@settings(max_examples=25, deadline=None)
@given(trace=tiny_traces(), first=st.sampled_from([1, 2]))
def test_conservation(spec, trace, first):
    assume(holds(spec, trace))
    policy, layout = bound(spec, trace, first), PathLayout(trace)
    steps = compiled.walk(policy, layout, first)
    emitted = np.bincount(steps.sequence, steps.emitted, trace.n_sequences)
    np.testing.assert_array_equal(emitted, layout.n_output - first + 1)
    assert np.all(steps.accepted <= steps.proposed)
    assert np.all(steps.proposed <= steps.drafted)
    assert np.all(steps.drafted <= policy.max_draft)
    assert np.all(steps.emitted >= 1)
    assert np.all(steps.emitted <= steps.accepted + 1)


@settings(max_examples=25, deadline=None)
@given(trace=tiny_traces())
def test_no_policy_takes_fewer_steps_than_the_oracle(trace):
    """The oracle accepts every run of acceptances whole; tiny traces stay below its max_draft."""
    layout = PathLayout(trace)
    best = compiled.walk(policies.Oracle(), layout, 1)
    assert np.array_equal(best.accepted, best.drafted)
    for spec in SPECS:
        if not holds(spec, trace):
            continue
        steps = compiled.walk(bound(spec, trace), layout, 1)
        assert np.all(steps.counts >= best.counts)


@pytest.mark.parametrize("length", [1, 3, 5, 10])
@pytest.mark.parametrize("alpha", [0.3, 0.7, 0.9])
def test_tokens_per_step_of_independent_acceptance(alpha, length):
    """Leviathan et al. 2023, eq. 1: (1 - α^(k+1)) / (1 - α) tokens a step.

    a is a geometric variable cut at k, so a + 1 lies in [1, k + 1]. Sequences are so long that
    their ends shift the mean by less than 2 (k + 1) / T. By the variance of the cut geometric
    law, 6 standard errors of n steps are exceeded with probability 2e-9.
    """
    n_output = 20_000
    trace = iid(20, n_output, alpha, max_draft=12, seed=5)
    sums = compiled.total(policies.Fixed(length), PathLayout(trace), 1)
    n = int(sums.steps.sum())
    expected = (1 - alpha ** (length + 1)) / (1 - alpha)
    values = np.arange(length + 1)
    law = np.append((1 - alpha) * alpha ** values[:-1], alpha**length)
    assert law @ (values + 1) == pytest.approx(expected)
    variance = law @ (values + 1) ** 2 - expected**2
    bound = 6 * math.sqrt(variance / n) + 2 * (length + 1) / n_output
    assert abs(sums.accepted.sum() / n + 1 - expected) < bound


def test_nothing_is_ever_accepted():
    trace = iid(3, 40, 0.0, max_draft=8, seed=1)
    for spec, drafted in (("fixed(4)", 4), ("oracle", 0), ("autoregressive", 0)):
        steps = compiled.walk(policies.parse(spec), PathLayout(trace), 1)
        assert steps.counts.tolist() == [40] * 3
        assert steps.accepted.sum() == 0
        expected = [min(drafted, 40 - i) for i in range(1, 41)] * 3
        assert steps.drafted.tolist() == expected


def test_everything_is_accepted():
    trace = iid(3, 41, 1.0, max_draft=1, seed=1)
    layout = PathLayout(trace)
    assert compiled.walk(policies.Fixed(5), layout, 1).accepted.tolist() == ([5] * 6 + [4]) * 3
    assert compiled.walk(policies.Oracle(), layout, 1).accepted.tolist() == [40] * 3
    grown = compiled.walk(policies.parse("heuristic(initial=4)"), layout, 1)
    assert grown.drafted.tolist() == [4, 6, 8, 10, 8] * 3  # 8 is what the budget leaves
