"""Threshold rules against steps worked out by hand; docs/policies.md has the rules' sources.

The numbers are halves and quarters, so that what is worked out on paper is exact in binary too.
"""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import simkit
from simkit import costs, policies
from simkit.drafters.path import PathLayout
from simkit.policies import Outcome, PolicyError, Setting
from simkit.simulator.step_costs import Charge
from simkit.steps import compiled, interpreted
from traces import scores
from traces.memory import from_arrays
from traces.sampler import Sampler

GREEDY, SAMPLED = Sampler(), Sampler(temperature=0.7)
POINT_MASS = Sampler(temperature=1.0, draft_temperature=0.0)
HALVES = dict(target=0.75, beta1=0.5, beta2=0.5, epsilon=0.25)


def accepting(n_output, copies=1, **columns):
    """Sequences whose tokens are all accepted, with the same values in each."""
    rows = copies * n_output
    token = np.ones(rows, np.int32)
    values = {name: np.tile(column, copies).astype(np.float32) for name, column in columns.items()}
    return from_arrays(
        {"n_output": [n_output] * copies, "n_prompt": [2] * copies},
        {"draft_token": token, "target_token": token, "accepted": token == 1, **values},
        {},
        max_draft=1,
        max_new_tokens=n_output,
    )


def scored(head, values):
    """A sequence of accepted tokens with one score each."""
    made = scores.RowScores(np.array(values, np.float32), np.empty(0, np.float32))
    return scores.attach(accepting(len(values)), head, made)


def scored_by_start(values):
    """Six tokens, all accepted; row i - 1 holds the scores of the draft from i, 1 where none is."""
    table = np.ones((6, 6), np.float32)
    for start, row in enumerate(values):
        table[start, : len(row)] = row
    return scores.attach(accepting(6), "pacer", scores.StartScores(table))


def steps(policy, trace):
    """(drafted, proposed, accepted) of each step, by both engines."""
    layout = PathLayout(trace)
    judge, fast = interpreted.walk(policy, layout, 1), compiled.walk(policy, layout, 1)
    for name in ("drafted", "proposed", "accepted"):
        assert getattr(judge, name).tolist() == getattr(fast, name).tolist()
    columns = (judge.drafted, judge.proposed, judge.accepted)
    return list(zip(*(column.tolist() for column in columns), strict=True))


def drafted(policy, trace):
    """Lengths of the drafts; all of them are proposed and accepted here."""
    made = steps(policy, trace)
    assert all(d == p == a for d, p, a in made)
    return [d for d, _, _ in made]


