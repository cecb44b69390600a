"""SVIP's bounds on random distributions, fits with known answers, correlations against SciPy."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from stats_traces import offsets_of

from analysis.stats import StatsError, binned, correlation, entropy
from analysis.stats.clusters import bootstrap
from traces.arrays import rounded, unrounded

SEEDS = st.integers(0, 2**32 - 1)


def distributions(seed, rows=40, size=9):
    """p, q of any sharpness; both positive everywhere."""
    rng = np.random.default_rng(seed)
    sharp = rng.gamma(1, 2, (2, rows, 1))
    p, q = np.exp(sharp * rng.normal(size=(2, rows, size)))
    return p / p.sum(1, keepdims=True), q / q.sum(1, keepdims=True)


def columns(p, q):
    """H(q), H(q,p), overlap."""
    return -(q * np.log(q)).sum(1), -(q * np.log(p)).sum(1), np.minimum(p, q).sum(1)


@given(SEEDS)
def test_both_bounds_hold(seed):
    h, x, overlap = columns(*distributions(seed))
    kl = entropy.divergence(x, h)
    assert (entropy.pinsker(kl) <= overlap + 1e-9).all()
    assert (entropy.bretagnolle_huber(kl) <= overlap + 1e-9).all()
    assert (entropy.bretagnolle_huber(kl) >= 0).all()


def test_bounds_of_two_coins():
    """q = (1/2, 1/2), p = (3/4, 1/4): KL = ln(2/sqrt 3), beta = 3/4, worked out by hand."""
    kl = np.array([np.log(2 / np.sqrt(3))])
    assert entropy.pinsker(kl)[0] == pytest.approx(1 - np.sqrt(np.log(4 / 3)) / 2)
    assert entropy.bretagnolle_huber(kl)[0] == pytest.approx(1 - np.sqrt(1 - np.sqrt(3) / 2))


@given(SEEDS)
def test_equal_models_leave_nothing_to_bound(seed):
    p, _ = distributions(seed)
    h, x, overlap = columns(p, p)
    kl = entropy.divergence(x, h)
    assert entropy.pinsker(kl) == pytest.approx(np.ones(len(kl)))
    assert entropy.bretagnolle_huber(kl) == pytest.approx(overlap)


@given(SEEDS)
def test_shares_of_a_comparison(seed):
    h, x, overlap = columns(*distributions(seed))
    offsets = np.arange(0, 41, 10)
    found = entropy.tightness(h, x, overlap, offsets, 0.2)
    kl, guess = x - h, 1 - np.sqrt(0.2 * h)
    near, far = 1 - np.sqrt(kl / 2), 1 - np.sqrt(1 - np.exp(-kl))
    assert found.gain.value == pytest.approx(near.mean() / far.mean() - 1)
    assert found.gain_clipped.value == pytest.approx(near.clip(0).mean() / far.mean() - 1)
    assert found.below.value == pytest.approx((guess <= overlap).mean())
    assert found.excess.value == pytest.approx((guess - overlap).clip(0).mean())
    assert found.pinsker_wins.value == pytest.approx((near > far).mean())
    assert found.bretagnolle_huber.value <= found.overlap.value


@pytest.mark.parametrize("to", ["overlap", "bound", "ratio"])
@pytest.mark.parametrize("c", [0.02, 0.3])
def test_fits_find_an_exact_c(to, c):
    h = np.random.default_rng(0).gamma(1, 0.5, 600)
    kl = 2 * c * h
    found = entropy.fit(h, h + kl, 1 - np.sqrt(c * h), np.arange(0, 601, 20), to)
    assert found.value == pytest.approx(c, rel=1e-6)


def test_only_the_least_squares_fit_has_the_studentised_ends():
    """There prompts of high entropy weigh most, and c is held in 92-93% without them."""
    rng = np.random.default_rng(3)
    level = np.repeat(rng.lognormal(0, 0.8, 16), 32)
    h = level * rng.gamma(0.7, 1.0, len(level))
    kl = 0.2 * h * rng.gamma(2.0, 1.0, len(level))
    overlap, offsets = np.exp(-0.8 * np.sqrt(kl / 2)), np.arange(0, 513, 32)

    def sums(column):
        return np.stack([np.add.reduceat(x, offsets[:-1]) for x in (column, h)], 1)

    def square(s):
        return (s[..., :1] / s[..., 1:]) ** 2

    least = sums(np.sqrt(h) * (1 - overlap))
    plain = bootstrap(least, square, positive=True)[0]
    found = entropy.fit(h, h + kl, overlap, offsets)
    assert found.lo < plain.lo or found.hi > plain.hi
    assert values(found) == pytest.approx(values(bootstrap(least, square, studentised=True)[0]))
    bound = bootstrap(sums(np.sqrt(h) * np.sqrt(kl / 2)), square, positive=True)[0]
    assert values(entropy.fit(h, h + kl, overlap, offsets, "bound")) == pytest.approx(values(bound))
    ratio = bootstrap(sums(kl / 2), lambda s: s[..., :1] / s[..., 1:], positive=True)[0]
    assert values(entropy.fit(h, h + kl, overlap, offsets, "ratio")) == pytest.approx(values(ratio))


def values(estimate):
    return estimate.value, estimate.lo, estimate.hi


def test_fit_is_the_least_squares_one():
    rng = np.random.default_rng(1)
    h, overlap = rng.gamma(1, 1, 500), rng.random(500)
    c = entropy.fit(h, h, overlap, np.arange(0, 501, 10)).value
    errors = [((overlap - entropy.estimate(h, c * f)) ** 2).sum() for f in (0.99, 1, 1.01)]
    assert errors[1] == min(errors)


def test_ratio_of_entropies():
    rng = np.random.default_rng(2)
    h = rng.gamma(1, 1, 5000).astype(np.float32)
    h[:7] = 0
    ratio = rng.uniform(1, 2, 5000).astype(np.float32)
    found = entropy.entropy_ratio(h, h * ratio, np.arange(0, 5001, 50), (1.0, 1.3))
    assert found.left_out == 7 and len(found.values) == 4993
    assert found.in_band.value == pytest.approx((ratio[7:] <= 1.3).mean(), abs=1e-3)
    for p, quantile in found.quantiles.items():
        assert quantile.value == pytest.approx(1 + p, abs=0.03)
        assert quantile.lo <= quantile.value <= quantile.hi


@pytest.mark.parametrize("bits", [4, 5, 8])
def test_rounding_leaves_no_gaps_and_no_spikes_in_ratios(bits):
    """Of rounded values no ratio lies just below 2, and very many are 2."""
    rng = np.random.default_rng(2)
    h = rng.gamma(1, 1, 40_000).astype(np.float32)
    x = h * rng.uniform(1, 4, 40_000).astype(np.float32)
    offsets, edges = np.arange(0, 40_001, 50), np.linspace(1, 4, 61)
    stored = rounded(h, bits), rounded(x, bits)
    plain, _ = np.histogram(stored[1] / stored[0], edges)
    assert bits > 5 or (plain[19] == 0 and plain[20] > 1.5 * 667)  # 1.95 to 2, and 2 to 2.05
    found = entropy.entropy_ratio(*stored, offsets, (1.0, 2.0), bits)
    counts, _ = np.histogram(found.values, edges)
    assert np.all(np.abs(counts[2:-6] - 667) < 0.25 * 667) and found.values.min() >= 1
    assert found.in_band.value == pytest.approx((x <= 2 * h).mean(), abs=0.01)
    again = entropy.entropy_ratio(*stored, offsets, (1.0, 2.0), bits)
    assert np.array_equal(again.values, found.values)


@pytest.mark.parametrize("bits", [4, 5, 11])
def test_what_is_drawn_for_a_rounded_number_rounds_to_it(bits):
    rng = np.random.default_rng(0)
    values = np.concatenate([rng.normal(0, 1, 2000), 2.0 ** np.arange(-9, 9), [0.0, 1.0, -1.0]])
    stored = rounded(values.astype(np.float32), bits)
    drawn = unrounded(stored, bits, rng)
    assert np.array_equal(rounded(drawn.astype(np.float32), bits), stored)
    assert drawn[-3] == 0 and (bits > 11 or np.abs(drawn - stored).max() > 0)


def test_less_cross_entropy_than_entropy_is_refused():
    h = np.ones(3)
    assert entropy.divergence(h - 5e-4, h).tolist() == [0, 0, 0]
    with pytest.raises(StatsError, match="row 1: H\\(q,p\\) = 0.5 is less than H\\(q\\) = 1"):
        entropy.divergence(np.array([1, 0.5, 1]), h)


def test_negative_c_is_refused():
    with pytest.raises(StatsError, match="c must be >= 0"):
        entropy.tightness(np.ones(2), np.ones(2), np.ones(2), np.array([0, 2]), -1.0)


PEERS = {"spearman": (stats.spearmanr, 1e-4), "kendall": (stats.kendalltau, 1e-3)}


@pytest.mark.parametrize("kind", PEERS)
@pytest.mark.parametrize("make", [lambda x: x, lambda x: x > 0.3, lambda x: np.round(3 * x)])
def test_rank_correlation_is_scipys(kind, make):
    rng = np.random.default_rng(3)
    x = rng.normal(size=6000).astype(np.float32)
    y = make(x + rng.normal(size=6000))
    peer, close = PEERS[kind]
    found = correlation.correlation(x, y, np.arange(0, 6001, 100), kind)
    assert found.value == pytest.approx(peer(x, y).statistic, abs=close)
    assert found.lo < found.value < found.hi


@pytest.mark.parametrize("kind", ["spearman", "kendall"])
@given(st.integers(0, 99))
def test_influence_is_the_derivative(kind, seed):
    table = np.random.default_rng(seed).integers(1, 9, (4, 3)).astype(float)
    coefficient = getattr(correlation, kind)
    found, n, step = coefficient(table), table.sum(), 1e-5
    assert (found.influence * table).sum() == pytest.approx(0, abs=1e-9)
    for cell in np.ndindex(table.shape):
        one = np.zeros_like(table)
        one[cell] = n
        up, down = (coefficient((1 - s) * table + s * one).value for s in (step, -step))
        assert found.influence[cell] == pytest.approx((up - down) / (2 * step), abs=1e-6)


@given(SEEDS)
def test_rank_correlation_sees_only_ranks(seed):
    rng = np.random.default_rng(seed)
    x, y = rng.normal(size=(2, 60))
    offsets = np.arange(0, 61, 15)
    found = correlation.correlation(x, y, offsets).value
    assert correlation.correlation(np.exp(x), y**3, offsets).value == pytest.approx(found)
    assert correlation.correlation(y, x, offsets).value == pytest.approx(found)
    assert correlation.correlation(-x, y, offsets).value == pytest.approx(-found)


@pytest.mark.parametrize("kind", ["spearman", "kendall"])
def test_perfect_and_undefined_rank_correlation(kind):
    x, offsets = np.arange(20.0), np.arange(0, 21, 5)
    assert correlation.correlation(x, x, offsets, kind).value == pytest.approx(1)
    assert correlation.correlation(x, x, offsets, kind).lo is None
    constant = correlation.correlation(x, np.ones(20), offsets, kind)
    assert (constant.value, constant.note) == (None, "not defined on these rows")


def test_curve_by_hand():
    x = np.array([0, 1, 1, 2, 5, 9.0])
    y = np.array([1, 0, 1, 1, 0, 0.0])
    found = binned.curve(x, y, offsets_of([2, 4]), np.array([0, 1, 4, 5, 6]))
    assert found.edges.tolist() == [[0, 1], [1, 4], [4, 5], [5, 6]]
    assert found.rows.tolist() == [3, 1, 1, 1]
    assert found.x.tolist() == pytest.approx([2 / 3, 2, 5, 9])
    assert [y.value for y in found.y] == pytest.approx([2 / 3, 1, 0, 0])
    assert [y.n_prompts for y in found.y] == [2, 1, 1, 1]


@given(SEEDS, st.integers(1, 30), st.booleans())
def test_equal_bins_hold_all_rows(seed, bins, discrete):
    rng = np.random.default_rng(seed)
    x = rng.integers(0, 4, 200) if discrete else rng.normal(size=200)
    found = binned.curve(x, x, np.array([0, 100, 200]), bins)
    assert found.rows.sum() == 200 and len(found.rows) <= bins
    if not discrete:
        assert len(found.rows) == bins
        assert found.rows.max() <= found.rows.min() + 2
    whole = sum(y.value * n for y, n in zip(found.y, found.rows, strict=True))
    assert whole == pytest.approx(x.sum())


@pytest.mark.parametrize("edges", [np.array([1.0]), np.array([0, 0, 1.0]), 0])
def test_bins_that_are_none_are_refused(edges):
    with pytest.raises(StatsError, match="edges must ascend|bins must be"):
        binned.curve(np.ones(3), np.ones(3), np.array([0, 3]), edges)
