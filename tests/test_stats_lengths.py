"""Best draft lengths, expected acceptance lengths, PARD-2's weights."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from stats_traces import ahead_of, flags, offsets_of

import simkit
from analysis.stats import StatsError, acceptance_length, drafts, optimal
from simkit.costs import Linear
from traces import synthetic

ALPHAS = st.floats(0, 1)
RATIOS = st.floats(0.5, 50)


@given(ALPHAS, RATIOS)
def test_the_best_length_is_best(alpha, c):
    best = int(optimal.optimal_length(alpha, c))
    speeds = optimal.speedup(alpha, np.arange(201), c)
    assert speeds[best] >= speeds.max() * (1 - 1e-9)
    assert speeds[best] >= 1 - 1e-12


@given(ALPHAS, RATIOS)
def test_drafting_pays_where_alpha_exceeds_the_draft_s_share(alpha, c):
    """Leviathan et al. (2023), Corollary 3.9: there is a gain if and only if alpha > 1/c."""
    if abs(alpha - 1 / c) > 1e-6:
        assert (optimal.optimal_length(alpha, c) > 0) == (alpha > 1 / c)


@given(st.floats(0.01, 0.99), st.floats(1, 40))
def test_better_drafts_are_drafted_longer(alpha, c):
    alphas = np.array([alpha * 0.9, alpha])
    shorter, longer = optimal.optimal_length(alphas, c)
    assert shorter <= longer <= optimal.optimal_length(alpha, 1.5 * c)


def test_speedups_of_leviathans_table_one():
    """Leviathan et al. (2023), Table 1: alpha, gamma, and the speed; c (cost of a draft) is 0.

    The table gives operations and speed for c = 0: (0.6, 2) 1.96, (0.7, 3) 2.53, (0.8, 2) 2.44,
    (0.8, 5) 3.69, (0.9, 2) 2.71, (0.9, 10) 6.86.
    """
    table = [(0.6, 2, 1.96), (0.7, 3, 2.53), (0.8, 2, 2.44), (0.8, 5, 3.69)]
    table += [(0.9, 2, 2.71), (0.9, 10, 6.86)]
    for alpha, gamma, speed in table:
        assert round(float(optimal.speedup(alpha, gamma, 1e12)), 2) == pytest.approx(
            speed, abs=0.011
        )


def test_limits():
    assert optimal.optimal_length([0, 1, 1], [10, 10, 0.5]).tolist() == [0, 200, 0]
    assert optimal.optimal_length(1.0, 9, longest=7) == 7
    for alpha, c in [(-0.1, 2), (1.1, 2), (0.5, 0), (np.nan, 2), (0.5, np.inf)]:
        with pytest.raises(StatsError, match="alpha must be in"):
            optimal.optimal_length(alpha, c)


def test_law_and_replay_choose_alike():
    """On an i.i.d. trace with costs as in the theorem, the best fixed length is the law's."""
    trace = synthetic.iid(40, 512, 0.8, max_draft=15, seed=3, tasks=("a", "b"))
    cost = Linear(draft_s=1.0, target_s=10.0)
    specs = [f"fixed({k})" for k in range(13)]
    frame = simkit.replay(trace, specs, cost, by="sequence").frame
    seconds = frame["total_s"].to_numpy().reshape(len(specs), -1)
    baseline = frame["baseline_s"].to_numpy()[: trace.n_sequences]
    tasks = trace.sequences["task"].to_pylist()
    law = int(optimal.optimal_length(0.8, 10.0))
    for found, name in zip(optimal.best_lengths(seconds, baseline, tasks), "ab", strict=True):
        assert found.group == name and abs(found.setting - law) <= 1
        expected = float(optimal.speedup(0.8, found.setting, 10.0))
        assert found.speedup.value == pytest.approx(expected, rel=0.05)
        assert found.speedup.lo < found.speedup.value < found.speedup.hi
        assert 0.99 < found.chosen.sum() <= 1 + 1e-12  # in a few resamples two are equal
        assert found.chosen[found.setting] > 0.2


def test_of_equals_none_is_the_fastest():
    """Up to rounding, in every resample; and a third that is slower does not change that."""
    rng = np.random.default_rng(0)
    seconds = rng.uniform(1, 2, 20)
    others = np.stack([seconds, seconds * (1 + 1e-12), 2 * seconds])
    found = optimal.best_lengths(others, 3 * seconds, ["a"] * 20)[0]
    assert found.setting == 0 and found.chosen.tolist() == [0, 0, 0]
    found = optimal.best_lengths(others[1:], 3 * seconds, ["a"] * 20)[0]
    assert found.setting == 0 and found.chosen.tolist() == [1, 0]


def test_one_prompt_has_a_best_length_and_no_interval():
    found = optimal.best_lengths(np.array([[2.0], [1.0]]), np.array([3.0]), ["math"])[0]
    assert (found.setting, found.speedup.value, found.speedup.lo) == (1, 3.0, None)
    assert found.chosen is None and found.speedup.note == "one prompt: no interval"