class TestDraftVerify:
    def test_the_threshold_follows_the_acceptance_rate(self):
        # Step 1 stops at 0.25 < 0.5: r = 0.5 < 0.75, th = (0.5 + 0.75) / 2 = 0.625.
        # Step 2 at 3 stops at 0.5625 < 0.625: r = 0.75, th = (0.625 + 0.375) / 2 = 0.5.
        # Step 3 at 5 goes on at 0.5625 and at 0.5, stops at 0.4375: r = 0.875, th = 0.375.
        # Step 4 at 9 goes on at 0.4375 and ends with the budget.
        values = [0.25, 0, 0.5625, 0, 0.5625, 0.5, 0.4375, 0, 0.4375, 0.4375, 0.4375, 0]
        policy = policies.DraftVerify(threshold=0.5, **HALVES)
        assert drafted(policy, accepting(12, draft_prob_raw=values)) == [1, 1, 3, 3]

    def test_state_ends_with_the_sequence(self):
        values = [0.25, 0, 0.5625, 0]
        policy = policies.DraftVerify(threshold=0.5, **HALVES)
        assert drafted(policy, accepting(4, copies=2, draft_prob_raw=values)) == [1, 1, 1, 1]
        assert policy.carried == "sequence"

    def test_a_full_draft_leaves_a_good_threshold_alone(self):
        policy = policies.DraftVerify(max_draft=4, **HALVES)
        assert policy.update((0.5, 1.0), Outcome(4, 4, 4, False)) == (0.5, 1.0)
        assert policy.update((0.5, 1.0), Outcome(3, 3, 3, False)) == (0.375, 1.0)
        # a full draft that takes r below the target: r = 0.5 + 0.5 · 1/4
        assert policy.update((0.5, 1.0), Outcome(4, 4, 1, False)) == (0.625, 0.625)

    def test_an_empty_draft_changes_nothing(self):
        assert policies.DraftVerify().update((0.6, 0.4), Outcome(0, 0, 0, False)) == (0.6, 0.4)

    def test_defaults_are_those_of_the_public_code(self):
        # self-speculative decoding, decoding.py: auto_parameters = [1, 0.5, 0.9, 1e-2, 0.9] are
        # the interval, beta1, the target, epsilon and beta2; max_step_draft = 8
        policy = policies.DraftVerify()
        assert (policy.beta1, policy.target, policy.epsilon, policy.beta2) == (0.5, 0.9, 0.01, 0.9)
        assert policy.max_draft == 8

    def test_it_reads_the_probability_that_was_sampled_with(self):
        assert policies.DraftVerify().columns(SAMPLED) == ("draft_prob",)
        assert policies.DraftVerify().columns(GREEDY) == ("draft_prob_raw",)
        assert policies.DraftVerify().columns(POINT_MASS) == ("draft_prob_raw",)


class TestAdaEDL:
    def test_the_bound_against_a_threshold_that_follows_the_acceptance_rate(self):
        # The bounds 1 - sqrt(H): 0.5 is not below λ = 0.5, 0.25 is: r = 0.5 < 0.75, λ = 0.625.
        # Then 0.625 is not below it, 0.5 is: r = 0.75, λ = 0.5 again, and 0.5 goes on.
        values = [0.25, 0.5625, 0, 0.140625, 0.25, 0, 0.25, 0.25, 0.25, 0]
        policy = policies.AdaEDL(scale=1, threshold=0.5, **HALVES)
        assert drafted(policy, accepting(10, draft_entropy=values)) == [2, 2, 3]
        half = policies.AdaEDL(scale=0.5, threshold=0.5, **HALVES)
        doubled = accepting(10, draft_entropy=2 * np.array(values))
        assert drafted(half, doubled) == [2, 2, 3]

    def test_a_full_draft_lowers_a_threshold_as_any_other(self):
        policy = policies.AdaEDL(max_draft=4, **HALVES)
        assert policy.update((0.5, 1.0, 0), Outcome(4, 4, 4, False)) == (0.375, 1.0, 0)
        assert policy.update((0.5, 1.0, 0), Outcome(0, 0, 0, False)) == (0.5, 1.0, 0)
        assert policy.begin(7) == (0.3, 0.0, 0)

    def test_an_entropy_rounded_below_zero_counts_as_zero(self):
        trace = accepting(4, draft_entropy=[-1e-9, 0, 0, 0])
        assert drafted(policies.AdaEDL(threshold=1), trace) == [3]


class TestCumulativeConfidence:
    TRACE = dict(draft_prob_raw=[0.5, 0.5, 0.5, 0.125, 0.5, 0.5, 0.5])

    def test_the_tripping_token_is_kept(self):
        # 0.25 is not below 0.25, 0.125 is; the next draft begins at 5 with a product of 1.
        policy = policies.CumulativeConfidence(threshold=0.25)
        assert drafted(policy, accepting(7, **self.TRACE)) == [3, 2]

    def test_or_dropped(self):
        # 1-3 with 3 dropped, so 3 tokens come out; 4 alone is dropped; 5-6 end with the budget.
        policy = policies.CumulativeConfidence(threshold=0.25, keep=False)
        made = steps(policy, accepting(7, **self.TRACE))
        assert made == [(3, 2, 2), (1, 0, 0), (2, 2, 2)]

    def test_dropping_is_refused_where_tokens_are_sampled(self):
        dropping = policies.CumulativeConfidence(keep=False)
        assert dropping.columns(GREEDY) == ("draft_prob_raw",)
        for sampler in (SAMPLED, POINT_MASS):
            with pytest.raises(PolicyError, match=r"keep=false\).* needs a greedy trace"):
                dropping.columns(sampler)
        assert policies.CumulativeConfidence().columns(SAMPLED) == ("draft_prob",)


