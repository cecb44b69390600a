"""Bootstrap intervals, above all where there is little to resample."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import bootstrap, norm, t

import simkit
from simkit.costs import Linear
from simkit.statistics.interval import RESAMPLES, ends, ratio_interval, resampled, unsigned
from traces.synthetic import iid


def ratio(x, y, axis=-1):
    return x.sum(axis) / y.sum(axis)


def test_is_the_bootstrap_of_scipy_at_the_expanded_level():
    """BCa of SciPy, at the confidence that gives a mean its t interval; at 40 prompts close to it.

    With the jackknife's end where that is the farther, by hand.
    """
    rng = np.random.default_rng(0)
    top, bottom = rng.gamma(5, size=40), rng.gamma(3, size=40)
    level = 2 * norm.cdf(math.sqrt(40 / 39) * t.ppf(0.95, 39)) - 1
    theirs = bootstrap(
        (top, bottom),
        ratio,
        paired=True,
        n_resamples=20 * RESAMPLES,
        confidence_level=level,
        rng=np.random.default_rng(7),
    ).confidence_interval
    logs = np.log((top.sum() - top) / (bottom.sum() - bottom))
    arm = math.exp(t.ppf(0.95, 39) * math.sqrt(39 / 40 * ((logs - logs.mean()) ** 2).sum()))
    value = top.sum() / bottom.sum()
    expected = min(theirs.low, value / arm), max(theirs.high, value * arm)
    assert ratio_interval(top, bottom, 0.9, 7) == pytest.approx(expected, rel=0.01)


def test_of_a_mean_it_is_the_t_interval():
    """Of a symmetric sample; BCa's quantiles are those of 2,000 resamples."""
    x = norm.ppf((np.arange(20) + 0.5) / 20)
    drawn = np.concatenate(list(resampled(x[:, None], 3)))[:, 0] / 20
    low, high = ends(0.0, drawn, (x.sum() - x) / 19, 0.95)
    expected = t.ppf(0.975, 19) * x.std(ddof=1) / math.sqrt(20)
    assert (low, high) == pytest.approx((-expected, expected), rel=0.06)
    assert high >= expected > -expected >= low


@pytest.mark.parametrize("n", [2, 3, 4, 5, 8, 16, 60])
def test_covers_the_truth_about_as_often_as_it_says(n):
    """Of 200 intervals at 90 %, 180 are expected to cover; fewer than 160 has probability 1e-5."""
    rng = np.random.default_rng(n)
    hits = 0
    for seed in range(200):
        size = rng.gamma(4, size=n)
        low, high = ratio_interval(size * rng.gamma(50, 0.04, size=n), size, 0.9, seed)
        hits += low <= 2.0 <= high
    assert 160 <= hits <= 199


@pytest.mark.parametrize("n", [2, 3, 5, 16, 60])
def test_covers_savings_too(n):
    """5% saved, prompts 20% apart, so that some lose; the same bounds."""
    rng = np.random.default_rng(n)
    hits = 0
    for seed in range(200):
        size = rng.gamma(4, size=n)
        low, high = ratio_interval(size * rng.normal(0.05, 0.2, n), size, 0.9, seed)
        hits += low <= 0.05 <= high
    assert 160 <= hits <= 199


@given(st.integers(2, 30), st.integers(0, 10**6))
def test_a_saving_seen_from_the_other_side_is_a_loss(n, seed):
    """The interval of -x is that of x, turned; a logarithm would stretch one of them."""
    rng = np.random.default_rng(seed)
    saved, size = rng.normal(0.05, 0.2, n), rng.lognormal(0, 0.5, n)
    if unsigned(saved) or unsigned(-saved):
        saved[0], saved[1] = -0.1, 0.1
    low, high = ratio_interval(saved, size, 0.95, 1)
    value = saved.sum() / size.sum()
    assert low <= value <= high
    assert ratio_interval(-saved, size, 0.95, 1) == pytest.approx((-high, -low), abs=1e-9)


def test_a_small_saving_has_no_logarithm():
    """3% in all, less than nothing on one prompt: by hand, the t interval of the jackknife."""
    saved, size = np.array([0.2, 0.1, -0.18, 0.0]), np.ones(4)
    arm = t.ppf(0.975, 3) * saved.std(ddof=1) / 2
    assert ratio_interval(saved, size, 0.95, 0) == pytest.approx((0.03 - arm, 0.03 + arm))


@pytest.mark.parametrize(
    ("top", "bottom"), [([1.0], [2.0]), ([], []), ([0.0, 0.0], [0.0, 0.0]), ([1.0, 1.0], [0, 1.0])]
)
def test_too_little_to_resample_gives_nothing(top, bottom):
    low, high = ratio_interval(np.array(top), np.array(bottom), 0.95, 0)
    assert math.isnan(low)
    assert math.isnan(high)


