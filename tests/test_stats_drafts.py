"""Drafts, acceptance by depth, the i.i.d. assumption: against replays, SciPy and closed forms."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from replay_traces import tiny_traces
from scipy import stats
from stats_traces import ahead_of, flags, offsets_of

from analysis.claims import CLAIMS, check
from analysis.figures import FIGURES
from analysis.stats import StatsError, depth, drafts, iid
from analysis.study import Study
from simkit import policies
from simkit.drafters.path import PathLayout
from simkit.simulator.arguments import FIRST
from simkit.steps.chain import FAMILY
from traces import synthetic

COST = "linear(draft_s=1, target_s=6)"


@settings(deadline=None)  # compiles at first
@given(tiny_traces(), st.integers(1, 4), st.sampled_from([1, 2]))
def test_steps_of_fixed_are_the_replays(trace, length, first):
    layout = PathLayout(trace)
    length = min(length, trace.max_draft)
    steps = FAMILY.walk(policies.Fixed(length), layout, first)
    found = drafts.fixed_steps(layout.ahead, layout.offsets, trace.max_new_tokens, length, first)
    expected = drafts.of_steps(steps)
    for name in ("offsets", "accepted", "rejected"):
        assert np.array_equal(getattr(found, name), getattr(expected, name)), name


@given(flags(), st.integers(1, 6))
def test_every_start_one_by_one(rows, length):
    accepted, offsets = rows
    ahead, limit = ahead_of(accepted, offsets), 31
    found = drafts.every_start(ahead, offsets, limit, length)
    for low, high in zip(offsets[:-1], offsets[1:], strict=True):
        for row in range(low, high):
            room = min(length, limit - (row - low + 1), high - row)
            seen = accepted[row : row + room]
            kept = len(seen) if seen.all() else int(seen.argmin())
            assert found.accepted[row] == kept
            assert found.rejected[row] == (kept < len(seen))


@given(flags(), st.sampled_from([1, 2]))
def test_runs_tile_the_text_from_the_first_step_on(rows, first):
    accepted, offsets = rows
    found = drafts.runs(accepted, offsets, first)
    for s, (low, high) in enumerate(pairwise(offsets)):
        again = []
        for d in range(found.offsets[s], found.offsets[s + 1]):
            again += [True] * int(found.accepted[d]) + [False] * int(found.rejected[d])
        assert again == accepted[low + first - 1 : high].tolist()


@pytest.mark.parametrize("first_token", ["draft", "prefill"])
def test_runs_of_a_study_are_the_steps_of_the_oracle(first_token):
    """But for a token at the length limit, which no draft reaches."""
    study = Study(synthetic.iid(9, 40, 0.8, max_draft=40, seed=5), first_token)
    found, first = study.runs(), FIRST[first_token]
    steps = drafts.of_steps(FAMILY.walk(policies.Oracle(max_draft=40), study.path, first))
    assert np.array_equal(found.offsets, steps.offsets)
    beyond = found.accepted - steps.accepted
    assert set(beyond.tolist()) <= {0, 1} and not beyond[found.rejected].any()


def test_figures_and_claims_count_runs_from_the_first_step_on():
    """Under prefill, an output's first token is in no draft, nor in a step's γ*."""
    trace = synthetic.iid(12, 30, 0.8, max_draft=16, seed=5)
    for name in ("step_lengths", "optimal_lengths"):
        whole, later = (
            FIGURES[name].draw(trace, first_token=first).frame for first in ("draft", "prefill")
        )
        assert not whole.equals(later)
    drawn = FIGURES["step_lengths"].draw(trace, first_token="prefill", steps=10**6).frame
    assert drawn["length"].to_list() == Study(trace, "prefill").runs().accepted.tolist()
    for name in ("lengths_vary", "fixed_is_mostly_wrong"):
        (one,) = check(trace, COST, claims=[CLAIMS[name]], first_token="prefill").of
        (other,) = check(trace, COST, claims=[CLAIMS[name]]).of
        assert one.parts[0].found != other.parts[0].found


@given(flags(min_prompts=1), st.integers(1, 12))
def test_conditional_and_marginal_fit_together(rows, max_depth):
    accepted, offsets = rows
    every = drafts.every_start(ahead_of(accepted, offsets), offsets, 31, max_depth)
    found = depth.by_depth(every, max_depth)
    conditional = np.array([e.value for e in found.conditional], float)
    marginal = np.array([e.value for e in found.marginal], float)
    assert np.cumprod(conditional) == pytest.approx(marginal)
    assert (np.diff(marginal) <= 1e-12).all() and (np.diff(found.at_risk) <= 0).all()
    assert ((conditional >= 0) & (conditional <= 1)).all()
    assert [e.value for e in found.greenwood] == pytest.approx(list(marginal))
    ended = found.at_risk - found.rejected
    assert (found.at_risk[1:] <= ended[:-1]).all()


@given(flags(min_prompts=1), st.integers(1, 12))
def test_without_other_censoring_marginal_is_the_share(rows, length):
    """Where only Gamma ends drafts, P(a >= j) is the share of drafts that accepted j tokens."""
    accepted, _ = rows
    ahead = ahead_of(accepted, offsets_of([len(accepted)]))
    whole = np.arange(len(accepted)) + length < len(accepted)
    kept = np.minimum(ahead[whole], length)
    made = drafts.Drafts(np.array([0, whole.sum()]), kept.astype(np.int32), kept < length)
    for j, marginal in enumerate(depth.by_depth(made, length).marginal, start=1):
        assert marginal.value == pytest.approx((kept >= j).mean())


def test_censored_drafts_by_hand():
    """Rejected at 2, at 2, censored after 1, accepted 3 of 3: S = 1, then 1/3, then 1/3."""
    made = drafts.Drafts(
        np.array([0, 2, 4]), np.array([1, 1, 1, 3], np.int32), np.array([1, 1, 0, 0], bool)
    )
    found = depth.by_depth(made, 5)
    assert found.depth.tolist() == [1, 2, 3]
    assert found.at_risk.tolist() == [4, 3, 1] and found.rejected.tolist() == [0, 2, 0]
    assert [e.value for e in found.conditional] == pytest.approx([1, 1 / 3, 1])
    assert [e.value for e in found.marginal] == pytest.approx([1, 1 / 3, 1 / 3])
    assert [e.n_prompts for e in found.conditional] == [2, 2, 1]
    # Greenwood: S sqrt(d / (n (n - d))) = 1/3 sqrt(2/3), times 1.96, cut to [0, 1]
    assert found.greenwood[1].lo == 0
    assert found.greenwood[1].hi == pytest.approx(1 / 3 + 1.959964 * np.sqrt(2 / 3) / 3)


def test_greenwood_is_too_narrow_where_prompts_differ():
    trace = synthetic.mixed(40, 256, 0.7, 0.15, max_draft=8, seed=3)
    layout = PathLayout(trace)
    found = depth.by_depth(drafts.fixed_steps(layout.ahead, layout.offsets, 256, 8), 8)
    ours, theirs = found.marginal[3], found.greenwood[3]
    assert ours.hi - ours.lo > 1.5 * (theirs.hi - theirs.lo)


def test_too_many_drafts_for_greenwood(monkeypatch):
    monkeypatch.setattr(depth, "MOST", 3)
    made = drafts.Drafts(np.array([0, 4]), np.array([1, 1, 1, 3], np.int32), np.ones(4, bool))
    found = depth.by_depth(made, 2)
    assert found.greenwood[0].note == "more than 3 drafts: Greenwood's interval is left out"
    assert found.greenwood[0].value == found.marginal[0].value


def test_drafts_are_checked():
    with pytest.raises(StatsError, match="a draft has -1 tokens"):
        drafts.Drafts(np.array([0, 1]), np.array([-1]), np.array([True]))
    with pytest.raises(StatsError, match="max_depth must be >= 1"):
        depth.by_depth(drafts.runs(np.ones(2, bool), np.array([0, 2])), 0)


def test_depths_of_a_decaying_trace():
    decay = (0.9, 0.7, 0.5)
    trace = synthetic.decaying(400, 128, decay, max_draft=8, seed=1)
    layout = PathLayout(trace)
    found = depth.by_depth(drafts.fixed_steps(layout.ahead, layout.offsets, 128, 3), 3)
    assert [e.value for e in found.conditional] == pytest.approx(decay, abs=0.01)
    assert [e.value for e in found.marginal] == pytest.approx(np.cumprod(decay), abs=0.01)


@pytest.mark.parametrize("after, before", [(0.9, 0.5), (0.5, 0.9), (0.7, 0.7)])
def test_autocorrelation_of_a_chain(after, before):
    trace = synthetic.markov(300, 256, after, before, max_draft=8, seed=2)
    accepted, offsets = trace.positions("accepted"), trace.position_offsets
    assert accepted.mean() == pytest.approx(before / (1 - after + before), abs=0.01)
    for lag in (1, 2):
        found = iid.autocorrelation(accepted, offsets, lag)
        assert found.value == pytest.approx((after - before) ** lag, abs=0.015)


@given(flags(min_prompts=2), st.integers(1, 3))
def test_autocorrelation_by_pairs(rows, lag):
    accepted, offsets = rows
    pairs = [
        (accepted[row], accepted[row + lag])
        for low, high in zip(offsets[:-1], offsets[1:], strict=True)
        for row in range(low, high - lag)
    ]
    found = iid.autocorrelation(accepted, offsets, lag).value
    x, y = np.array(pairs, float).reshape(-1, 2).T
    if len(pairs) < 2 or np.ptp(x) == 0 or np.ptp(y) == 0:
        assert found is None
    else:
        assert found == pytest.approx(np.corrcoef(x, y)[0, 1])


def test_prompts_that_differ_correlate_only_between_them():
    trace = synthetic.mixed(300, 256, 0.7, 0.2, max_draft=8, seed=5)
    accepted, offsets = trace.positions("accepted"), trace.position_offsets
    assert iid.autocorrelation(accepted, offsets).value > 0.1
    within = iid.autocorrelation(accepted, offsets, within=True)
    assert within.value == pytest.approx(-1 / 256, abs=0.005)
    assert iid.between_prompts(accepted, offsets).p_value < 1e-9


def test_independent_tokens_pass_and_dependent_ones_do_not():
    trace = synthetic.iid(50, 256, 0.75, max_draft=8, seed=6)
    accepted, offsets = trace.positions("accepted"), trace.position_offsets
    found = iid.run_lengths(drafts.runs(accepted, offsets))
    assert found.test.p_value > 0.01 and iid.between_prompts(accepted, offsets).p_value > 0.01
    assert found.alpha.value == pytest.approx(accepted.mean())
    assert found.dispersion.value == pytest.approx(1, abs=0.1)
    assert found.observed.sum() == np.sum(~accepted)
    assert found.expected.sum() == pytest.approx(found.observed.sum())
    chain = synthetic.markov(50, 256, 0.9, 0.5, max_draft=8, seed=6)
    runs = drafts.runs(chain.positions("accepted"), chain.position_offsets)
    assert iid.run_lengths(runs).test.p_value < 1e-9


def test_homogeneity_by_scipy():
    """Two prompts of 30 tokens, 20 and 24 accepted; no cell is pooled."""
    accepted = np.repeat([True, False, True, False], [20, 10, 24, 6])
    found = iid.between_prompts(accepted, np.array([0, 30, 60]))
    expected = stats.chi2_contingency([[20, 24], [10, 6]], correction=False)
    assert (found.statistic, found.freedom) == pytest.approx((expected.statistic, 1))
    assert found.p_value == pytest.approx(expected.pvalue)


@given(st.floats(0, 1), st.integers(0, 40))
def test_leviathans_law_is_the_sum_of_powers(alpha, k):
    assert iid.tokens_per_step(alpha, k) == pytest.approx(
        sum(alpha**j for j in range(k + 1)), rel=1e-6
    )


def test_iid_traces_keep_leviathans_law():
    trace = synthetic.iid(200, 512, 0.8, max_draft=8, seed=7)
    layout = PathLayout(trace)
    made = drafts.fixed_steps(layout.ahead, layout.offsets, 512, 5)
    steps = np.diff(made.offsets)
    emitted = np.add.reduceat(made.accepted, made.offsets[:-1]) + steps
    found = iid.excess_tokens(trace.positions("accepted"), layout.offsets, steps, emitted, 5)
    assert abs(found.value) < 0.03 and found.hi - found.lo < 0.1


def test_lag_is_checked():
    with pytest.raises(StatsError, match="lag must be >= 1"):
        iid.autocorrelation(np.ones(3, bool), np.array([0, 3]), 0)


@pytest.mark.parametrize(
    "make",
    [
        lambda: synthetic.mixed(3, 9, 0.5, 0.6, max_draft=2, seed=0),
        lambda: synthetic.mixed(3, 9, 1.0, 0.1, max_draft=2, seed=0),
        lambda: synthetic.markov(3, 9, 1.0, 0.0, max_draft=2, seed=0),
        lambda: synthetic.markov(3, 9, 1.1, 0.5, max_draft=2, seed=0),
        lambda: synthetic.decaying(3, 9, (), max_draft=2, seed=0),
        lambda: synthetic.decaying(3, 9, (0.5, 2), max_draft=2, seed=0),
    ],
)
def test_laws_are_checked(make):
    with pytest.raises(ValueError, match="in \\[0, 1\\]|in \\(0, 1\\)"):
        make()


def test_laws_tell_traces_apart():
    chains = [synthetic.markov(3, 9, a, 0.5, max_draft=2, seed=0) for a in (0.5, 0.6)]
    assert chains[0].hash != chains[1].hash
