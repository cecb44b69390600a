"""PEARL: the replay against a straight reading of the rule, against real models, and its laws."""

import itertools
from dataclasses import dataclass
from functools import cache

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from models import EOS as MODEL_EOS
from models import tiny_prompts
from replay_traces import EOS, build, tiny_traces
from test_exactness import sharp_pair

import simkit
from benchmarks.pearl_decoder import PearlDecoder
from benchmarks.recorded import record
from simkit import policies
from simkit.costs import Linear
from simkit.drafters.path import PathLayout
from simkit.errors import PolicyError, ReplayError
from simkit.live.settings import DecoderSettings
from simkit.policies import PEARL
from simkit.simulator.step_costs import Charge
from simkit.steps import compiled, concurrent
from traces import Sampler
from traces.record.plan import Plan
from traces.synthetic import iid

ABLATIONS = list(itertools.product([True, False], [True, False]))
PARTS = ("prefill_s", "draft_s", "verify_s", "policy_s", "overhead_s")


@dataclass(frozen=True)
class Communicating(Linear):
    """A linear cost in which a step of two models takes 0.375 s more."""

    name = "communicating"

    def communication(self):
        return 0.375


COST = Communicating(
    draft_s=1.0,
    target_s=3.0,
    draft_per_kv_token_s=0.25,
    target_per_token_s=0.5,
    target_per_kv_token_s=0.125,
    overhead_s=0.0625,
)


def rows(steps):
    columns = (
        *(steps.sequence, steps.start, steps.drafted, steps.proposed),
        *(steps.accepted, steps.emitted, steps.alone),
    )
    return list(zip(*(column.tolist() for column in columns), strict=True))


class Chains:
    """The tokens of a trace by their keys, as a draft meets them."""

    def __init__(self, trace):
        def table(read, keys, values):
            keys, values = ([read(name).tolist() for name in names] for names in (keys, values))
            return dict(zip(zip(*keys, strict=True), zip(*values, strict=True), strict=True))

        key = ("sequence", "position")
        self.path = table(trace.positions, key, ("draft_token", "accepted"))
        some = trace.n_branch_rows > 0
        self.off = table(trace.branches, (*key, "depth"), ("draft_token",)) if some else {}
        self.t_max = trace.max_new_tokens

    def accepted(self, s, at):
        return self.path[s, at][1]

    def token(self, s, start, at):
        """The token at position `at` of a draft that began at `start`."""
        m = start
        while (s, m) in self.path and self.path[s, m][1]:
            m += 1
        return self.path[s, at][0] if at <= m else self.off[s, m, at - m][0]

    def draft(self, s, start, before, count):
        """Positions of up to `count` more tokens behind `before`, the first ones from `start`."""
        new = []
        while len(new) < count:
            at = start + len(before) + len(new)
            if at >= self.t_max or (at > start and self.token(s, start, at - 1) == EOS):
                break
            self.token(s, start, at)  # a KeyError: not recorded
            new.append(at)
        return new


def by_hand(trace, policy, first):
    """The same columns as `rows`, in the words of the rule: mode by mode, token by token."""
    chains, gamma, out = Chains(trace), policy.window, []
    for info in trace.sequences.to_pylist():
        s, i, pending, ended = info["sequence"], first, None, False
        while i <= info["n_output"] and not ended:
            alone, new = [], []
            if pending is None and policy.pre_verify:  # pre-verify
                new = chains.draft(s, i, [], gamma)
                checked = new[:1]
            elif pending is None:  # the draft runs alone, then on
                alone = chains.draft(s, i, [], gamma)
                new = chains.draft(s, i, alone, gamma) if policy.post_verify else []
                checked = alone + new[:1]
            elif policy.post_verify:  # post-verify
                new = chains.draft(s, i, pending, gamma)
                checked = pending + new[:1]
            else:  # the draft idles
                checked = pending
            accepted = 0
            while accepted < len(checked) and chains.accepted(s, checked[accepted]):
                accepted += 1
            ended = accepted > 0 and chains.token(s, i, checked[accepted - 1]) == EOS
            emitted = accepted
            if accepted < len(checked) or (not new and not ended):  # a correction, or a bonus
                emitted += 1
            drafted = len(alone) + len(new)
            out.append((s, i, drafted, len(checked), accepted, emitted, len(alone)))
            pending = new[1:] if new and accepted == len(checked) else None
            i += emitted
    return out


