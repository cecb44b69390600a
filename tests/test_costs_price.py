"""The price of a step: closed forms, batches, and fast tables against the plain sum of parts."""

from dataclasses import dataclass
from itertools import product

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from replay_traces import SEQUENTIAL, Table, build
from test_lattice import spelled_out

import simkit
import traces
from simkit import policies
from simkit.costs import CostError, Linear, Measured, Roofline, StepWork, parse
from simkit.drafters import layout_of
from simkit.errors import ReplayError
from simkit.policies import Concurrent, Policy, Sequential, Setting
from simkit.simulator import step_costs as charges
from simkit.simulator.run import run
from simkit.simulator.step_costs import PARTS, Charge
from simkit.steps import compiled, concurrent, interpreted
from simkit.steps.steps import extra_passes
from traces import schema
from traces.drafters.passes import FORMS, opened, passes_of
from traces.memory import from_drafts
from traces.synthetic import iid

CASES = settings(max_examples=25, deadline=None)
PAID = ("token", "draft", "chain", "block", "none")
DEPTH, T_MAX = 4, 9


@dataclass(frozen=True)
class Blocks(Linear):
    """Draft passes in whole blocks of tokens: what is added by a token is no line."""

    block: int = 3

    def draft_block(self, tokens, context):
        whole = 1 + (np.asarray(tokens) - 1) // self.block
        return super().draft_block(whole, context) + 0.25 * (whole > 1)


COSTS = st.builds(
    Blocks,
    draft_s=st.sampled_from([0.0, 0.5, 2.0]),
    target_s=st.sampled_from([0.5, 3.0]),
    draft_per_token_s=st.sampled_from([0.0, 0.125]),
    draft_per_kv_token_s=st.sampled_from([0.0, 0.25]),
    target_per_token_s=st.sampled_from([0.0, 0.5]),
    target_per_kv_token_s=st.sampled_from([0.0, 0.125]),
    draft_per_step=st.booleans(),
    overhead_s=st.sampled_from([0.0, 0.25]),
    policy_s=st.sampled_from([0.0, 0.0625]),
    communication_s=st.sampled_from([0.0, 0.5]),
    parallel=st.sampled_from(FORMS),
)
SPECS = (
    *(f"fixed({n})" for n in range(DEPTH + 1)),
    *(
        "svip(h=0.8, max_draft=4)",
        "svip(h=0.8, max_draft=3)",
        "llamacpp(max_draft=3, version=2026)",
    ),
)


@st.composite
def lattices(draw, longest=T_MAX):
    """Traces of which each start has a draft of its own, and the entropy of each token."""
    lengths = draw(st.lists(st.integers(1, longest), min_size=1, max_size=3))
    rng = np.random.default_rng(draw(st.integers(0, 9)))
    starts = [(s, i + 1) for s, n in enumerate(lengths) for i in range(n)]
    sequence, start = np.repeat(np.array(starts), DEPTH, axis=0).T
    depth = np.tile(np.arange(1, DEPTH + 1), len(starts))
    reach = rng.integers(0, DEPTH + 1, (len(lengths), longest))
    return from_drafts(
        {"n_output": lengths, "n_prompt": rng.integers(1, 4, len(lengths)).tolist()},
        {
            "sequence": sequence,
            "start": start,
            "depth": depth,
            "accepted": depth <= reach[sequence, start - 1],
            "draft_entropy": rng.random(len(depth)).astype(np.float32),
            "draft_top1_prob": np.ones(len(depth), np.float32),
            "draft_top10_mass": np.ones(len(depth), np.float32),
        },
        max_draft=DEPTH,
        max_new_tokens=longest,
        draft_passes=draw(st.sampled_from(PAID)),
    )


def asked_of(policy: Policy, drafted: int, room: int) -> int:
    """Tokens that a pass is asked for which yields a whole draft: a rule sees them only then."""
    rest = min(room, DEPTH)
    if isinstance(policy, Sequential) and policy.looks:
        return min(policy.max_draft, rest) if drafted else 0
    return drafted