@pytest.mark.parametrize(
    "seconds, baseline, groups, message",
    [
        ([[1.0, 2]], [1.0], ["a", "b"], "seconds must be"),
        ([[1.0, 2]], [1.0, 1], ["a"], "seconds must be"),
        ([1.0, 2], [1.0, 1], ["a", "b"], "seconds must be"),
        ([[1.0, np.nan]], [1.0, 1], ["a", "b"], "positive and finite"),
        ([[1.0, 0]], [1.0, 1], ["a", "b"], "positive and finite"),
    ],
)
def test_seconds_are_checked(seconds, baseline, groups, message):
    with pytest.raises(StatsError, match=message):
        optimal.best_lengths(np.array(seconds), np.array(baseline), groups)


@given(flags(min_prompts=1), st.integers(0, 9))
def test_distribution_of_best_lengths(rows, within):
    accepted, offsets = rows
    runs = drafts.runs(accepted, offsets)
    found = optimal.lengths(runs, within)
    assert found.count.tolist() == np.bincount(runs.accepted).tolist()
    if len(runs):
        assert found.mean.value == pytest.approx(runs.accepted.mean())
        assert found.within.value == pytest.approx((runs.accepted <= within).mean())
        assert sum(share.value for share in found.share) == pytest.approx(1)
    assert found.censored == np.sum(~runs.rejected)


@given(st.lists(st.floats(0, 1), min_size=1, max_size=9))
def test_expected_length_is_the_sum_of_reached_and_kept(probabilities):
    """PARD-2 Eq. 8: L = sum of s_k a_k; also E[L] by enumerating where the draft is rejected."""
    a = np.array(probabilities)
    found = acceptance_length.expected_length(a)
    assert found == pytest.approx((acceptance_length.cat_weights(a) * a).sum())
    kept = np.cumprod(a)
    ends = [k * (1 - a[k]) * (kept[k - 1] if k else 1) for k in range(len(a))]
    assert found == pytest.approx(sum(ends) + len(a) * kept[-1])


def test_weights_by_hand():
    confidence = np.array([[0.5, 0.4, 0.9], [1.0, 0.0, 0.3]])
    expected = [[1, 0.5, 0.2], [1, 1, 0]]
    assert acceptance_length.cat_weights(confidence) == pytest.approx(np.array(expected))


@given(flags(min_prompts=1), st.integers(1, 6), st.integers(0, 99))
def test_predictions_one_by_one(rows, k, seed):
    accepted, offsets = rows
    confidence = np.random.default_rng(seed).random(len(accepted))
    ahead = ahead_of(accepted, offsets)
    pairs = []
    for low, high in zip(offsets[:-1], offsets[1:], strict=True):
        for row in range(low, high - k):
            guess = acceptance_length.expected_length(confidence[row : row + k])
            pairs.append((guess, min(ahead[row], k)))
    found = acceptance_length.prediction(confidence, ahead, offsets, k)
    if not pairs:
        assert found.bias.value is None
        return
    guess, true = np.array(pairs).T
    assert found.predicted.value == pytest.approx(guess.mean())
    assert found.accepted.value == pytest.approx(true.mean())
    assert found.bias.value == pytest.approx(guess.mean() - true.mean(), abs=1e-9)
    assert found.absolute.value == pytest.approx(np.abs(guess - true).mean())
    assert found.rmse.value == pytest.approx(np.sqrt(((guess - true) ** 2).mean()))
    assert found.reached[-1].value == pytest.approx((true >= k - 1).mean())
    if np.ptp(guess) > 1e-6 and np.ptp(true):
        assert found.correlation.value == pytest.approx(np.corrcoef(guess, true)[0, 1])


def test_a_certain_oracle_predicts_without_error():
    trace = synthetic.iid(20, 128, 0.7, max_draft=8, seed=1)
    accepted, offsets = trace.positions("accepted"), trace.position_offsets
    ahead = ahead_of(accepted, offsets)
    found = acceptance_length.prediction(trace.positions("accept_prob"), ahead, offsets, 5)
    assert found.rmse.value == 0 and found.correlation.value == pytest.approx(1)
    assert [w.value for w in found.weight] == [r.value for r in found.reached]
    assert all(b.value == 0 for b in found.brier)


def test_independent_probabilities_predict_powers():
    """Confidence alpha everywhere: the expected length is alpha + … + alpha^K."""
    offsets = offsets_of([50, 60])
    found = acceptance_length.prediction(np.full(110, 0.8), np.zeros(110, int), offsets, 4)
    assert found.predicted.value == pytest.approx(sum(0.8**k for k in range(1, 5)))


@pytest.mark.parametrize("confidence, k", [([0.5, 1.2], 1), ([0.5, -0.1], 1), ([0.5, 0.5], 0)])
def test_predictions_are_checked(confidence, k):
    with pytest.raises(StatsError, match="must be"):
        acceptance_length.prediction(np.array(confidence), np.zeros(2, int), np.array([0, 2]), k)
