"""Every statistic on rows at the edge: no NaN comes out, none goes in, nothing warns."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from stats_traces import ahead_of, flags, offsets_of, parts_of

from analysis.stats import (
    StatsError,
    acceptance_length,
    accepted_runs,
    binned,
    correlation,
    depth,
    drafts,
    entropy,
    iid,
    optimal,
    reliability,
    waste,
)
from simkit.steps.steps import Steps
from traces.errors import UserError


def _by_depth(accepted, x, offsets):
    made = drafts.every_start(ahead_of(accepted, offsets), offsets, 31, 5)
    return depth.by_depth(made, 5)


def _excess(accepted, x, offsets):
    ones = np.minimum(np.diff(offsets), 1)
    return iid.excess_tokens(accepted, offsets, ones, ones, 4)


def _steps(accepted, offsets):
    """One step a token."""
    ones = np.ones(len(accepted), np.int32)
    return Steps(offsets, ones, ones, ones, accepted.astype(np.int32), ones, ones, 1)


def _waste(accepted, x, offsets):
    steps = _steps(accepted, offsets)
    mine = waste.by_position(steps, x, np.array([1, 4, 99]))
    counts = {"drafted": np.diff(offsets), "accepted": np.diff(offsets) // 2}
    seconds = {"draft_s": mine.sum(1), "policy_s": mine[:, 0], "baseline_s": mine.sum(1)}
    best = mine.sum(1) / 2
    return [
        waste.overhead_share(counts, seconds),
        waste.regret(mine.sum(1), best),
        mine,
    ]


ALL = {
    "waste": _waste,
    "mean_accepted": lambda a, x, o: accepted_runs.mean_accepted(
        accepted_runs.runs_of_prompts(_steps(a, o))
    ),
    "fit": lambda a, x, o: entropy.fit(x, 2 * x, np.exp(-x), o),
    "fit, ratio": lambda a, x, o: entropy.fit(x, 2 * x, np.exp(-x), o, "ratio"),
    "tightness": lambda a, x, o: entropy.tightness(x, 2 * x, np.exp(-x), o, 0.1),
    "entropy_ratio": lambda a, x, o: entropy.entropy_ratio(x, 2 * x, o, (1.0, 1.3)),
    "spearman": lambda a, x, o: correlation.correlation(x, a, o),
    "kendall": lambda a, x, o: correlation.correlation(x, a, o, "kendall"),
    "curve": lambda a, x, o: binned.curve(x, a, o, 4),
    "by_depth": _by_depth,
    "run_lengths": lambda a, x, o: iid.run_lengths(drafts.runs(a, o)),
    "between_prompts": lambda a, x, o: iid.between_prompts(a, o),
    "autocorrelation": lambda a, x, o: iid.autocorrelation(a, o),
    "within prompts": lambda a, x, o: iid.autocorrelation(a, o, within=True),
    "excess_tokens": _excess,
    "lengths": lambda a, x, o: optimal.lengths(drafts.runs(a, o), 3),
    "prediction": lambda a, x, o: acceptance_length.prediction(np.exp(-x), ahead_of(a, o), o, 3),
    "reliability": lambda a, x, o: reliability.reliability(np.exp(-x), a, o),
}
OF_SPREAD = {"spearman", "kendall", "between_prompts", "autocorrelation", "within prompts"}
OF_X = {"fit", "fit, ratio"}
NEED_X = set(ALL) - {
    "by_depth", "run_lengths", "between_prompts", "autocorrelation", "within prompts", "lengths",
    "excess_tokens", "waste", "mean_accepted",
}  # fmt: skip


@pytest.mark.parametrize("name", ALL)
@settings(max_examples=40, deadline=None)
@given(rows=flags())
def test_no_nan_and_no_warning(name, rows):
    accepted, offsets = rows
    x = np.random.default_rng(0).random(len(accepted))
    found = parts_of(ALL[name](accepted, x, offsets))
    assert np.isfinite(found).all()


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("value", [True, False])
def test_all_one_way(name, value):
    offsets = offsets_of([20, 1, 0, 12])
    for x in (np.zeros(33), np.linspace(0, 1, 33)):
        found = parts_of(ALL[name](np.full(33, value), x, offsets))
        there = name not in OF_SPREAD and (x.any() or name not in OF_X)
        assert np.isfinite(found).all() and bool(len(found)) == there


def test_all_one_way_is_what_it_is():
    """Every drafted token accepted, or none: shares are 1 or 0, runs as long as outputs or 0."""
    offsets = offsets_of([20, 1, 0, 12])
    for value in (True, False):
        accepted = np.full(33, value)
        by_depth = _by_depth(accepted, None, offsets)
        assert {e.value for e in by_depth.marginal if e.value is not None} == {float(value)}
        mean = accepted_runs.mean_accepted(accepted_runs.runs_of_prompts(_steps(accepted, offsets)))
        assert mean.value == (11 if value else 0)  # 20, 1 and 12 tokens: runs that outputs end


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("lengths", [[], [0], [0, 0]])
def test_no_rows(name, lengths):
    found = ALL[name](np.zeros(0, bool), np.zeros(0), offsets_of(lengths))
    assert np.isfinite(parts_of(found)).all()


@pytest.mark.parametrize("name", sorted(NEED_X))
def test_nan_is_refused_by_name(name):
    x = np.array([0.5, np.nan, 0.5, 0.5, 0.5])
    with pytest.raises(StatsError, match="row 1 is nan, not a finite number") as caught:
        ALL[name](np.ones(5, bool), x, offsets_of([2, 3]))
    assert isinstance(caught.value, UserError)


def test_one_prompt_says_that_it_has_no_interval():
    rng = np.random.default_rng(0)
    accepted, x, offsets = rng.random(40) < 0.6, rng.random(40), offsets_of([40])
    estimates = [
        ALL["fit"](accepted, x, offsets),
        ALL["spearman"](accepted, x, offsets),
        ALL["autocorrelation"](accepted, x, offsets),
        ALL["by_depth"](accepted, x, offsets).marginal[0],
        ALL["curve"](accepted, x, offsets).y[0],
        ALL["entropy_ratio"](accepted, x, offsets).quantiles[0.5],
    ]
    for found in estimates:
        assert found.value is not None and found.lo is None and found.hi is None
        assert found.note == "one prompt: no interval" and found.n_prompts == 1


def test_all_accepted_has_no_spread():
    found = _by_depth(np.ones(40, bool), None, offsets_of([20, 20]))
    assert {e.value for e in found.marginal} == {1.0}
    assert {e.note for e in found.marginal} == {"prompts do not differ: no interval"}
    assert iid.between_prompts(np.ones(9, bool), offsets_of([4, 5])).note == (
        "all tokens went one way"
    )


@settings(max_examples=200)
@given(st.integers(0, 2**32 - 1))
def test_dispersion_of_a_few_short_runs(seed):
    """Resamples without spread, or of the value 0, leave no end that is not finite."""
    rng = np.random.default_rng(seed)
    offsets = np.concatenate([[0], np.cumsum(rng.integers(1, 14, rng.integers(2, 7)))])
    accepted = rng.random(offsets[-1]) < rng.choice([0.2, 0.5, 0.8, 0.95])
    found = iid.dispersion(drafts.runs(accepted, offsets))
    if found.lo is None:
        assert found.hi is None and found.note
    else:
        assert 0 <= found.lo <= found.value * (1 + 1e-9) and found.hi >= found.value * (1 - 1e-9)
        assert np.isfinite(found.hi)


def test_dispersion_where_no_resample_shows_spread():
    """Both prompts give 1/3 alone and together; so pivots are all rounding, or none."""
    accepted = np.array([1, 0, 1, 0, 0, 1, 1, 0, 1, 1, 0, 0], bool)
    found = iid.dispersion(drafts.runs(accepted, np.array([0, 5, 12])))
    assert found.value == pytest.approx(1 / 3)
    assert 0 < found.lo < found.value < found.hi < 100
