"""Bootstrap intervals, above all where there is little to resample."""

import math

import numpy as np
import pytest
from scipy.stats import bootstrap

from simkit.simulator.interval import RESAMPLES, ratio_interval


def test_is_the_bootstrap_of_scipy():
    rng = np.random.default_rng(0)
    top, bottom = rng.gamma(5, size=40), rng.gamma(3, size=40)
    expected = bootstrap(
        (top, bottom),
        lambda x, y, axis: x.sum(axis) / y.sum(axis),
        paired=True,
        n_resamples=RESAMPLES,
        confidence_level=0.9,
        rng=np.random.default_rng(7),
    ).confidence_interval
    assert ratio_interval(top, bottom, 0.9, 7) == (expected.low, expected.high)
    assert expected.low < top.sum() / bottom.sum() < expected.high


def test_covers_the_truth_about_as_often_as_it_says():
    """Of 200 intervals at 90 %, 180 are expected to cover; fewer than 155 has probability 1e-7."""
    rng = np.random.default_rng(1)
    hits = 0
    for seed in range(200):
        size = rng.gamma(4, size=60)
        low, high = ratio_interval(size * rng.gamma(50, 0.04, size=60), size, 0.9, seed)
        hits += low <= 2.0 <= high
    assert 155 <= hits <= 200


@pytest.mark.parametrize(
    ("top", "bottom"), [([1.0], [2.0]), ([], []), ([0.0, 0.0], [0.0, 0.0]), ([1.0, 1.0], [0, 1.0])]
)
def test_too_little_to_resample_gives_nothing(top, bottom):
    low, high = ratio_interval(np.array(top), np.array(bottom), 0.95, 0)
    assert math.isnan(low)
    assert math.isnan(high)


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
    assert 1 <= low <= high <= 2


def test_the_seed_decides():
    rng = np.random.default_rng(3)
    top, bottom = rng.random(20), rng.random(20)
    assert ratio_interval(top, bottom, 0.95, 1) == ratio_interval(top, bottom, 0.95, 1)
    assert ratio_interval(top, bottom, 0.95, 1) != ratio_interval(top, bottom, 0.95, 2)