class TestLlamaCpp:
    # Shares of the ten likeliest: 0.75, 0.75, 0.5, 1, 1, 0.5, 1
    TRACE = dict(
        draft_top1_prob=[0.75, 0.375, 0.25, 0.5, 1, 0.25, 0.5],
        draft_top10_mass=[1, 0.5, 0.5, 0.5, 1, 0.5, 0.5],
    )

    def test_the_tripping_token_is_dropped_and_paid(self):
        # 1-3 without 3; then 4-6 without 6; then 7 is the last position.
        made = steps(policies.LlamaCpp(), accepting(7, **self.TRACE))
        assert made == [(3, 2, 2), (3, 2, 2), (0, 0, 0)]

    def test_or_kept_as_in_older_versions(self):
        made = steps(policies.LlamaCpp(keep=True), accepting(7, **self.TRACE))
        assert made == [(3, 3, 3), (2, 2, 2)]

    def test_a_short_draft_is_thrown_away_whole(self):
        made = steps(policies.LlamaCpp(n_min=3), accepting(7, **self.TRACE))
        # 3 is weak and so is 6: drafts from 1 and from 4 hold two good tokens, too few, …
        assert made == [(d, 0, 0) for d in (3, 2, 1, 3, 2, 1, 0)]
        kept = steps(policies.LlamaCpp(n_min=3, keep=True), accepting(7, **self.TRACE))
        assert kept == [(3, 3, 3), (2, 0, 0), (1, 0, 0), (0, 0, 0)]

    def test_n_max_is_the_longest_draft(self):
        made = steps(policies.LlamaCpp(n_max=2), accepting(7, **self.TRACE))
        assert made == [(2, 2, 2), (2, 2, 2), (0, 0, 0)]
        with pytest.raises(
            PolicyError, match="n_max 64 is above max_draft 40; if .* give max_draft=64"
        ):
            policies.LlamaCpp(n_max=64)
        assert policies.LlamaCpp(n_max=64, max_draft=64).params.max_draft == 64

    def test_a_row_without_mass_is_no_division_by_zero(self):
        assert policies.LlamaCpp().trips((0,), 1, (0.0, 0.0)) == (False, (0,))

    def test_where_it_is_refused(self):
        both = ("draft_top1_prob", "draft_top10_mass")
        assert policies.LlamaCpp(n_min=2).columns(GREEDY) == both
        assert policies.LlamaCpp().columns(POINT_MASS) == both
        with pytest.raises(PolicyError, match=r"--draft-temperature 0"):
            policies.LlamaCpp().columns(SAMPLED)
        with pytest.raises(PolicyError, match=r"n_min > 0 .* needs a greedy trace"):
            policies.LlamaCpp(n_min=2).columns(POINT_MASS)