def works(policy, layout, steps, first, form):
    """What each step did, in plain Python: one draft after another, tokens read one by one."""
    paid = opened(layout.paid, form, DEPTH)
    extra = extra_passes(policy, layout)
    before, read = -1, 0
    for k, (s, start) in enumerate(zip(steps.sequence.tolist(), steps.start.tolist(), strict=True)):
        if s != before:
            before, read = s, first - 1
        known = int(layout.n_prompt[s]) + start - 1
        drafted = int(steps.drafted[k])
        asked = drafted
        if layout.paid in ("draft", "block"):
            asked = asked_of(policy, drafted, layout.trace.max_new_tokens - start)
        passes = passes_of(paid, np.array(asked), 1 if extra else start - read)
        tokens, behind = passes.tokens.tolist(), passes.behind.tolist()
        if extra:
            tokens, behind = [*tokens, int(steps.proposed[k]) + 1], [*behind, 0]
        if drafted:
            read = start
        yield StepWork(
            known,
            int(steps.proposed[k]) + 1,
            np.array(tokens, int),
            known + np.array(behind, int),
            from_model=layout.paid != "none",
            policy=policy.timed_as if policy.looks else "",
            decisions=int(policy.calls(drafted)),
        )


@CASES
@given(trace=lattices(), cost=COSTS, first=st.sampled_from([1, 2]), spec=st.sampled_from(SPECS))
def test_a_replay_adds_up_the_prices_of_its_steps(trace, cost, first, spec):
    layout = layout_of(trace)
    charge, policy = Charge(cost.times(trace), layout, first), policies.parse(spec)
    steps = interpreted.walk(policy, layout, first)
    expected = [cost.price(work) for work in works(policy, layout, steps, first, cost.parallel)]
    found = charge.of_steps(policy, steps)
    for part in ("draft_s", "verify_s", "policy_s", "overhead_s"):
        one_by_one = [float(getattr(price, part)) for price in expected]
        np.testing.assert_allclose(found[part], one_by_one, rtol=1e-12, atol=1e-12)
    sums = run(policy, layout, charge, first)
    again = compiled.walk(policy, layout, first)
    assert (again.asked == steps.asked).all() and (again.draft_passes == steps.draft_passes).all()
    for part in PARTS[1:]:  # a sequence without a step pays its prefill too
        over = np.bincount(steps.sequence, found[part], trace.n_sequences)
        np.testing.assert_allclose(sums.seconds[part], over, rtol=1e-12, atol=1e-12)
    assert sums.counts["draft_passes"].sum() == steps.draft_passes.sum()