def test_what_takes_no_time_is_no_observation():
    """An output whose only token the prompt's pass emits, under a cost without prefills."""
    rng = np.random.default_rng(1)
    top, bottom = rng.lognormal(0, 0.5, 20), rng.lognormal(0, 0.5, 20)
    known = ratio_interval(top, bottom, 0.95, 0)
    place = [0, 7, 7, 20]
    assert ratio_interval(np.insert(top, place, 0), np.insert(bottom, place, 0), 0.95, 0) == known
    one = np.array([0.0, 1.0])
    assert np.isnan(ratio_interval(one, one, 0.95, 0)).all()


def test_some_denominators_may_be_0():
    """As prompts that leave no gap: shares of it are known unless a resample holds these alone."""
    rng = np.random.default_rng(2)
    saved, gap = rng.random(30), rng.random(30) + 1
    gap[::3] = 0
    low, high = ratio_interval(saved, gap, 0.95, 0)
    assert 0 < low < saved.sum() / gap.sum() < high < 2
    constant = ratio_interval(np.where(gap > 0, 0.5 * gap, 1.0), gap, 0.95, 0)
    assert constant[0] < constant[1]
    gap[3:] = 0
    assert np.isnan(ratio_interval(saved, gap, 0.95, 0)).all()


def test_outputs_that_take_no_time_leave_the_interval_of_a_replay():
    class Unprefilled(Linear):
        def prefill(self, model, tokens):
            return np.zeros(np.shape(tokens))

    trace = iid(60, 8, 0.6, max_draft=8, seed=0, eos_prob=0.2, vocab_size=9)
    cost = Unprefilled(draft_s=0.001, target_s=0.01)
    found = simkit.replay(trace, "fixed(3)", cost, first_token="prefill")
    assert (found.runs[0].total_s == 0).sum() > 3
    (row,) = found.records()
    assert row["speedup_lo"] < row["speedup"] < row["speedup_hi"]


def test_a_constant_ratio_is_its_own_interval():
    bottom = np.array([1.0, 3.0, 0.7])
    low, high = ratio_interval(0.1 * bottom, bottom, 0.95, 0)
    assert low == high == pytest.approx(0.1)
    assert ratio_interval(0 * bottom, bottom, 0.95, 0) == (0.0, 0.0)


@pytest.mark.parametrize("n", [2, 3, 5])
def test_few_prompts_give_finite_ends(n):
    rng = np.random.default_rng(n)
    for seed in range(20):
        low, high = ratio_interval(rng.random(n), rng.random(n) + 0.1, 0.95, seed)
        assert math.isfinite(low)
        assert low <= high
    rare = np.ones(n)
    rare[0] = 2.0
    low, high = ratio_interval(rare, np.ones(n), 0.95, 0)
    assert low <= 1 + 1 / n <= high


def test_what_says_nothing_has_finite_ends():
    """Two prompts at a level of one in ten thousand: a factor of exp(7000) either way."""
    low, high = ratio_interval(np.array([1.0, 9.0]), np.ones(2), 0.9999, 0)
    assert 0 < low < 1e-100 and 1e100 < high < math.inf


@given(st.integers(2, 40), st.integers(0, 10**6))
def test_ends_of_what_has_a_range_lie_among_resamples(n, seed):
    """Without that cap they are the same or farther, and from 32 prompts on the same."""
    rng = np.random.default_rng(seed)
    top, bottom = rng.lognormal(0, 0.5, n), rng.lognormal(0, 0.5, n)
    drawn = np.divide(*np.concatenate(list(resampled(np.stack([top, bottom], 1), 1))).T)
    without = (top.sum() - top) / (bottom.sum() - bottom)
    given_ = top.sum() / bottom.sum(), drawn, without, 0.95
    low, high = ends(*given_, positive=True)
    lower, upper = ends(*given_, positive=True, capped=False)
    assert drawn.min() <= low <= high <= drawn.max()
    assert lower <= low and high <= upper
    assert n < 32 or (lower, upper) == (low, high)
    assert ratio_interval(top, bottom, 0.95, 1) == (lower, upper)


@given(st.integers(2, 30), st.integers(0, 10**6), st.floats(1e-3, 1e3))
def test_the_unit_does_not_matter_and_the_ratio_lies_inside(n, seed, unit):
    """Powers of two, so that ties stay ties."""
    unit = 2.0 ** round(math.log2(unit))
    rng = np.random.default_rng(seed)
    top, bottom = rng.lognormal(0, 1, n), rng.lognormal(0, 1, n)
    low, high = ratio_interval(top, bottom, 0.95, 1)
    value = top.sum() / bottom.sum()
    assert low <= value * (1 + 1e-9) and high >= value * (1 - 1e-9)
    assert ratio_interval(top * unit, bottom, 0.95, 1) == pytest.approx((low * unit, high * unit))


def test_the_seed_decides():
    rng = np.random.default_rng(3)
    top, bottom = rng.random(20), rng.random(20)
    assert ratio_interval(top, bottom, 0.95, 1) == ratio_interval(top, bottom, 0.95, 1)
    assert ratio_interval(top, bottom, 0.95, 1) != ratio_interval(top, bottom, 0.95, 2)