class TestSpecDecPP:
    TRACE = staticmethod(lambda: scored("specdecpp", [0.25, 1, 1, 0.5, 1, 0.5, 1, 1, 1]))

    def test_the_product_of_scores_against_the_threshold(self):
        # 0.25 would stop the first draft at once, but two tokens are drafted whatever the scores.
        # From 4: 1 - 0.5 is not above 0.5, 1 - 0.25 is, after 6. Then 8, and the budget.
        assert drafted(policies.SpecDecPP(threshold=0.5), self.TRACE()) == [2, 3, 1]
        assert drafted(policies.SpecDecPP(threshold=0.5, min_draft=0), self.TRACE()) == [1, 4, 1]

    def test_with_a_lag_the_last_token_has_no_say(self):
        # From 1: nothing, then 0.25: stop after 2. From 4: nothing, 0.5, 0.5, and 0.25 after 7.
        lagging = policies.SpecDecPP(threshold=0.5, lag=1)
        assert drafted(lagging, self.TRACE()) == [2, 4, 0]
        assert drafted(policies.SpecDecPP(threshold=0.5, min_draft=0, lag=1), self.TRACE()) == [
            2, 4, 0,
        ]  # fmt: skip

    def test_arguments(self):
        for arguments, words in [
            ("lag=2", "lag must be 0 or 1"),
            ("min_draft=9, max_draft=8", "min_draft 9 is above max_draft 8"),
            ("head='../x'", "cannot be a head's name"),
        ]:
            with pytest.raises(PolicyError, match=words):
                policies.parse(f"specdecpp({arguments})")


class TestAcceptanceHead:
    def test_the_product_of_scores_against_h(self):
        # With a lag: 1 - 0.25 is above 0.5 when token 3 is drafted; then from 5 on all is well.
        trace = scored("acceptance_head", [0.5, 0.5, 0.5, 1, 1, 1, 1, 1, 1])
        assert drafted(policies.AcceptanceHead(h=0.5), trace) == [3, 4]
        assert drafted(policies.AcceptanceHead(h=0.75, max_draft=3), trace) == [3, 3, 0]
        assert drafted(policies.AcceptanceHead(h=0.5, lag=0), trace) == [2, 5]
        assert drafted(policies.AcceptanceHead(h=0.75, max_draft=3, lag=0), trace) == [3, 3, 0]

    def test_calls(self):
        for lag in (0, 1):
            policy = policies.AcceptanceHead(lag=lag)
            assert [policy.calls(n) for n in range(4)] == [0, 1 - lag, 2 - lag, 3 - lag]
            assert policy.calls(np.array([0, 3])).tolist() == [0, 3 - lag]

    def test_a_score_that_is_not_there_yet_has_no_say(self):
        for policy in (policies.AcceptanceHead(h=0.5), policies.SpecDecPP(lag=1)):
            state = policy.begin(0)
            for depth, score in enumerate((0.9, 0.8, 0.4), start=1):
                stop, after = policy.trips(state, depth, (score,))
                assert policy.trips(state, depth, (1.0,))[0] == stop
                state = after

    def test_scores_that_come_late_are_not_read_early(self):
        late = scores.RowScores(np.ones(4, np.float32), np.empty(0, np.float32), lag=1)
        trace = scores.attach(accepting(4), "mine", late)
        assert scores.load(trace, "mine").lag == 1
        for name in ("acceptance_head", "specdecpp"):
            with pytest.raises(PolicyError, match=rf"{name}.* a token late: give lag=1"):
                simkit.replay(trace, [f"{name}(head=mine, lag=0)"])
            with pytest.raises(PolicyError, match="give lag=1"):
                simkit.sweep(trace, [f"{name}(head=mine, lag=0)"])
            simkit.replay(trace, [f"{name}(head=mine, lag=1)"])

    def test_h_from_the_cost_falls_with_the_depth(self):
        # T_v = T_r = 4 and T_d(k) = k, so h = 0.75, 0.5, 0.25, 0: four tokens at most (eq. 12).
        cost = costs.Linear(draft_s=1.0, target_s=4.0)
        ones = self.with_cost(scored("acceptance_head", [1] * 12), cost, lag=0)
        assert drafted(*ones) == [4, 4, 1]
        # 1 - 0.5 is not above h(2), 1 - 0.5 is above h(3)
        halves = self.with_cost(scored("acceptance_head", [0.5, 1, 1, 1, 1, 1]), cost, lag=0)
        assert drafted(*halves) == [3, 1]
        # With a lag, one more: what h(4) and h(3) stop is known when token 5 and 4 are there.
        ones = self.with_cost(scored("acceptance_head", [1] * 12), cost)
        assert drafted(*ones) == [5, 5]
        halves = self.with_cost(scored("acceptance_head", [0.5, 1, 1, 1, 1, 1]), cost)
        assert drafted(*halves) == [4, 0]

    def test_h_is_taken_at_the_mean_context(self):
        # Prompts of 2 and outputs of 12 tokens: context 8. Draft passes take 3, 3.25, 3.5 seconds,
        # the context grows by a token in each; T_v = T_r = 12.
        cost = costs.Linear(draft_s=1.0, target_s=12.0, draft_per_kv_token_s=0.25)
        bound, _ = self.with_cost(scored("acceptance_head", [1] * 12), cost)
        assert bound.params.most.tolist()[:4] == [9 / 12, 5.75 / 12, 2.25 / 12, -1]
        assert not bound.params.most.flags.writeable

    def test_a_cost_is_needed(self):
        policy = policies.parse("acceptance_head(h=cost)")
        layout = PathLayout(scored("acceptance_head", [1] * 4))
        with pytest.raises(PolicyError, match="acceptance_head needs times: give a cost"):
            policy.bind(Setting(layout, None, 1))
        with pytest.raises(PolicyError, match=r"acceptance_head\(h=cost\) needs times"):
            interpreted.walk(policy, layout, 1)
        with pytest.raises(PolicyError, match=r"h must be a number in \[0, 1\], not 'price'"):
            policies.AcceptanceHead(h="price")

    def test_a_number_needs_no_binding(self):
        policy = policies.AcceptanceHead()
        layout = PathLayout(scored("acceptance_head", [1] * 4))
        assert policy.bind(Setting(layout, None, 1)) is policy

    @staticmethod
    def with_cost(trace, cost, lag=1):
        layout = PathLayout(trace)
        charge = Charge(cost.times(trace), layout, 1)
        policy = policies.parse(f"acceptance_head(h=cost, lag={lag})")
        return policy.bind(Setting(layout, charge, 1)), trace


