"""A small cut of `python -m benchmarks.coverage`: intervals hold the truth as often as said."""

import numpy as np
import pytest

from analysis.stats import correlation, depth, drafts, iid
from benchmarks import coverage
from simkit.drafters.path import PathLayout
from traces import synthetic

TRACES = 150
LEAST, MOST = 0.89, 0.995  # the range of 93-97% and two standard errors of 150 draws
DECAY = (0.9, 0.75, 0.6)


def held(estimate, truth):
    assert estimate.lo is not None
    return estimate.lo <= truth <= estimate.hi


def share(draw, traces=TRACES, least=LEAST):
    found = np.mean([draw(seed) for seed in range(traces)], axis=0)
    assert (found >= least).all() and (found <= MOST).all(), found


def test_conditional_and_marginal_acceptance():
    def draw(seed):
        trace = synthetic.decaying(40, 64, DECAY, max_draft=3, seed=seed)
        layout = PathLayout(trace)
        curve = depth.by_depth(drafts.fixed_steps(layout.ahead, layout.offsets, 64, 3), 3)
        truth = zip(curve.conditional + curve.marginal, [*DECAY, *np.cumprod(DECAY)], strict=True)
        return [held(estimate, value) for estimate, value in truth]

    share(draw)


def test_autocorrelation_and_alpha():
    def draw(seed):
        chain = synthetic.markov(40, 64, 0.85, 0.6, max_draft=3, seed=seed)
        mixed = synthetic.mixed(40, 64, 0.75, 0.1, max_draft=3, seed=seed)
        runs = drafts.runs(mixed.positions("accepted"), mixed.position_offsets)
        found = iid.autocorrelation(chain.positions("accepted"), chain.position_offsets)
        return [held(found, 0.25), held(iid.run_lengths(runs).alpha, 0.75)]

    share(draw)


def test_dispersion_of_long_tailed_runs():
    """16 prompts, 300 traces. Without bootstrap-t's ends 88% hold the truth."""
    truth = coverage.dispersion_of_mixed()

    def draw(seed):
        mixed = synthetic.mixed(16, coverage.LENGTH, *coverage.MIXED, max_draft=3, seed=seed)
        runs = drafts.runs(mixed.positions("accepted"), mixed.position_offsets)
        return [held(iid.dispersion(runs), truth)]

    share(draw, 300, 0.905)


def test_the_truth_of_the_dispersion_is_that_of_many_prompts():
    """Its standard error on 20,000 prompts is 0.007."""
    mixed = synthetic.mixed(20_000, coverage.LENGTH, *coverage.MIXED, max_draft=3, seed=5)
    found = iid.dispersion(drafts.runs(mixed.positions("accepted"), mixed.position_offsets))
    assert found.value == pytest.approx(coverage.dispersion_of_mixed(), abs=0.02)


def test_rank_correlation():
    truth = 6 / np.pi * np.arcsin(-0.3)

    def draw(seed):
        rng = np.random.default_rng(seed)
        own, noise = np.repeat(rng.normal(size=(80, 2)), 32, 0), rng.normal(size=(2560, 2))
        x, y = np.linalg.cholesky([[1, -0.6], [-0.6, 1]]) @ (own * 0.5 + noise * 0.75**0.5).T
        return [held(correlation.correlation(x, y, np.arange(0, 2561, 32)), truth)]

    share(draw)


def test_speed():
    share(lambda seed: [held(coverage.policies(seed, 40)["speed: slower"], 1 / 1.05)])


@pytest.mark.parametrize("n", [12, 40])
def test_savings(n):
    """Some prompts lose. 3% and 10% of the time, and of a part that is a quarter of it."""
    truth = [0.03, 0.12, 0.1, 0.4]
    share(lambda seed: list(map(held, coverage.savings(seed, n).values(), truth)))


@pytest.mark.parametrize("case", coverage.CASES, ids=lambda case: case.__name__)
def test_the_benchmark_s_estimates_are_reproducible(case):
    assert case(3, 12) == case(3, 12)
