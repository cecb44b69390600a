"""Two samples of prompts: pairs, independent samples, and how often intervals hold the truth."""

import numpy as np
import pytest
from scipy.stats import ttest_ind
from test_stats_coverage import held

from analysis.stats import StatsError
from analysis.stats.clusters import bootstrap
from analysis.stats.two_samples import Pairing, between

DRAWS = 300
LEAST, MOST = 0.905, 0.985  # 95% and about three standard errors of 300 draws either way
PAIRED, APART = Pairing(True), Pairing(False)


def difference(first, second):
    return second[..., :1] / second[..., 1:] - first[..., :1] / first[..., 1:]


def quotient(first, second):
    return (second[..., :1] / second[..., 1:]) / (first[..., :1] / first[..., 1:])


def accepted(share, rng, tokens=120):
    """Accepted tokens, and all, of prompts with these shares; lengths differ."""
    n = rng.integers(tokens // 2, tokens, len(share))
    return np.stack([rng.binomial(n, share), n], 1).astype(float)


def shares(rng, n, mean, spread=0.15):
    size = mean * (1 - mean) / spread**2 - 1
    return rng.beta(size * mean, size * (1 - mean), n)


@pytest.mark.parametrize("sizes", [(16, 16), (40, 14)])
def test_independent_samples_hold_a_known_difference(sizes):
    """Shares of 0.7 and 0.55: the difference, and the ratio, each in 95% of draws."""

    def draw(seed):
        rng = np.random.default_rng(seed)
        first = accepted(shares(rng, sizes[0], 0.7), rng)
        second = accepted(shares(rng, sizes[1], 0.55), rng)
        (gap,) = between(first, second, difference, APART)
        (ratio,) = between(first, second, quotient, APART, positive=True)
        return held(gap, 0.55 - 0.7), held(ratio, 0.55 / 0.7)

    found = np.mean([draw(seed) for seed in range(DRAWS)], axis=0)
    assert (found >= LEAST).all() and (found <= MOST).all(), found


def test_pairs_hold_a_known_difference_and_are_narrower():
    """Prompts differ far more than the two samples do on each of them."""

    def draw(seed):
        rng = np.random.default_rng(seed)
        own = shares(rng, 20, 0.5)
        first, second = accepted(own, rng), accepted(0.9 * own, rng)
        (pair,), (apart,) = (between(first, second, difference, p) for p in (PAIRED, APART))
        return held(pair, -0.05), (pair.hi - pair.lo) / (apart.hi - apart.lo)

    found, width = np.mean([draw(seed) for seed in range(DRAWS)], axis=0)
    assert LEAST <= found <= MOST and width < 0.75, (found, width)


def test_of_means_it_is_as_wide_as_welch_has_it():
    """scipy.stats.ttest_ind(equal_var=False), within the bootstrap's own noise."""
    rng = np.random.default_rng(3)
    first, second = rng.normal(2, 1, 60), rng.normal(5, 3, 35)
    sums = [np.stack([x, np.ones(len(x))], 1) for x in (first, second)]
    (found,) = between(*sums, difference, APART)
    want = ttest_ind(second, first, equal_var=False).confidence_interval(0.95)
    assert found.value == pytest.approx(second.mean() - first.mean())
    assert (found.lo, found.hi) == pytest.approx((want.low, want.high), abs=0.12)
    assert found.n_prompts == 35


@pytest.mark.parametrize("pairing", [PAIRED, APART])
def test_the_second_against_the_first_is_the_mirror_image(pairing):
    rng = np.random.default_rng(0)
    first, second = accepted(shares(rng, 18, 0.7), rng), accepted(shares(rng, 18, 0.6), rng)
    back = Pairing(pairing.paired, pairing.seeds[::-1])
    if pairing.paired:
        back = pairing
    (one,), (other,) = (
        between(first, second, difference, pairing),
        between(second, first, difference, back),
    )
    assert (other.value, other.lo, other.hi) == pytest.approx((-one.value, -one.hi, -one.lo))


def test_pairs_are_the_bootstrap_of_both_sums_side_by_side():
    rng = np.random.default_rng(1)
    first, second = accepted(shares(rng, 15, 0.7), rng), accepted(shares(rng, 15, 0.6), rng)
    want = bootstrap(
        np.concatenate([first, second], 1), lambda s: difference(s[..., :2], s[..., 2:])
    )
    assert between(first, second, difference, PAIRED) == want


def test_a_sample_against_itself():
    rng = np.random.default_rng(2)
    one = accepted(shares(rng, 15, 0.7), rng)
    (found,) = between(one, one, difference, PAIRED)
    assert (found.value, found.lo, found.note) == (0, None, "prompts do not differ: no interval")


def test_too_few_prompts():
    rng = np.random.default_rng(2)
    many, one = accepted(shares(rng, 15, 0.7), rng), np.array([[3.0, 4.0]])
    (found,) = between(many, one, difference, APART)
    assert (found.lo, found.note) == (None, "one prompt: no interval")
    (found,) = between(many, one[:0], difference, APART)
    assert (found.value, found.note) == (None, "no rows")
    (found,) = between(many, many[:5], difference, APART)
    assert found.note == "only 5 prompts: the interval may be too narrow"
    with pytest.raises(StatsError, match="15 prompts cannot be paired with 5"):
        between(many, many[:5], difference, PAIRED)