@settings(max_examples=150, deadline=None)
@given(
    trace=st.booleans().flatmap(lambda whole: tiny_traces(whole=whole)),
    window=st.integers(1, 5),
    ablation=st.sampled_from(ABLATIONS),
    first=st.sampled_from([1, 2]),
)
def test_the_rule_read_straight(trace, window, ablation, first):
    policy = PEARL(window, *ablation)
    try:
        expected = by_hand(trace, policy, first)
    except KeyError:
        with pytest.raises(ReplayError, match="was not recorded"):
            concurrent.FAMILY.walk(policy, PathLayout(trace), first)
        return
    steps = concurrent.FAMILY.walk(policy, PathLayout(trace), first)
    assert rows(steps) == expected
    emitted = np.bincount(steps.sequence, steps.emitted, trace.n_sequences)
    np.testing.assert_array_equal(emitted, PathLayout(trace).n_output - first + 1)


def test_appendix_b():
    """PEARL Table 9, Llama 2 7B & 70B (γ = 5): modes and judgements of steps 0 to 7."""
    accepted = "-" + "+" + "+-" + "+" + "+++-" + "+" + "+++++" + "++-" + "-" * 22
    sequence = [(1, 1 if sign == "+" else 2) for sign in accepted]
    trace = build([sequence], t_max=40, max_draft=20)
    steps = concurrent.FAMILY.walk(PEARL(5), PathLayout(trace), 1)
    assert steps.accepted[:8].tolist() == [0, 1, 1, 1, 3, 1, 5, 2]
    assert steps.emitted[:8].tolist() == [1, 1, 2, 1, 4, 1, 5, 3]
    assert steps.proposed[:8].tolist() == [1, 1, 5, 1, 5, 1, 5, 5]  # one: pre-verify
    assert steps.drafted[:8].tolist() == [5] * 8
    assert steps.waiting[:8].tolist() == [0, 0, 4, 0, 4, 0, 4, 4]
    # Rejections in steps 0, 2, 4 and 7 end runs of 0, 2, 4 and 8 tokens; 21 more follow.
    assert concurrent.mean_accepted(steps) == pytest.approx((0 + 2 + 4 + 8) / (4 + 21))
    assert (steps.draft_passes.sum(), len(steps)) == (steps.drafted.sum(), 8 + 22)


def test_one_position_is_one_plain_step():
    steps = concurrent.FAMILY.walk(PEARL(2), PathLayout(build([[(1, 2)]], t_max=1, max_draft=1)), 1)
    assert rows(steps) == [(0, 1, 0, 0, 0, 1, 0)]  # a last position is a plain step of the target
    assert np.isnan(concurrent.mean_accepted(steps))


@settings(max_examples=60, deadline=None)
@given(
    trace=st.booleans().flatmap(lambda whole: tiny_traces(whole=whole)),
    window=st.integers(1, 6),
    first_token=st.sampled_from(["draft", "prefill"]),
)
def test_without_both_strategies_it_is_fixed(trace, window, first_token):
    vanilla, fixed = PEARL(window, False, False), policies.Fixed(window)
    try:
        expected = simkit.replay(trace, fixed, COST, by="step", first_token=first_token).columns
    except ReplayError as error:
        with pytest.raises(ReplayError) as caught:
            simkit.replay(trace, vanilla, COST, by="step", first_token=first_token)
        ours, theirs = str(caught.value), str(error)
        assert ours.removeprefix(f"{vanilla}: ") == theirs.removeprefix(f"{fixed}: ") != theirs
        return
    found = simkit.replay(trace, vanilla, COST, by="step", first_token=first_token).columns
    for name, column in expected.items():
        if name not in ("policy", "tokens_per_step"):  # which leaves a + 1 at an accepted EOS
            np.testing.assert_array_equal(found[name], column, name)


@settings(max_examples=100, deadline=None)
@given(trace=tiny_traces(), window=st.integers(1, 5), first=st.sampled_from([1, 2]))
def test_never_slower_than_vanilla_if_the_target_takes_a_window(trace, window, first):
    """T_target = γ T_draft, no communication; exact but for drafts of vanilla's that are cut.

    Two of PEARL's steps get at least as far as one of vanilla's, in 2 T_target. A whole vanilla
    step takes as long; one whose draft the budget or an EOS cut takes (γ - drafted) T_draft less.
    """
    layout = PathLayout(trace)
    charge = Charge(Linear(draft_s=1.0, target_s=float(window)).times(trace), layout, first)
    mine = concurrent.FAMILY.walk(PEARL(window), layout, first)
    other = compiled.walk(policies.Fixed(window), layout, first)
    assert np.all(mine.counts <= 2 * other.counts)

    def total(seconds, steps):
        spent = seconds["draft_s"] + seconds["verify_s"]
        return np.bincount(steps.sequence, spent, trace.n_sequences)

    mine_s = total(charge.of_steps(PEARL(window), mine), mine)
    other_s = total(charge.of_steps(policies.Fixed(window), other), other)
    cut = np.bincount(other.sequence, window - other.drafted, trace.n_sequences)
    assert np.all(mine_s <= other_s + cut + 1e-9)