class TestPacer:
    def test_the_mean_of_a_block_against_a_growing_threshold(self):
        # From 1: (0.25 + 1)/2 > 0.5, so t = 0.75; (0.5 + 1)/2 <= 0.75 stops after 4. From 6: end.
        trace = scored_by_start([[0.25, 1, 0.5, 1]])
        policy = policies.Pacer(block=2, threshold=0.5, growth=1.5)
        assert drafted(policy, trace) == [4, 0]
        assert drafted(policies.Pacer(block=2, threshold=0.5, growth=1), trace) == [5]

    @pytest.mark.parametrize(
        ("criterion", "lengths"),
        [("mean", [5]), ("any", [2, 2]), ("last", [4, 0])],
    )
    def test_criteria(self, criterion, lengths):
        # mean 0.75 and 0.75; a score of 0.5 is first in block 1 and last in block 2
        trace = scored_by_start([[0.5, 1, 1, 0.5], [], [], [0.5, 1]])
        policy = policies.Pacer(block=2, threshold=0.5, growth=1, criterion=criterion)
        assert drafted(policy, trace) == lengths

    def test_t_begins_anew_in_each_step_unless_it_is_carried(self):
        # From 1: 0.75 > 0.5, t = 0.75, then 0.75 <= 0.75 stops. From 4: t = 0.5 again, or 0.75.
        trace = scored_by_start([[0.75, 0.75], [], [], [0.75, 0.75]])
        policy = policies.Pacer(block=1, threshold=0.5, growth=1.5)
        assert drafted(policy, trace) == [2, 2]
        carrying = policies.Pacer(block=1, threshold=0.5, growth=1.5, carry_threshold=True)
        assert drafted(carrying, trace) == [2, 1, 0]
        assert carrying.carried == "sequence"

    def test_a_block_cut_short_is_neither_scored_nor_charged(self):
        # The scores are all 0: a whole block stops, the last draft of two tokens is no block.
        trace = scored_by_start([[0] * 6, [], [], [], [0] * 6])
        policy = policies.Pacer(block=3)
        assert drafted(policy, trace) == [3, 1]
        assert [policy.calls(n) for n in range(7)] == [0, 0, 0, 1, 1, 1, 2]
        assert policy.calls(np.array([0, 3, 5])).tolist() == [0, 1, 1]

    @given(values=st.lists(st.floats(0, 1, width=32), min_size=3, max_size=3))
    def test_the_mean_is_a_sum_in_order(self, values):
        mean = (values[0] + values[1] + values[2]) / 3
        for threshold, stops in ((mean, True), (np.nextafter(mean, -1), False)):
            policy = policies.Pacer(block=3, threshold=max(0.0, float(threshold)))
            state = policy.begin(0)
            for depth, value in enumerate(values, start=1):
                stop, state = policy.trips(state, depth, (value,))
            assert stop == (stops or mean == 0)


