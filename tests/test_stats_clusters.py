"""The bootstrap over prompts: against SciPy's, by hand, and where there is nothing to resample."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import ndtr, stdtrit
from scipy.stats import bootstrap as peer
from stats_traces import offsets_of

from analysis.stats.checks import StatsError, check
from analysis.stats.clusters import (
    _drawn_and_pivots,
    blocks,
    bootstrap,
    by_prompt,
    in_bins,
    of_prompts,
    ratio,
    speed,
)
from simkit.statistics.interval import ratio_interval

LENGTHS = st.lists(st.integers(0, 9), max_size=12)


@given(LENGTHS, st.integers(1, 20))
def test_blocks_hold_whole_prompts_in_order(lengths, rows):
    offsets = offsets_of(lengths)
    prompts, covered = [], []
    for some, part in blocks(offsets, rows):
        assert offsets[some.start] == part.start and offsets[some.stop] == part.stop
        assert part.stop - part.start <= max(rows, max(lengths[some], default=0))
        prompts += range(some.start, some.stop)
        covered += range(part.start, part.stop)
    assert prompts == list(range(len(lengths)))
    assert covered == list(range(offsets[-1]))


@given(LENGTHS, st.integers(1, 20), st.integers(0, 99))
def test_sums_by_prompt(lengths, at_once, seed):
    offsets = offsets_of(lengths)
    x = np.random.default_rng(seed).normal(size=offsets[-1]).astype(np.float32)
    found = by_prompt(offsets, lambda rows: (x[rows], x[rows] > 0), at_once)
    parts = np.split(x.astype(float), offsets[1:-1])[: len(lengths)]
    assert found.shape == (len(lengths), 2)
    np.testing.assert_allclose(found[:, 0], [part.sum() for part in parts], atol=1e-9)
    assert found[:, 1].tolist() == [(part > 0).sum() for part in parts]


@given(LENGTHS, st.integers(0, 99))
def test_sums_in_bins(lengths, seed):
    offsets = offsets_of(lengths)
    rng = np.random.default_rng(seed)
    x, which = rng.normal(size=offsets[-1]), rng.integers(0, 3, offsets[-1])
    count, total = in_bins(offsets, 3, lambda rows: (which[rows], [x[rows]]))
    for b in range(3):
        alone = by_prompt(offsets, lambda r, b=b: (which[r] == b, x[r] * (which[r] == b)))
        np.testing.assert_allclose(np.stack([count[:, b], total[:, b]], 1), alone, atol=1e-9)


@given(LENGTHS, st.data())
def test_picking_prompts(lengths, data):
    offsets = offsets_of(lengths)
    wanted = np.array([data.draw(st.booleans()) for _ in lengths], bool)
    rows, kept = of_prompts(offsets, wanted)
    prompt = np.repeat(np.arange(len(lengths)), lengths)
    assert np.array_equal(prompt[rows], np.repeat(np.flatnonzero(wanted), np.diff(kept)))


@pytest.mark.parametrize("skew", [0.2, 0.8])
def test_close_to_scipy_at_the_same_level(skew):
    """SciPy's BCa of a ratio, asked for the expanded level of n = 40: 0.95948.

    Python: scipy.special.ndtr(sqrt(40/39) * scipy.special.stdtrit(39, 0.975)) * 2 - 1, SciPy
    1.17.1. An end is beyond it where the jackknife's is.
    """
    rng = np.random.default_rng(1)
    y = rng.lognormal(0, skew, 40)
    x = y * rng.lognormal(0, skew, 40)
    found = ratio(x, y)
    ends = peer(
        (x, y),
        lambda a, b, axis: a.sum(axis) / b.sum(axis),
        paired=True,
        n_resamples=20_000,
        confidence_level=0.95948,
        rng=np.random.default_rng(2),
    ).confidence_interval
    assert found.value == pytest.approx(x.sum() / y.sum())
    width = ends.high - ends.low
    logs = np.log((x.sum() - x) / (y.sum() - y))
    arm = np.exp(stdtrit(39, 0.975) * np.sqrt(39 / 40 * ((logs - logs.mean()) ** 2).sum()))
    low, high = min(ends.low, found.value / arm), max(ends.high, found.value * arm)
    assert found.lo == pytest.approx(low, abs=0.06 * width)
    assert found.hi == pytest.approx(high, abs=0.06 * width)


@given(st.lists(st.tuples(st.floats(0.1, 9), st.floats(0.1, 9)), min_size=2, max_size=20))
@settings(max_examples=30)
def test_scale_and_order_do_not_matter(pairs):
    x, y = np.array(pairs).T
    one, two = ratio(x, y), ratio(8 * x, 4 * y)
    assert two.value == pytest.approx(2 * one.value)
    assert (one.lo is None) == (two.lo is None)
    if one.lo is not None:
        assert one.lo <= one.hi
        assert two.lo == pytest.approx(2 * one.lo) and two.hi == pytest.approx(2 * one.hi)
    assert ratio(x[::-1], y[::-1]).value == pytest.approx(one.value)


@given(st.integers(16, 60), st.integers(0, 10**6), st.floats(-2, 2))
@settings(max_examples=30)
def test_a_ratio_of_either_sign_is_that_of_replays(n, seed, mean):
    """From 16 prompts on no end lies beyond every resample, so the cap changes nothing."""
    rng = np.random.default_rng(seed)
    x, y = rng.normal(mean, 1, n), rng.lognormal(0, 0.3, n)
    found = ratio(x, y)
    assert (found.lo, found.hi) == pytest.approx(ratio_interval(x, y, 0.95, 0))


def squared_ratio(s):
    return (s[..., :1] / s[..., 1:]) ** 2


def long_tailed(n, seed):
    rng = np.random.default_rng(seed)
    x = rng.lognormal(0, 1.2, n)
    return np.stack([x**1.5 * rng.lognormal(0, 0.2, n), x], 1)


@pytest.mark.parametrize("n", [4, 16, 40])
def test_studentised_ends_by_hand(n):
    """Each resample drawn and judged by itself, with the influences of its own prompts."""
    sums = long_tailed(n, n)
    plain = bootstrap(sums, squared_ratio, positive=True)[0]
    found = bootstrap(sums, squared_ratio, positive=True, studentised=True)[0]
    drawn = [sums[rows] for rows in np.random.default_rng(0).integers(0, n, (2000, n))]
    values = np.array([squared_ratio(part.sum(0))[0] for part in drawn])
    pivots = np.array([np.log(v / found.value) for v in values])
    for i, part in enumerate(drawn):
        influence = 2 * (part[:, 0] / part[:, 0].sum() - part[:, 1] / part[:, 1].sum())
        error = np.sqrt(n / (n - 1) * (influence**2).sum())
        pivots[i] = pivots[i] / error if len(np.unique(part[:, 1])) > 1 else np.nan
    reach = stdtrit(n - 1, 0.975)
    pivots = pivots.clip(-2 * reach, 2 * reach)
    level = ndtr(np.sqrt(n / (n - 1)) * reach)
    above, below = np.nanquantile(pivots, [level, 1 - level])
    left = np.log(squared_ratio(sums.sum(0) - sums)[:, 0])
    error = np.sqrt((n - 1) / n * ((left - left.mean()) ** 2).sum())
    low, high = found.value * np.exp(-np.array([above, below]) * error)
    assert found.value == plain.value
    assert found.lo == pytest.approx(min(plain.lo, low), rel=1e-4)
    assert found.hi == pytest.approx(max(plain.hi, high), rel=1e-4)
    assert found.lo < plain.lo or found.hi > plain.hi


@given(st.integers(2, 30), st.integers(0, 10**6))
@settings(max_examples=30)
def test_studentised_ends_are_finite_and_never_nearer(n, seed):
    sums = np.round(long_tailed(n, seed), 1) + 0.1
    plain = bootstrap(sums, squared_ratio, positive=True)[0]
    found = bootstrap(sums, squared_ratio, positive=True, studentised=True)[0]
    if plain.lo is None:
        assert found == plain
    else:
        assert 0 < found.lo <= plain.lo * (1 + 1e-9) and np.isfinite(found.hi)
        assert found.hi >= plain.hi * (1 - 1e-9)


def test_a_resample_of_the_value_0_is_as_far_below_as_any():
    """Two of four prompts bring nothing; a resample has these alone with (1/2)^4."""
    sums = np.array([[3.0, 1], [0.0, 1.5], [0.0, 1], [1e-3, 1]])
    with np.errstate(all="ignore"):
        pivots = _drawn_and_pivots(sums, squared_ratio, squared_ratio(sums.sum(0)), 0, 2000)[1]
    assert np.isneginf(pivots).mean() == pytest.approx(0.5**4, abs=0.02)
    found = bootstrap(sums, squared_ratio, studentised=True)[0]
    assert 0 <= found.lo < found.value < found.hi < np.inf


def test_prompts_without_rows_change_nothing():
    x, y = np.array([1.0, 2, 4, 0, 0]), np.array([2.0, 2, 5, 0, 0])
    assert ratio(x, y) == ratio(x[:3], y[:3])


@pytest.mark.parametrize(
    "x, y, value, note",
    [
        ([], [], None, "no rows"),
        ([0, 0], [0, 0], None, "no rows"),
        ([3.0], [4.0], 0.75, "one prompt: no interval"),
        ([1, 2], [0, 0], None, "not defined on these rows"),
        ([2.0, 4, 6], [1.0, 2, 3], 2.0, "prompts do not differ: no interval"),
        ([1.0, 2, 3], [0.0, 0, 2], 3.0, "too few prompts bear on it: no interval"),
    ],
)
def test_what_has_no_interval_says_so(x, y, value, note):
    found = ratio(np.array(x), np.array(y))
    assert (found.value, found.lo, found.hi, found.note) == (value, None, None, note)


def test_few_prompts_are_named():
    rng = np.random.default_rng(0)
    x, y = rng.random(11), rng.random(11) + 1
    assert ratio(x, y).note == "only 11 prompts: the interval may be too narrow"
    assert ratio(rng.random(12), rng.random(12) + 1).note == ""


def test_fewer_prompts_that_bear_widen_an_interval():
    sums = np.random.default_rng(0).random((30, 1))
    wide, narrow = (bootstrap(sums, lambda s: s, bearing=np.array([n]))[0] for n in (4, 30))
    assert wide.n_prompts == 4 and wide.hi - wide.lo > 1.2 * (narrow.hi - narrow.lo)


def test_confidence_is_checked():
    with pytest.raises(StatsError, match="confidence must be in"):
        ratio(np.ones(3), np.ones(3), confidence=1.0)


@pytest.mark.parametrize(
    "offsets, column, message",
    [
        ([0, 2], [1.0, np.nan], "x: row 1 is nan, not a finite number"),
        ([0, 2], [np.inf, 1.0], "x: row 0 is inf"),
        ([0, 3], [1.0, 2.0], r"x has shape \(2,\), the offsets ask \(3,\)"),
        ([1, 2], [1.0, 2.0], "offsets must be one row of whole numbers"),
        ([0, 2, 1], [1.0], "offsets must be one row of whole numbers"),
        ([], [], "offsets must be one row of whole numbers"),
    ],
)
def test_bad_columns_are_refused(offsets, column, message):
    with pytest.raises(StatsError, match=message):
        check(np.array(offsets), x=np.array(column))


@pytest.mark.parametrize("n", range(2, 9))
def test_a_speed_of_few_prompts_is_that_of_replays(n):
    rng = np.random.default_rng(n)
    other_s = rng.lognormal(0, 0.3, n) + 1
    own_s = other_s / rng.uniform(1, 2, n)
    found = speed(other_s, own_s)
    assert (found.lo, found.hi) == pytest.approx(ratio_interval(other_s, own_s, 0.95, 0), rel=1e-3)