@pytest.mark.parametrize("alpha", [0.0, 0.3, 0.7, 0.95, 1.0])
@pytest.mark.parametrize("window", [1, 3, 8])
def test_never_slower_than_vanilla_on_longer_outputs(alpha, window):
    trace = iid(50, 200, alpha, max_draft=20, seed=2, eos_prob=0.01)
    cost = Linear(draft_s=1.0, target_s=float(window))
    pearl, fixed = simkit.replay(trace, [f"pearl({window})", f"fixed({window})"], cost).records()
    assert pearl["total_s"] <= fixed["total_s"]


def test_where_vanilla_is_faster():
    """A draft that an EOS cuts: 2 T_draft + T_target against two passes of the target."""
    trace = build([[(1, 1), (EOS, EOS)]], t_max=9, max_draft=9, n_prompt=0)
    cost = Linear(draft_s=1.0, target_s=5.0)
    pearl, fixed = simkit.replay(trace, ["pearl(5)", "fixed(5)"], cost).records()
    assert (fixed["total_s"], pearl["total_s"]) == (6 + 2 + 5, 6 + 2 * 5)


@pytest.mark.parametrize("window", [1, 2, 5])
@pytest.mark.parametrize("ablation", ABLATIONS)
def test_recorded_drafts_of_two_windows_are_enough(ablation, window):
    layout = PathLayout(iid(20, 100, 0.7, max_draft=2 * window, seed=3))
    assert len(concurrent.FAMILY.walk(PEARL(window, *ablation), layout, 1))