@pytest.mark.parametrize("name", ["acceptance_head", "pacer", "specdecpp"])
def test_a_head_is_named_after_its_policy_unless_it_is_given(name):
    assert policies.parse(name).head == name
    assert policies.get(name)(head="").columns(GREEDY) == (f"score:{name}",)
    other = policies.parse(f"{name}(head=other.v2)")
    assert other.columns(GREEDY) == ("score:other.v2",)
    assert policies.parse(str(other)) == other
    assert policies.parse("svip").head is None


@given(
    st.floats(0, 50, width=32),
    st.floats(0, 10, width=32),
    st.floats(-0.5, 1.5, width=32),
)
def test_adaedl_takes_no_root(scale, entropy, threshold):
    """As the paper has it: 1 - sqrt(scale * H) < λ; but where the two are equal to rounding."""
    policy = policies.AdaEDL(scale=scale)
    stop, _ = policy.trips((threshold, 0.0, 0), 1, (entropy,))
    bound = 1 - np.sqrt(scale * entropy)
    if abs(bound - threshold) > 1e-12:
        assert stop == (bound < threshold)


def test_adaedl_as_public_code_reads_algorithm_1():
    """By hand: r starts at the target; four accepted of four leave λ; the tripping token goes."""
    policy = policies.parse(
        "adaedl(threshold=0.5, rests=true, keep=false, min_draft=1, first_rate=0.9, max_draft=4)"
    )
    state = policy.begin(0)
    assert state == (0.5, 0.9, 0)
    stop, state = policy.trips(state, 1, (5.0,))  # 1 - sqrt(0.2 * 5) = 0 < 0.5, but the first
    assert not stop
    stop, state = policy.trips(state, 2, (5.0,))
    assert stop and policy.proposed(state, 2) == 1
    state = policy.update(state, policies.Outcome(2, 1, 1, False))  # r = 0.95 >= 0.9: λ' = 0.49
    assert state == pytest.approx((0.9 * 0.5 + 0.1 * 0.49, 0.95, 0))
    after = policy.update(state, policies.Outcome(4, 4, 4, False))
    assert after == pytest.approx((state[0], 0.975, 0))
    lower = policies.AdaEDL(0.2, 0.5, max_draft=4)
    assert lower.update((0.5, 0.95, 0), policies.Outcome(4, 4, 4, False))[0] < 0.5


def test_llamacpp_has_the_defaults_of_a_version():
    old, new = policies.parse("llamacpp"), policies.parse("llamacpp(version=2026)")
    assert (old.p_min, old.n_max, new.p_min, new.n_max) == (0.75, 16, 0, 3)
    assert str(old) == "llamacpp(p_min=0.75)" and str(new) == "llamacpp(p_min=0, version=2026)"
    for spec in ("llamacpp(version=2026, n_max=5)", "llamacpp(0.3, n_max=16, version=2026)"):
        assert policies.parse(str(policies.parse(spec))) == policies.parse(spec)
    with pytest.raises(policies.PolicyError, match="version must be 2025 or 2026, not '2020'"):
        policies.parse("llamacpp(version=2020)")
