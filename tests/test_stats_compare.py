"""Policies compared, p-values corrected, predictions held against outcomes."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from sklearn.calibration import calibration_curve
from sklearn.metrics import brier_score_loss

from analysis.stats import StatsError, clusters, compare, reliability
from simkit.reliability import expected_error
from simkit.statistics.enough import FOR_INTERVAL

P_VALUES = st.lists(st.floats(0, 1), min_size=1, max_size=12).map(np.array)


def seconds(n=30, slower=(1.0, 1.2, 0.9), seed=0):
    rng = np.random.default_rng(seed)
    base = rng.lognormal(0, 0.5, n)
    return {f"fixed({i})": base * f * rng.lognormal(0, 0.05, n) for i, f in enumerate(slower, 1)}


@given(P_VALUES)
def test_holm_is_the_closed_test_of_bonferroni(p):
    """Adjusted p of i = max over sets that hold i of min(1, size × least p), by enumeration."""
    p = p[:6]
    sets = [np.array(s) for n in range(1, len(p) + 1) for s in _subsets(len(p), n)]
    least = [min(1, len(s) * p[s].min()) for s in sets]
    for i, found in enumerate(compare.adjust(p, "holm")):
        assert found == pytest.approx(
            max(bound for s, bound in zip(sets, least, strict=True) if i in s)
        )


def _subsets(n, size):
    from itertools import combinations

    return combinations(range(n), size)


@given(P_VALUES)
def test_corrections_raise_and_keep_the_order(p):
    for kind in ("holm", "benjamini-hochberg"):
        found = compare.adjust(p, kind)
        assert (found >= p - 1e-12).all() and (found <= 1).all()
        assert (np.diff(found[np.argsort(p)]) >= -1e-12).all()
    assert (compare.adjust(p, "holm") >= compare.adjust(p, "benjamini-hochberg") - 1e-12).all()


def test_known_corrections():
    """R 4.3: p.adjust(c(.01, .04, .03, .005), "holm") and "BH"; also by hand."""
    p = np.array([0.01, 0.04, 0.03, 0.005])
    assert compare.adjust(p) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert compare.adjust(p, "benjamini-hochberg") == pytest.approx([0.02, 0.04, 0.04, 0.02])
    assert compare.adjust(p, "none") is p and len(compare.adjust(np.array([]))) == 0


def test_rounding_is_no_difference():
    """The same passes summed in another order: not slower, whatever the last digits say."""
    one = np.full(24, 1.3443e0)
    for noise in (-1e-15, np.where(np.arange(24) % 2, 1e-15, -2e-15), 1e-11):
        (found,) = compare.compare({"a": one * (1 + noise), "b": one}, "b")
        assert found.p_value == found.adjusted == 1
        assert not compare.saved(one * (1 + noise), one).any()
    (found,) = compare.compare({"a": one * (1 + 1e-6), "b": one}, "b")
    assert found.p_value == 0  # all prompts alike, and slower
    assert compare.saved(np.array([1.0, 0.0]), np.array([1.5, 0.0])).tolist() == [0.5, 0]


@pytest.mark.parametrize("p, kind", [([0.5, 1.1], "holm"), ([np.nan], "holm"), ([0.5], "tukey")])
def test_corrections_are_checked(p, kind):
    with pytest.raises(StatsError, match="p-values must|unknown correction tukey"):
        compare.adjust(np.array(p), kind)


def test_against_one_and_all_pairs():
    given_ = seconds()
    one = compare.compare(given_, against="fixed(1)")
    assert [(c.name, c.against) for c in one] == [
        ("fixed(2)", "fixed(1)"),
        ("fixed(3)", "fixed(1)"),
    ]
    pairs = compare.compare(given_, correction="benjamini-hochberg")
    assert [(c.name, c.against) for c in pairs] == [
        ("fixed(2)", "fixed(1)"),
        ("fixed(3)", "fixed(1)"),
        ("fixed(3)", "fixed(2)"),
    ]
    a, b = given_["fixed(2)"], given_["fixed(1)"]
    assert one[0].speed.value == pytest.approx(b.sum() / a.sum())
    assert one[0].speed.hi < 1 < one[1].speed.lo
    assert one[0].p_value == pytest.approx(stats.ttest_rel(a, b).pvalue)
    assert one[0].adjusted <= 2 * one[0].p_value + 1e-12


def test_turning_a_pair_round_inverts_it():
    given_ = seconds()
    forth = compare.compare(given_, against="fixed(1)")[0]
    back = compare.compare(given_, against="fixed(2)")[0]
    assert back.speed.value == pytest.approx(1 / forth.speed.value)
    assert back.speed.lo == pytest.approx(1 / forth.speed.hi, rel=2e-3)
    assert back.p_value == pytest.approx(forth.p_value)


def test_equal_policies_do_not_differ():
    base = np.random.default_rng(0).random(9) + 1
    same, twice = compare.compare({"a": base, "b": base.copy(), "c": base + 1}, against="a")
    assert (same.speed.value, same.speed.lo, same.p_value) == (1.0, None, 1.0)
    assert same.speed.note == "prompts do not differ: no interval"
    assert twice.p_value == 0.0


def test_one_prompt_and_none():
    (one,) = compare.compare({"a": np.array([2.0]), "b": np.array([1.0])})
    assert (one.speed.value, one.speed.lo, one.p_value, one.adjusted) == (2.0, None, None, None)
    assert one.speed.note == "one prompt: no interval"
    (none,) = compare.compare({"a": np.array([]), "b": np.array([])})
    assert (none.speed.value, none.speed.note) == (None, "no rows")


def test_simultaneous_intervals_are_wider():
    given_ = seconds(40, (1.0, 1.02, 0.98, 1.05, 1.0))
    found = compare.simultaneous(given_, "fixed(1)")
    for pair in compare.compare(given_, against="fixed(1)"):
        wide = found[pair.name]
        assert wide.value == pytest.approx(pair.speed.value)
        assert wide.hi - wide.lo > pair.speed.hi - pair.speed.lo
    assert compare.simultaneous({"a": np.ones(1), "b": np.ones(1)}, "a")["b"].lo is None


@given(st.integers(2, 14), st.integers(0, 99), st.floats(0, 3))
def test_simultaneous_intervals_over_few_prompts(n, seed, noise):
    """Finite and about the value, or none, with the reason; never a warning."""
    rng = np.random.default_rng(seed)
    base = rng.lognormal(0, 0.5, n)
    others = {str(k): base * rng.lognormal(0, noise, n) for k in range(3)}
    found = compare.simultaneous({"base": base, "twin": 2 * base, **others}, "base")
    twin = found.pop("twin")  # the same ratio for all prompts: as elsewhere, no interval
    alone = clusters.ratio(base, 2 * base)
    assert (twin.value, twin.lo, twin.hi) == (pytest.approx(0.5), None, None)
    assert twin.note == alone.note == clusters.ALIKE
    for one in found.values() if noise > 1e-3 else ():
        if one.lo is None:
            assert one.note == "too few prompts differ: no interval for all at once"
        else:
            assert 0 < one.lo <= one.value <= one.hi < np.inf
            assert bool(one.note) == (n < FOR_INTERVAL)


def test_three_prompts_have_no_simultaneous_interval():
    """One resample in nine holds one prompt only, more than the one in twenty to be left out."""
    given_ = {"a": np.array([1.0, 2.0, 3.0]), "b": np.array([1.1, 1.9, 3.3])}
    found = compare.simultaneous(given_, "a")["b"]
    assert (found.value, found.lo) == (pytest.approx(6 / 6.3), None)


@pytest.mark.parametrize(
    "given_, against, message",
    [
        ({"a": np.ones(2)}, "b", "b is not among the policies: a"),
        ({"a": np.ones(2), "b": np.ones(3)}, None, "same prompts"),
        ({"a": np.ones(2), "b": np.array([1, np.nan])}, None, "b: row 1 is nan"),
        ({"a": np.ones(2), "b": np.zeros(2)}, None, "b: seconds must be positive"),
    ],
)
def test_comparisons_are_checked(given_, against, message):
    with pytest.raises(StatsError, match=message):
        compare.compare(given_, against)


def rows(seed, n=600):
    rng = np.random.default_rng(seed)
    probability = rng.random(n) ** 0.5
    return probability, rng.random(n) < probability**1.5, np.arange(0, n + 1, n // 20)


@given(st.integers(0, 999), st.integers(1, 20))
def test_calibration_is_scikit_learns(seed, n_bins):
    probability, accepted, offsets = rows(seed)
    found = reliability.reliability(probability, accepted, offsets, n_bins)
    share, predicted = calibration_curve(accepted, probability, n_bins=n_bins)
    assert [a.value for a in found.accepted] == pytest.approx(share)
    assert found.predicted == pytest.approx(predicted)
    assert found.brier.value == pytest.approx(brier_score_loss(accepted, probability))
    gaps = np.abs(share - predicted) * found.rows
    assert found.error.value == pytest.approx(gaps.sum() / len(probability))
    assert found.rows.sum() == len(probability) and found.n_bins == n_bins


def test_calibration_is_the_heads_metric():
    probability, accepted, offsets = rows(1)
    found = reliability.reliability(probability, accepted, offsets)
    assert found.error.value == pytest.approx(expected_error(accepted, probability))


def test_skill_of_the_share_itself_and_of_certainty():
    _, accepted, offsets = rows(2)
    chance = np.full(len(accepted), accepted.mean())
    assert reliability.reliability(chance, accepted, offsets).skill.value == pytest.approx(0)
    sure = reliability.reliability(accepted.astype(float), accepted, offsets)
    assert (sure.brier.value, sure.skill.value, sure.error.value) == (0, 1, 0)


@pytest.mark.parametrize("probability, n_bins", [([0.5, 1.1], 5), ([-0.1, 0.5], 5), ([0.5, 1], 0)])
def test_calibration_is_checked(probability, n_bins):
    with pytest.raises(StatsError, match="must be"):
        reliability.reliability(np.array(probability), np.ones(2, bool), np.array([0, 2]), n_bins)
