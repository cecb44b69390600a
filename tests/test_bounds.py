"""The prophet against slower searches and against every policy; the rule of the best rate."""

from dataclasses import dataclass
from itertools import product

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from replay_traces import SEQUENTIAL, Table, bound, build, tiny_traces
from sklearn.isotonic import IsotonicRegression

import simkit
from simkit import policies
from simkit.costs import Linear
from simkit.drafters.path import PathLayout
from simkit.policies import PolicyError, Setting, acceptance_fit, rate_optimal
from simkit.policies.acceptance_fit import fit_acceptance
from simkit.simulator import rule_time
from simkit.simulator import step_costs as charges
from simkit.simulator.run import run
from simkit.simulator.step_costs import Charge
from simkit.steps import compiled, interpreted
from traces import load
from traces.synthetic import iid

CASES = settings(max_examples=25, deadline=None)
SPECS = [
    *SEQUENTIAL,
    *("fixed(0)", "fixed(1)", "fixed(3)", "oracle(max_draft=2)", "svip(h=0.3)"),
    *("rate_optimal(score=draft_entropy)", "rate_optimal(score='score:pacer')"),
]


@dataclass(frozen=True)
class Blocks(Linear):
    """Verification in whole blocks of tokens; the draft's prefill has a price of its own."""

    block: int = 3
    prefill_s: float = 0.0

    def verify(self, tokens, context):
        return super().verify(-(-tokens // self.block) * self.block, context)

    def prefill(self, model, tokens):
        return self.prefill_s + 0.0 * tokens if model == "draft" else super().prefill(model, tokens)


@st.composite
def some_costs(draw) -> Blocks:
    seconds = st.sampled_from([0.0, 0.1, 0.5, 1.0, 3.0, 20.0])
    return Blocks(
        draft_s=draw(seconds),
        target_s=draw(seconds),
        draft_per_kv_token_s=draw(st.sampled_from([0.0, 0.2])),
        target_per_token_s=draw(st.sampled_from([0.0, 0.3, 2.0])),
        target_per_kv_token_s=draw(st.sampled_from([0.0, 0.1])),
        overhead_s=draw(seconds),
        policy_s=draw(st.sampled_from([0.0, 0.01])),
        block=draw(st.sampled_from([1, 3])),
        prefill_s=draw(seconds),
    )


def replayed(spec, trace, cost, first=1):
    """The run of a policy; another example where its rule does not hold."""
    layout = PathLayout(trace)
    try:
        return run(policies.parse(spec), layout, Charge(cost.times(trace), layout, first), first)
    except PolicyError:
        assume(False)


def shortest_by_search(trace, cost, first, max_draft):
    """Seconds of each sequence's best plan: dynamic programming pass by pass, backwards."""
    out = []
    accepted = trace.positions("accepted").tolist()
    for s, info in enumerate(trace.sequences.to_pylist()):
        n, known = info["n_output"], info["n_prompt"]
        flags = accepted[trace.position_offsets[s] :][:n]
        drafted, never = [0.0] * (n + 2), [0.0] * (n + 2)
        for i in range(n, first - 1, -1):
            ahead = (*flags[i - 1 :], False).index(False)
            choices = []
            for gamma in range(min(max_draft, trace.max_new_tokens - i) + 1):
                context = known + i - 1
                draft_s = sum(float(cost.draft(np.array(context + j))) for j in range(gamma))
                step_s = draft_s + float(cost.verify(np.array(gamma + 1), np.array(context)))
                at = min(i + min(gamma, ahead) + 1, n + 1)
                choices.append(step_s + cost.overhead() + drafted[at])
            drafted[i] = min(choices)
            never[i] = float(cost.verify(np.array(1), np.array(known + i - 1))) + cost.overhead()
            never[i] += never[i + 1]
        begin, prompt = min(first, n + 1), np.array(known)
        best = min(never[begin], drafted[begin] + float(cost.prefill("draft", prompt)))
        out.append(best + float(cost.prefill("target", prompt)))
    return out


@CASES
@given(
    trace=tiny_traces(),
    cost=some_costs(),
    first=st.sampled_from([1, 2]),
    max_draft=st.sampled_from([0, 1, 3, 40]),
)
def test_prophet_takes_the_shortest_path(trace, cost, first, max_draft):
    found = replayed(f"prophet(max_draft={max_draft})", trace, cost, first)
    expected = shortest_by_search(trace, cost, first, max_draft)
    np.testing.assert_allclose(found.total_s, expected, rtol=1e-9, atol=1e-9)
    np.testing.assert_array_equal(found.counts["accepted"], found.counts["drafted"])
    assert found.seconds["policy_s"].tolist() == [0.0] * trace.n_sequences


@settings(max_examples=15, deadline=None)
@given(trace=tiny_traces(), cost=some_costs())
def test_prophet_is_the_best_of_all_plans(trace, cost):
    """Every table of draft lengths by start, drafted to the letter; on all rows the same one."""
    n = trace.max_new_tokens
    assume(n <= 5)
    layout = PathLayout(trace)
    charge = Charge(cost.times(trace), layout, 1)

    plans = product(*(range(n - i + 1) for i in range(1, n + 1)))
    seconds = [run(Table(lengths), layout, charge, 1).total_s for lengths in plans]
    best = run(policies.parse("prophet"), layout, charge, 1).total_s
    np.testing.assert_allclose(best, np.min(seconds, axis=0), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("spec", SPECS)
@settings(max_examples=15, deadline=None)
@given(trace=tiny_traces(), cost=some_costs(), first=st.sampled_from([1, 2]))
def test_no_sequential_policy_is_faster_than_the_prophet(spec, trace, cost, first):
    if "score" in spec or policies.parse(spec).head:
        assume(trace.n_branch_rows)
    best = replayed("prophet", trace, cost, first).total_s
    assert np.all(best <= replayed(spec, trace, cost, first).total_s * (1 + 1e-12) + 1e-12)


@CASES
@given(trace=tiny_traces(), draft_s=st.sampled_from([0.0, 0.5, 1.0]))
def test_oracle_is_the_prophet_where_verification_is_free_per_token(trace, draft_s):
    """On outputs that end by their length, with T_draft <= T_target and no draft prefill."""
    cost = Blocks(draft_s=draft_s, target_s=1.0, overhead_s=0.25)
    full = np.array([r == "length" for r in trace.sequences["finish_reason"].to_pylist()], bool)
    best, oracle = (replayed(spec, trace, cost).total_s[full] for spec in ("prophet", "oracle"))
    np.testing.assert_allclose(best, oracle, rtol=1e-12)


@pytest.mark.parametrize("spec", ["prophet", "rate_optimal"])
def test_everything_is_accepted(spec):
    """41 tokens as 40 drafted and a bonus; drafts of 7 as five steps of 8 and one token."""
    cost = Linear(draft_s=1.0, target_s=10.0, overhead_s=0.5)
    trace = iid(3, 41, 1.0, max_draft=1, seed=1)
    found = replayed(spec, trace, cost)
    assert found.counts["drafted"].tolist() == [40] * 3
    # prefill of both; 40 drafts; one verification and its overhead
    np.testing.assert_allclose(found.total_s, 10 + 1 + 40 + 10.5)
    cut = replayed(f"{spec}(max_draft=7)", trace, cost)
    assert cut.counts["steps"].tolist() == [6] * 3
    np.testing.assert_allclose(cut.total_s, 10 + 1 + 35 + 6 * 10.5)


@pytest.mark.parametrize("spec", ["prophet", "rate_optimal"])
def test_nothing_is_accepted(spec):
    trace = iid(3, 40, 0.0, max_draft=41, seed=1)
    found = replayed(spec, trace, Linear(draft_s=1.0, target_s=10.0, overhead_s=0.5))
    assert found.counts["drafted"].tolist() == [0] * 3
    np.testing.assert_allclose(found.total_s, 10 + 40 * 10.5)


def test_prophet_weighs_the_drafts_prefill():
    """Drafting the one token that will be accepted saves 9 s of 30."""
    trace = build([[(1, 1), (1, 2), (1, 2)]] * 2, t_max=3, max_draft=3)
    for prefill_s, drafted in ((8.0, 1), (9.0, 0), (10.0, 0)):
        cost = Blocks(draft_s=1.0, target_s=10.0, prefill_s=prefill_s)
        assert replayed("prophet", trace, cost).counts["drafted"].tolist() == [drafted] * 2


def test_prophet_without_a_table_asks_for_each_sequence(monkeypatch):
    trace = iid(4, 60, 0.7, max_draft=2, seed=3, eos_prob=0.02)
    cost = Linear(draft_s=1.0, target_s=2.0, target_per_token_s=0.4, target_per_kv_token_s=0.01)
    with_table = replayed("prophet", trace, cost)
    assert (
        0
        < with_table.counts["drafted"].sum()
        < replayed("oracle", trace, cost).counts["drafted"].sum()
    )
    monkeypatch.setattr(charges, "CELLS", 0)
    without = replayed("prophet", trace, cost)
    np.testing.assert_array_equal(with_table.bound.params.lengths, without.bound.params.lengths)
    np.testing.assert_allclose(with_table.total_s, without.total_s)


@pytest.mark.parametrize("name", ["prophet", "rate_optimal"])
def test_bounds_need_a_cost(name):
    trace = iid(2, 10, 0.5, max_draft=41, seed=0)
    with pytest.raises(PolicyError, match=f"{name} needs times: give a cost"):
        simkit.replay(trace, name)
    with pytest.raises(PolicyError, match=f"{name} must be fitted to a trace and a cost"):
        policies.parse(name).begin(0)


COST = Linear(draft_s=1.0, target_s=8.0, target_per_token_s=0.1, overhead_s=0.2, policy_s=0.01)


@pytest.mark.parametrize("score", ["draft_prob_raw", "draft_entropy"])
def test_the_best_rate_is_a_fixed_point(score):
    """λ is the rate of the rule that has it; here it beats the best fixed length."""
    trace = iid(40, 200, 0.8, max_draft=40, seed=2)
    found = replayed(f"rate_optimal(score={score})", trace, COST)
    spent_s = found.total_s.sum() - found.seconds["prefill_s"].sum()
    assert found.bound.params.rate == pytest.approx(40 * 200 / spent_s, rel=1e-9)
    fixed = min(replayed(f"fixed({k})", trace, COST).total_s.sum() for k in range(13))
    assert found.total_s.sum() < fixed


def test_a_rule_that_finds_no_fixed_point_is_the_fastest_one_tried(monkeypatch):
    trace = iid(40, 200, 0.8, max_draft=40, seed=2)
    rates = [3.0, 5.0, 7.0, 6.0, 5.0]  # of the oracle, then of what was tried, in a cycle
    asked = iter(rates)
    monkeypatch.setattr(rate_optimal, "rate_of", lambda policy, setting: next(asked))
    layout = PathLayout(trace)
    found = policies.parse("rate_optimal").bind(
        Setting(layout, Charge(COST.times(trace), layout, 1), 1)
    )
    assert found.params.rate == 5.0  # with this λ the rate was 7
    assert next(asked, None) is None


def test_the_rule_by_hand():
    """Three bins of a score: accepted with 0.2, 0.5 and 0.9, the next one with 0.3, 0.6, 0.8."""
    edges = np.full(acceptance_fit.BINS - 1, np.inf)
    edges[:2] = 0.25, 0.75
    price = np.array([[1.0, 2.0, 2.0, np.inf], [4.0, 2.0, 2.0, np.inf]])
    numbers = rate_optimal.RateOptimalParams(
        fold=np.array([0, 1]),
        context=np.array([5, 6]),
        edges=edges,
        worth=np.array([[0.5], [0.4]]),
        accept=np.array([[0.2, 0.5, 0.9], [0.1, 0.1, 0.1]]),
        following=np.array([[0.3, 0.6, 0.8], [0.1, 0.1, 0.1]]),
        price=price,
        shift=3,
        rate=0.2,
        max_draft=3,
    )
    assert rate_optimal.begin(numbers, 1) == (1, 6, 1.0)
    assert rate_optimal.limit(numbers, (0, 7, 1.0), -1) == 3  # 0.5 >= 0.2 * 1
    assert rate_optimal.limit(numbers, (0, 8, 1.0), -1) == 0  # 0.5 < 0.2 * 4
    whole = numbers._replace(worth=np.array([[0.5, 1.3, 1.4], [0.4, 0.4, 0.4]]))
    assert rate_optimal.limit(whole, (0, 8, 1.0), -1) == 3  # two in a pass: 1.3 >= 0.2 * (4 + 2)
    assert rate_optimal.limit(whole, (1, 8, 1.0), -1) == 0
    stop, state = rate_optimal.trips(numbers, (0, 7, 1.0), 1, (0.8,))
    assert not stop  # 0.9 * 0.8 >= 0.2 * 2
    assert state == (0, 7, 0.9)
    stop, state = rate_optimal.trips(numbers, state, 2, (0.75,))
    assert stop  # 0.9 * 0.5 * 0.6 < 0.4
    assert state == (0, 7, 0.45)
    assert rate_optimal.trips(numbers, (0, 7, 1.0), 3, (0.8,))[0]  # no draft is longer
    outcome = policies.Outcome(2, 2, 1, False)
    assert rate_optimal.update(numbers, state, outcome) == (0, 9, 1.0)


def test_acceptance_is_the_isotonic_fit_outside_the_fold():
    """Judge: scikit-learn on the rows, where every score of few has a bin of its own."""
    rng = np.random.default_rng(4)
    score = rng.integers(1, 9, (12, 30)) / 8
    accepted = rng.random((12, 30)) < 0.3 + 0.35 * (score + np.roll(score, 1, axis=1))
    rows = [[(1, 1) if ok else (1, 2) for ok in row] for row in accepted]
    trace = build(rows, t_max=30, max_draft=30, values=lambda n: np.resize(score, n))
    fit = fit_acceptance(PathLayout(trace), "draft_prob_raw", 3, seed=0)
    assert sorted(fit.fold.tolist()) == sorted([0, 1, 2] * 4)
    for fold in range(3):
        out = fit.fold != fold
        assert fit.first[fold] == pytest.approx(accepted[out].mean())
        x, y = score[out], accepted[out]
        bins = np.searchsorted(fit.edges, np.unique(x))
        for got, flags, values in (
            (fit.accept, y.ravel(), x.ravel()),
            (fit.following, y[:, 1:][y[:, :-1]], x[:, :-1][y[:, :-1]]),
        ):
            judge = IsotonicRegression().fit(values, flags)
            np.testing.assert_allclose(got[fold, bins], judge.predict(np.unique(x)), atol=1e-12)


def test_what_a_fold_accepts_does_not_change_its_fit():
    rng = np.random.default_rng(7)
    score, accepted = rng.random(120), rng.random((6, 20)) < 0.7

    def fitted(flags):
        rows = [[(1, 1) if ok else (1, 2) for ok in row] for row in flags]
        trace = build(rows, t_max=20, max_draft=20, values=lambda n: np.resize(score, n))
        return fit_acceptance(PathLayout(trace), "draft_entropy", 3, seed=0)

    before = fitted(accepted)
    after = fitted(np.where((before.fold == 0)[:, None], ~accepted, accepted))
    np.testing.assert_array_equal(before.edges, after.edges)
    for name in ("first", "accept", "following"):
        one, other = getattr(before, name), getattr(after, name)
        np.testing.assert_array_equal(one[0], other[0])
        assert np.any(one[1] != other[1])


def test_nothing_to_fit_is_one_half():
    trace = build([[(1, 2)] * 4], t_max=4, max_draft=4)
    fit = fit_acceptance(PathLayout(trace), "draft_prob_raw", 5, seed=0)
    own = fit.fold[0]
    assert fit.first[own] == 0.5
    assert set(fit.accept[own]) == {0.5}
    assert set(fit.following.ravel()) == {0.5}  # no token was accepted: none followed
    assert set(np.delete(fit.accept, own, axis=0).ravel()) == {0.0}


@pytest.mark.parametrize("score", ["score:specdecpp", "score:pacer"])
def test_a_head_may_give_the_score(score):
    @dataclass(frozen=True)
    class WithHeads(Linear):
        def head(self, name):
            return {"specdecpp": 0.5, "pacer": 0.25}[name]

    rows = [[(1, 1), (1, 2), (1, 1), (1, 1), (2, 1), (1, 1)]] * 6
    trace = build(rows, t_max=6, max_draft=6)
    policy = policies.parse(f"rate_optimal(score='{score}')")
    assert policies.parse(str(policy)) == policy
    found = replayed(str(policy), trace, WithHeads(draft_s=0.1, target_s=8.0, policy_s=0.125))
    call_s = 0.125 + (0.5 if score == "score:specdecpp" else 0.25)
    np.testing.assert_allclose(found.seconds["policy_s"], found.counts["drafted"] * call_s)
    assert found.counts["drafted"].sum() > 0
    layout = PathLayout(trace)
    for engine in (interpreted, compiled):
        drafted = engine.walk(found.bound, layout, 1).drafted
        assert drafted.sum() == found.counts["drafted"].sum()


def test_prices_of_many_contexts_are_those_of_some(monkeypatch):
    trace = iid(6, 100, 0.8, max_draft=40, seed=2)
    exact = replayed("rate_optimal", trace, COST)
    monkeypatch.setattr(rate_optimal, "CELLS", 200)
    coarse = replayed("rate_optimal", trace, COST)
    assert len(coarse.bound.params.price) < len(exact.bound.params.price)
    np.testing.assert_array_equal(exact.counts["drafted"], coarse.counts["drafted"])


def test_steps_that_take_no_time_are_worth_any_draft():
    trace = build([[(1, 1), (1, 2), (1, 1), (1, 1)]] * 2, t_max=4, max_draft=4)
    found = replayed("rate_optimal", trace, Linear(draft_s=0.0, target_s=0.0))
    assert found.bound.params.rate == 0
    assert found.counts["drafted"].tolist() == [4] * 2


def test_a_score_must_be_seen_by_the_drafter():
    for score in ("accept_prob", "accepted", "draft_probability", 3):
        with pytest.raises(PolicyError, match="rate_optimal: score must be"):
            policies.RateOptimal(score=score)
    with pytest.raises(PolicyError, match="folds must be a whole number >= 2"):
        policies.RateOptimal(folds=1)


def test_bound_policies_keep_their_spec():
    trace = iid(4, 20, 0.5, max_draft=41, seed=0)
    for spec in ("prophet()", "prophet(max_draft=3)", "rate_optimal(folds=3)"):
        policy = policies.parse(spec)
        assert str(policy) in (spec, "rate_optimal(score=draft_prob_raw, folds=3)")
        assert str(bound(policy, trace)) == str(policy)


@pytest.mark.parametrize(
    ("name", "policy"),
    [
        (("reference",), "rate_optimal(max_draft=12)"),
        (("reference-trees", "eagle-tree"), "best_rate"),
    ],
)
def test_what_a_process_measures_of_a_rule_changes_no_step(monkeypatch, name, policy):
    """The atlas has no times of rules: the rule's own is charged, and does not make it stop."""
    cost, found = "atlas(target=qwen3-8b, draft=qwen3-0.6b)", []
    for seconds in (1e-7, 1e-3):
        timed = rule_time.Timed(seconds, (), kept=True)
        monkeypatch.setattr(rule_time, "_look_up", lambda policy, layout, t=timed: t)
        rule_time.MICROBENCHMARKS.forget()
        found.append(simkit.replay(load(*name), policy, cost).records()[0])
    rule_time.MICROBENCHMARKS.forget()
    assert found[0]["policy_s"] < found[1]["policy_s"] / 1000
    assert found[0]["steps"] == found[1]["steps"] and found[0]["drafted"] == found[1]["drafted"]