@CASES
@given(trace=lattices(), cost=COSTS, spec=st.sampled_from(SPECS))
def test_tables_that_would_be_too_large_are_done_without(trace, cost, spec):
    layout, policy = layout_of(trace), policies.parse(spec)
    expected = run(policy, layout, Charge(cost.times(trace), layout, 1), 1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("simkit.costs.drafting.CELLS", 0)
        found = run(policy, layout, Charge(cost.times(trace), layout, 1), 1)
        np.testing.assert_allclose(found.total_s, expected.total_s, rtol=1e-12)
        patch.setattr(charges, "CELLS", 0)
        found = run(policy, layout, Charge(cost.times(trace), layout, 1), 1)
    np.testing.assert_allclose(found.total_s, expected.total_s, rtol=1e-12)


@CASES
@given(
    trace=lattices(),
    cost=COSTS,
    first=st.sampled_from([1, 2]),
    spec=st.sampled_from(
        [
            *("pearl(1, max_draft=4)", "pearl(2, max_draft=4)", "pearl(2, pre_verify=false)"),
            *("pearl(2, post_verify=false)", "pearl(2, false, false)", "pearl(2, colocated=true)"),
        ]
    ),
)
def test_pearl_pays_the_prices_of_its_steps(trace, cost, first, spec):
    layout, policy = layout_of(trace), policies.parse(spec)
    assert isinstance(policy, Concurrent)
    charge = Charge(cost.times(trace), layout, first)
    try:
        steps = concurrent.FAMILY.walk(policy, layout, first)
    except ReplayError:  # a draft that is accepted whole runs on into the next one
        assume(False)
    found = charge.of_steps(policy, steps)
    before, read = -1, 0
    for k, (s, start) in enumerate(zip(steps.sequence.tolist(), steps.start.tolist(), strict=True)):
        if s != before:
            before, read = s, first - 1
        known, waiting = int(layout.n_prompt[s]) + start - 1, int(steps.waiting[k])
        tokens, behind, beside = [], [], []
        for made, at, later in ((steps.alone[k], 0, False), (steps.meanwhile[k], waiting, True)):
            paid = opened(layout.paid, cost.parallel, DEPTH)
            passes = passes_of(paid, np.array(int(made)), max(1, start + at - read))
            tokens += passes.tokens.tolist()
            behind += (at + passes.behind).tolist()
            beside += [later and not policy.colocated and policy.overlaps] * passes.tokens.size
            read = start + at if made else read
        beside += [policy.overlaps and not policy.colocated]  # a column, for what is paid once
        work = StepWork(
            known,
            waiting + 1,
            np.array([*tokens, 0]),
            known + np.array([*behind, 0]),
            meanwhile=np.array(beside),
            communicates=policy.overlaps,
            from_model=layout.paid != "none",
        )
        price = cost.price(work)
        for part in ("draft_s", "verify_s", "policy_s", "overhead_s"):
            assert found[part][k] == pytest.approx(float(getattr(price, part)), abs=1e-12), part


@settings(max_examples=15, deadline=None)
@given(trace=lattices(longest=4), cost=COSTS, first=st.sampled_from([1, 2]))
def test_prophet_is_the_best_of_all_plans_however_drafts_are_paid(trace, cost, first):
    layout = layout_of(trace)
    charge = Charge(cost.times(trace), layout, first)
    found = run(policies.parse("prophet(max_draft=4)"), layout, charge, first)

    best = np.full(trace.n_sequences, np.inf)
    for lengths in product(range(4), repeat=4):
        best = np.minimum(best, run(Table(lengths, first), layout, charge, first).total_s)
    np.testing.assert_allclose(found.total_s, best, rtol=1e-12)


@pytest.mark.parametrize("cells", [2**25, 0])
def test_prophet_bounds_other_rules_where_one_pass_yields_a_draft(cells, monkeypatch):
    rng = np.random.default_rng(3)
    n, length = 6, 60
    sequence, start = np.divmod(np.arange(n * length), length)
    keys = [np.repeat(x, DEPTH) for x in (sequence, start + 1)]
    depth = np.tile(np.arange(1, DEPTH + 1), n * length)
    accepted = depth <= np.repeat(rng.geometric(0.4, n * length) - 1, DEPTH)
    trace = from_drafts(
        {"n_output": [length] * n, "n_prompt": [7] * n},
        {
            "sequence": keys[0],
            "start": keys[1],
            "depth": depth,
            "accepted": accepted,
            "draft_prob_raw": np.where(accepted, 0.8, 0.5 * rng.random(len(depth))).astype("f4"),
        },
        max_draft=DEPTH,
        max_new_tokens=length,
        draft_passes="draft",
    )
    monkeypatch.setattr("simkit.costs.drafting.CELLS", cells)
    cost = Blocks(
        draft_s=1.0,
        target_s=4.0,
        draft_per_token_s=0.25,
        target_per_token_s=0.25,
        draft_per_kv_token_s=0.005,
    )
    rules = [f"fixed({n})" for n in range(DEPTH + 1)]
    rules += [
        f"{rule}, max_draft={DEPTH})" for rule in ("confidence(0.5", "rate_optimal(draft_prob_raw")
    ]
    best = policies.parse(rules[-1])
    records = simkit.replay(trace, ["prophet", *rules, "oracle"], cost).records()
    total_s = {record["policy"]: record["total_s"] for record in records}
    assert total_s["prophet()"] < min(s for name, s in total_s.items() if name != "prophet()")
    # it weighs the whole pass against all that the draft may give: no rule that knows less gains
    assert total_s[str(best)] <= min(total_s[f"fixed({n})"] for n in range(DEPTH + 1))


@pytest.mark.parametrize(
    "passes, form, expected",
    [
        # 2 tokens behind 10; then 3 are kept: 4 behind 13 - 2; one is kept, the budget leaves room
        # for one token: 1 behind 14
        ("draft", "kept", [1 + 1 + 1.25, 1 + 2 + 11 / 8, 1 + 0.5 + 14 / 8]),
        # room for 2K tokens behind what was read: 10, 13 - 2 and 14 known ones
        ("draft", "padded", [1 + 2 + 1.25, 1 + 2 + 11 / 8, 1 + 1 + 14 / 8]),
        # the last known token and K masks, behind all that are known
        ("draft", "last", [1 + 1.5 + 1.25, 1 + 1.5 + 13 / 8, 1 + 1 + 14 / 8]),
        # the kept tokens anew, 1, 3 and 1 of them; then a pass over one token behind each
        ("chain", "kept", [1.5 + 1.25 + 1.5 + 11 / 8, 2.5 + 11 / 8 + 1.5 + 14 / 8, 1.5 + 14 / 8]),
        # the kept tokens and as many masks as the longest draft has, 2, whatever was asked for
        ("block", "last", [2.5 + 1.25, 3.5 + 11 / 8, 2.5 + 14 / 8]),
    ],
)
def test_first_passes_in_numbers(passes, form, expected):
    """K tokens cost one pass of K - 1 + (kept) tokens, and the first draft has kept one."""
    drafts = {
        "sequence": np.zeros(12, int),
        "start": np.repeat(np.arange(1, 7), 2),
        "depth": np.tile([1, 2], 6),
        "accepted": np.array([1, 1, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0], bool),
    }
    lengths = {"n_output": [6], "n_prompt": [10]}
    trace = from_drafts(lengths, drafts, max_draft=2, max_new_tokens=6, draft_passes=passes)
    seconds = {"draft_s": 1.0, "draft_per_token_s": 0.5, "draft_per_kv_token_s": 0.125}
    cost = Linear(**seconds, target_s=2.0, parallel=form)
    steps = simkit.replay(trace, "fixed(2)", cost, by="step").frame
    assert steps["start"].to_list() == [1, 4, 5]
    assert steps["draft_s"].to_list() == pytest.approx(expected)
    assert steps["draft_passes"].to_list() == ([2, 2, 1] if passes == "chain" else [1, 1, 1])


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("passes", ["draft", "block"])
@pytest.mark.parametrize("spec", SEQUENTIAL)
def test_a_rule_chooses_how_many_tokens_of_one_pass_are_verified(spec, passes, form):
    """Drafting costs one pass whatever the rule makes of its tokens, of those it was asked for."""
    rng = np.random.default_rng(5)
    lengths = [[(int(n), 2) for n in rng.integers(1, 4, 20)] for _ in range(3)]
    path = build(lengths, t_max=20, max_draft=40, values=lambda n: rng.random(n).astype("f4"))
    trace = spelled_out(path, draft_passes=passes)
    cost = Blocks(draft_s=1.0, draft_per_token_s=0.25, target_s=4.0, parallel=form)
    layout = layout_of(trace)
    charge = Charge(cost, layout, 1)
    policy = policies.parse(spec).bind(Setting(layout, charge, 1))
    steps = interpreted.walk(policy, layout, 1)
    drafts = steps.drafted > 0
    assert (steps.draft_passes == drafts + extra_passes(policy, layout)).all()
    most = np.minimum(trace.max_draft, path.max_new_tokens - steps.start)
    if policy.looks:  # it sees the tokens when the pass is over
        longest = getattr(policy, "n_max", policy.max_draft)
        assert (steps.asked == np.where(drafts, np.minimum(most, longest), 0)).all()
    paid = opened(passes, form, trace.max_draft)
    unread = 1 if extra_passes(policy, layout) else steps.unread
    tokens = np.where(drafts, paid.tokens(steps.asked, unread), 0)
    expected = np.where(drafts, cost.draft_block(np.maximum(tokens, 1), 0), 0.0)
    if not extra_passes(policy, layout):
        np.testing.assert_allclose(charge.of_steps(policy, steps)["draft_s"], expected)


def test_proposals_from_tokens_alone_are_free_of_passes():
    trace = from_drafts(
        {"n_output": [2]},
        {"sequence": [0, 0], "start": [1, 2], "depth": [1, 1], "accepted": [True, False]},
        max_draft=1,
        max_new_tokens=5,
        draft_passes="none",
    )
    charge = Charge(parse("specdecode-bench:eagle").times(trace), layout_of(trace), 1)
    assert run(policies.parse("fixed(1)"), layout_of(trace), charge, 1).seconds["draft_s"] == 0
    with pytest.raises(CostError, match="drafting takes no time"):
        charge.cost_ratio()


def test_a_price_in_numbers():
    cost = Linear(
        draft_s=1.0,
        draft_per_kv_token_s=0.5,
        target_s=10.0,
        target_per_token_s=2.0,
        overhead_s=0.25,
        policy_s=0.5,
        head_s=0.75,
    )
    passes = passes_of("token", np.array(2))
    work = StepWork(8, 3, passes.tokens, 8 + passes.behind, policy="svip", decisions=2)
    price = cost.price(work._replace(head="pacer", head_calls=1))
    assert price.draft_s == (1 + 4) + (1 + 4.5) and price.verify_s == 16
    assert price.policy_s == 2 * 0.5 + 0.75 and price.overhead_s == 0.25
    assert price.total_s == 10.5 + 16 + 1.75 + 0.25
    several = cost.price(StepWork(np.array([8, 9]), np.array([1, 2])))
    assert several.verify_s.tolist() == [12, 14] and several.draft_s.tolist() == [0, 0]


def test_a_batch_is_an_argument_of_the_price():
    cost = Linear(
        draft_s=1.0,
        draft_per_token_s=0.5,
        draft_per_kv_token_s=0.25,
        target_s=10.0,
        target_per_token_s=2.0,
        target_per_kv_token_s=0.5,
    )
    work = StepWork(8, 3, np.array([1, 1]), np.array([8, 9]))
    price = cost.price(work, batch=4)
    assert price.verify_s == 10 + 4 * (2 * 3 + 0.5 * 8)
    assert price.draft_s == 2 * 1 + 4 * (2 * 0.5 + 0.25 * (8 + 9))
    assert cost.price(work, batch=1) == cost.price(work)
    assert cost.of_batch(4).price(work) == price and cost.of_batch(4).batch == 4
    assert cost.of_batch(4).decode(np.array([8])) == 10 + 4 * (2 + 4)
    decode = Linear(draft_s=1.0, target_s=10.0, target_per_token_s=2.0, decode_s=9.0)
    assert decode.of_batch(4).decode(np.array([8])) == 9 + 3 * 2
    with pytest.raises(CostError, match="in a batch would cost nothing"):
        parse("pacer:deepseek-1.3b-33b(batch_size=4)")
    with pytest.raises(CostError, match="batch_size must be an integer >= 1, not 0"):
        cost.of_batch(0)


def test_a_batch_of_a_roofline_is_that_of_its_argument():
    trace = iid(2, 5, 0.5, max_draft=2, seed=0)
    models = {"device": "h200", "target": "llama2-70b", "draft": "llama2-7b"}
    work = StepWork(100, 6, np.ones(5, int), 100 + np.arange(5))
    one = Roofline(**models).times(trace)
    price = one.price(work, batch=8)
    assert price == Roofline(**models, batch_size=8).times(trace).price(work)
    assert one.price(work).verify_s < price.verify_s < 8 * one.price(work).verify_s


def latency(sizes):
    rows = [
        {
            "component": component,
            "tokens_in": n,
            "context_len": context,
            "batch_size": size,
            "seconds": size * n * (1.0 if component == "draft" else 3.0),
            "dtype": "float32",
            "device": "cpu",
            "engine": "eager",
            "repeat": 0,
        }
        for size in sizes
        for component, tokens in (("draft", (1, 4)), ("target", (1, 2, 5)))
        for n in tokens
        for context in (10, 20)
    ]
    rows.append({**rows[0], "component": "overhead", "batch_size": 1, "seconds": 0.5})
    return pa.Table.from_pylist(rows, schema=schema.LATENCY)


def test_batches_that_were_measured_and_those_between():
    from simkit.costs.measured import times_of

    times = times_of(latency((1, 2, 8)))
    work = StepWork(15, 4, np.array([1, 3]), np.array([15, 16]))
    for size in (1, 2, 5, 8):  # the seconds are a line: so are those between the sizes
        price = times.price(work, batch=size)
        assert price.verify_s == pytest.approx(size * 12)
        assert price.draft_s == pytest.approx(size * (1 + 3))  # one pass is over three tokens
        assert price.overhead_s == 0.5  # not timed in a batch: as it is for one
        assert times.of_batch(size).batch == size
    with pytest.raises(CostError, match=r"no samples of batch size 9 \(batch sizes: 1, 2, 8\)"):
        times.price(work, batch=9)
    assert times.of_batch(5).drawn_anew(3) == [] and times.of_batch(5).remarks()


def test_a_cost_that_knows_one_batch_size_says_so():
    times = iid(2, 5, 0.5, max_draft=2, seed=0)

    class One(Linear):
        of_batch = simkit.costs.Times.of_batch

    with pytest.raises(CostError, match="passes over 1 sequence, not over 2"):
        One(draft_s=1.0, target_s=2.0).times(times).price(StepWork(5), batch=2)


def test_a_pass_over_several_tokens_that_was_not_timed_is_said():
    assert not Measured().times(traces.load("reference")).knows_blocks
    drafts = {"sequence": [0, 0], "start": [1, 2], "depth": [1, 1], "accepted": [True, False]}
    paid = {"max_draft": 1, "max_new_tokens": 5, "draft_passes": "draft"}
    trace = from_drafts({"n_output": [2]}, drafts, **paid)
    layout = layout_of(trace)
    said = Charge(Measured().times(traces.load("reference")), layout, 1).remarks
    assert any("no draft pass over several tokens was timed" in line for line in said)
    assert Charge(Linear(draft_s=1.0, target_s=2.0), layout, 1).remarks == []


@pytest.mark.parametrize("score", ["draft_prob_raw", "draft_entropy"])
def test_rate_optimal_charges_its_own_rule(score):
    """Under a decision that takes a tenth of a target pass it drafts less than one that is free."""
    trace = iid(20, 50, 0.7, max_draft=12, seed=1)
    layout = layout_of(trace)
    price, seconds = {}, {}
    for policy_s in (0.0, 0.1):
        cost = Linear(draft_s=0.05, target_s=1.0, policy_s=policy_s)
        setting = Setting(layout, Charge(cost, layout, 1), 1)
        bound = policies.parse(f"rate_optimal({score}, max_draft=12)").bind(setting)
        price[policy_s] = bound.params.price[0, :12]
        seconds[policy_s] = run(bound, layout, setting.charge, 1).counts["drafted"].sum()
    assert price[0.1] == pytest.approx(price[0.0] + 0.1)
    assert seconds[0.1] < seconds[0.0]


@pytest.mark.parametrize(("timed", "weighed_s"), [({"svip": 0.125}, 0.25), ({}, 0.0)])
def test_rate_optimal_charges_a_rule_that_the_cost_has_no_time_for(monkeypatch, timed, weighed_s):
    """Beside times of other rules it weighs a microbenchmark's; alone, that is charged only."""
    from simkit.costs.base import RuleTime
    from simkit.simulator import step_costs as module

    class Untimed(Linear):
        def rule_time(self, name):
            return None

        def timed_rules(self):
            return timed

    monkeypatch.setattr(module, "time_rule", lambda *_: RuleTime(0.25, "made up"))
    trace = iid(20, 50, 0.7, max_draft=12, seed=1)
    layout = layout_of(trace)
    charge = Charge(Untimed(draft_s=0.05, target_s=1.0), layout, 1)
    bound = policies.parse("rate_optimal(max_draft=12)").bind(Setting(layout, charge, 1))
    assert bound.params.price[0, :12] == pytest.approx(0.05 + weighed_s)
    assert charge.call_s(bound) == 0.25
