"""The fitted threshold against scikit-learn's ROC curve on all pairs so far."""

import dataclasses
import math
from typing import Any

import numba
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from replay_traces import build
from sklearn.metrics import roc_curve

from simkit.drafters.path import PathLayout
from simkit.policies import ConfidenceAdaptive, Outcome, PolicyError, Slots
from simkit.steps import compiled, interpreted
from traces.sampler import Sampler

POLICY = ConfidenceAdaptive(max_draft=200)


def thresholds(policy, steps):
    """After each step; a step is its probabilities and how many of them were accepted."""
    state, out = policy.begin(0), []
    for probabilities, accepted in steps:
        for depth, probability in enumerate(probabilities, start=1):
            stop, state = policy.trips(state, depth, (probability,))
            assert stop == (probability < state[0])
        n = len(probabilities)
        state = policy.update(state, Outcome(n, n, accepted, False))
        out.append(state[0])
    return out


def judged(steps, threshold=0.4):
    """The same, with every pair kept in the order it came and the whole curve computed."""
    scores, labels, out = [], [], []
    for probabilities, accepted in steps:
        seen = probabilities[: accepted + 1]
        scores += seen
        labels += [int(k < accepted) for k in range(len(seen))]
        if threshold > 0 and len(labels) > 5 and set(labels) == {0, 1}:
            fpr, tpr, candidates = roc_curve(labels, scores)
            threshold = float(candidates[np.argmin(fpr + 3 * (1 - tpr))])
        out.append(threshold)
    return out


@st.composite
def some_steps(draw, longest=12):
    """Steps with many ties, or with few; float32 probabilities, 0 and 1 among them."""
    grid = draw(st.sampled_from([2, 5, 30, 2**24]))
    probability = st.integers(0, grid).map(lambda k: float(np.float32(k / grid)))
    drafts = draw(st.lists(st.lists(probability, max_size=longest), max_size=12))
    return [(draft, draw(st.integers(0, len(draft)))) for draft in drafts]


# One pair a step, from the likeliest down; h matched. With two misses and six hits, the exact
# costs of three thresholds are equal, and the rounded ones are not.
ROUNDED = [([1 - k / 16], int(label == "h")) for k, label in enumerate("hhhhmhmh")]


@given(some_steps())
@example(ROUNDED)
@settings(deadline=None)
def test_thresholds_are_those_of_scikit_learn(steps):
    assert thresholds(POLICY, steps) == judged(steps)


def test_rounding_settles_exact_ties():
    fpr, tpr = np.array([0, 0.5, 1]), np.array([4, 5, 6]) / 6
    assert np.argmin(fpr + 3 * (1 - tpr)) == 1
    assert thresholds(POLICY, ROUNDED)[-1] == ROUNDED[5][0][0]


def test_many_pairs_and_long_drafts():
    rng = np.random.default_rng(0)
    drafts = [rng.random(n, np.float32).tolist() for n in rng.integers(0, 150, 40)]
    steps = [(draft, int(rng.integers(0, len(draft) + 1))) for draft in drafts]
    assert thresholds(POLICY, steps) == judged(steps)


njit: Any = numba.njit


class Compiled(ConfidenceAdaptive):
    """The same slots, compiled."""

    slots = Slots(*map(njit, dataclasses.astuple(ConfidenceAdaptive.slots)))


@given(some_steps(longest=40))
@settings(deadline=None)
def test_compiled_slots_give_the_same_bits(steps):
    assert thresholds(Compiled(max_draft=200), steps) == thresholds(POLICY, steps)


def test_a_fit_by_hand():
    # From the likeliest down h h m h m m; P = N = 3. Costs 2, 1, 4/3, 1/3, 2/3, 1.
    steps = [([0.9, 0.8, 0.7, 0.99], 2), ([0.6, 0.5], 1), ([0.25], 0), ([], 0)]
    assert thresholds(POLICY, steps) == [0.4, 0.4, 0.6, 0.6]


def test_of_equal_costs_the_highest_threshold_wins():
    # h h h m m m h m; P = N = 4. Costs 9/4, 3/2, 3/4, 1, 5/4, 3/2, 3/4, 1, exact in binary.
    steps = [([1 - k / 16], int(label == "h")) for k, label in enumerate("hhhmmmhm")]
    assert thresholds(POLICY, steps)[-1] == 1 - 2 / 16


@pytest.mark.parametrize("accepted", [0, 1])
def test_one_class_fits_nothing(accepted):
    assert thresholds(POLICY, [([0.5], accepted)] * 9) == [0.4] * 9


def test_five_pairs_fit_nothing():
    assert thresholds(POLICY, [([0.9, 0.9, 0.9, 0.9, 0.8], 4)]) == [0.4]
    assert thresholds(POLICY, [([0.9, 0.9, 0.9, 0.9, 0.9, 0.8], 5)]) == [0.9]


def test_a_threshold_of_zero_stays():
    steps = [([0.9, 0.9, 0.9, 0.9, 0.9, 0.8], 5)]
    assert thresholds(ConfidenceAdaptive(threshold=0), steps) == [0]


def test_each_sequence_starts_anew_and_keeps_the_token_that_trips():
    # Six tokens, the last rejected: 0.75 is fitted. Then 0.5 trips; in the next sequence 0.5 does
    # not, until the same fit.
    rows = [(1, 1)] * 5 + [(1, 2)] + [(1, 1)] * 4
    values = [0.75] * 5 + [0.25, 0.75, 0.5, 0.75, 0.75]
    trace = build(
        [rows, rows],
        t_max=10,
        max_draft=9,
        values=lambda n: np.array([*values, *values, *[0.5] * (n - 20)]),
    )
    layout = PathLayout(trace)
    for engine in (interpreted, compiled):
        steps = engine.walk(ConfidenceAdaptive(), layout, 1)
        assert steps.drafted.tolist() == [6, 2, 0] * 2


def test_reads_the_probability_that_the_draft_used():
    assert ConfidenceAdaptive().columns(Sampler()) == ("draft_prob_raw",)
    assert ConfidenceAdaptive().columns(Sampler(temperature=0.7)) == ("draft_prob",)


@pytest.mark.parametrize(
    "wrong", [{"threshold": 1.5}, {"threshold": math.nan}, {"threshold": "x"}, {"max_draft": -1}]
)
def test_bad_arguments(wrong):
    with pytest.raises(PolicyError, match="confidence_adaptive: "):
        ConfidenceAdaptive(**wrong)