@settings(max_examples=40, deadline=None)
@given(t=st.integers(1, 30), window=st.integers(1, 6))
def test_everything_is_accepted(t, window):
    layout = PathLayout(iid(2, t, 1.0, max_draft=1, seed=0))
    steps = concurrent.FAMILY.walk(PEARL(window), layout, 1)
    assert steps.counts.tolist() == [1 + -(-(t - 1) // window)] * 2
    assert steps.drafted.sum() == 2 * (t - 1)
    if t > 1:  # one run of the whole output; its last token may be the target's own
        assert concurrent.mean_accepted(steps) == steps.accepted.sum() / 2


def test_nothing_is_accepted():
    trace = iid(2, 30, 0.0, max_draft=12, seed=0)
    layout = PathLayout(trace)
    charge = Charge(Linear(draft_s=1.0, target_s=2.5).times(trace), layout, 1)
    steps = concurrent.FAMILY.walk(PEARL(4), layout, 1)
    assert steps.drafted.tolist() == [min(4, 30 - i) for i in range(1, 31)] * 2
    assert (steps.emitted == 1).all() and concurrent.mean_accepted(steps) == 0
    seconds = charge.of_steps(PEARL(4), steps)
    # max(γ T_draft, T_verify): four draft passes until the budget leaves fewer.
    spent = seconds["draft_s"] + seconds["verify_s"]
    assert spent.tolist() == [max(min(4, 30 - i), 2.5) for i in range(1, 31)] * 2


@settings(max_examples=60, deadline=None)
@given(
    trace=tiny_traces(),
    window=st.integers(1, 5),
    ablation=st.sampled_from(ABLATIONS),
    colocated=st.booleans(),
)
def test_seconds_pass_by_pass(trace, window, ablation, colocated):
    policy = PEARL(window, *ablation, colocated)
    found = simkit.replay(trace, policy, COST, by="step").columns
    n_prompt = trace.sequences["n_prompt"].to_numpy()
    for k, (s, i, drafted, proposed, *_, alone) in enumerate(by_hand(trace, policy, 1)):
        known = n_prompt[s] + i - 1
        waiting = proposed - (drafted > alone)
        passes = [1.0 + 0.25 * (known + j) for j in range(alone)]
        meanwhile = [1.0 + 0.25 * (known + waiting + j) for j in range(drafted - alone)]
        verify_s = 3.0 + 0.5 * (1 + waiting) + 0.125 * known
        both = sum if colocated else max
        expected = sum(passes) + both([sum(meanwhile), verify_s])
        expected += 0.0625 + (0.375 if any(ablation) else 0.0)
        total_s = sum(found[part][k] for part in PARTS)
        assert total_s - found["prefill_s"][k] == pytest.approx(expected)
        assert found["verify_s"][k] == pytest.approx(verify_s)


def test_steps_add_up():
    trace = build([[(1, 1)] * 9, [(1, 2)] * 9, [(1, 1)] * 3 + [(0, 0)]], t_max=9, max_draft=9)
    (record,) = simkit.replay(trace, "pearl(2)", COST).records()
    steps = simkit.replay(trace, "pearl(2)", COST, by="step").columns
    for name in ("drafted", "proposed", "accepted", "emitted", *PARTS, "total_s", "baseline_s"):
        assert record[name] == pytest.approx(steps[name].sum())
    assert record["emitted"] == 9 + 9 + 4


def test_the_window_follows_from_the_cost():
    """C = T_target(1) / T_draft(1) at the mean context: 3 + (0 + 4) / 2 = 5 known tokens."""
    trace = build([[(1, 1)] * 5], t_max=5, max_draft=5)
    cost = Linear(draft_s=1.0, target_s=100.0, decode_s=2.0, target_per_kv_token_s=0.25)
    result = simkit.replay(trace, "pearl", cost)  # c = 3.25
    assert result.records()[0]["policy"] == "pearl()"
    assert result.runs[0].bound == PEARL(3)
    for target_s, window in ((0.1, 1), (1e6, 5)):  # cut to 1 … Γ: no draft is longer
        run = simkit.replay(trace, "pearl", Linear(draft_s=1.0, target_s=target_s)).runs[0]
        assert run.bound == PEARL(window)
    with pytest.raises(PolicyError, match="drafting takes no time under this cost"):
        simkit.replay(trace, "pearl", Linear(0.0, 1.0))
    with pytest.raises(PolicyError, match="needs times"):
        simkit.replay(trace, "pearl")
    with pytest.raises(PolicyError, match="needs times"):
        concurrent.FAMILY.walk(PEARL(), PathLayout(trace), 1)


@pytest.mark.parametrize("spec", ["pearl()", "pearl(window=5)", "pearl(window=2, colocated=true)"])
def test_specs_are_written_as_they_are_read(spec):
    assert str(policies.parse(spec)) == spec


@pytest.mark.parametrize(
    "spec, complaint",
    [
        ("pearl(0)", "window must be a whole number >= 1"),
        ("pearl(2.5)", "window must be a whole number"),
        ("pearl(50)", "window 50 is above max_draft 40; if the trace was recorded that deep"),
        ("pearl(pre_verify=1)", "pre_verify must be true or false"),
        ("pearl(colocated=word)", "colocated must be true or false"),
        ("pearl(max_draft=0)", "max_draft must be a whole number >= 1"),
    ],
)
def test_bad_arguments(spec, complaint):
    with pytest.raises(PolicyError, match=complaint):
        policies.parse(spec)


SAMPLERS = {
    "greedy": Sampler(),
    "t1": Sampler(1.0),
    "point": Sampler(1.0, draft_temperature=0),
}


@cache
def recorded(sampler):
    """Outputs that end both ways, many by an EOS: several ids are one."""
    pair = sharp_pair("llama-gqa")
    prompts = tiny_prompts(5, seed=9)
    eos = (MODEL_EOS, 1, 2, 3)
    plan = Plan(SAMPLERS[sampler], 11, 18, max_draft=18, eos_token_ids=eos, batch_size=3)
    return pair, prompts, plan, record(pair, prompts, plan)


@pytest.mark.parametrize("window", [1, 3, 5])
@pytest.mark.parametrize("ablation", ABLATIONS)
@pytest.mark.parametrize("sampler", SAMPLERS)
def test_real_models_take_the_same_steps(sampler, ablation, window):
    torch.set_num_threads(1)
    pair, prompts, plan, trace = recorded(sampler)
    policy = PEARL(window, *ablation)
    for first_token, first in (("draft", 1), ("prefill", 2)):
        settings = DecoderSettings(
            plan.sampler, plan.seed, plan.max_new_tokens, plan.eos_token_ids, first_token
        )
        decoder = PearlDecoder(pair.target, pair.draft, policy, settings, pair.vocab_size)
        got = [decoder.decode(prompt.tokens, n) for n, prompt in enumerate(prompts)]
        assert [d.output for d in got] == trace.sequences["output_tokens"].to_pylist()
        lived = [
            (n, x.start, x.drafted, x.draft_length, x.accepted)
            for n, d in enumerate(got)
            for x in d.steps
        ]
        steps = concurrent.FAMILY.walk(policy, PathLayout(trace), first)
        assert [row[:5] for row in rows(steps)] == lived


def test_live_needs_a_window():
    pair, _, plan, _ = recorded("greedy")
    with pytest.raises(PolicyError, match="window"):
        PearlDecoder(
            pair.target, pair.draft, PEARL(), DecoderSettings(plan.sampler), pair.vocab_size
        )
