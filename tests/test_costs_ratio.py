"""c, and what else follows from the price of a draft: closed forms, passes apart from tokens."""

from dataclasses import replace

import numpy as np
import pytest

import simkit
import traces
from simkit import policies
from simkit.costs import Linear, Measured, parse, rejection_threshold
from simkit.drafters import layout_of
from simkit.policies import PEARL, Setting
from simkit.simulator.run import run
from simkit.simulator.step_costs import Charge
from simkit.steps import concurrent, interpreted
from simkit.steps.steps import extra_passes
from traces.errors import TraceError
from traces.memory import from_drafts
from traces.synthetic import iid
from traces.trace import Trace

EAGLE = parse("specdecode-bench:eagle")
# A draft of n tokens takes 2 + 0.01 n seconds, a target pass 6, whatever the context.
BY_STEP = Linear(draft_s=2.0, draft_per_token_s=0.01, target_s=6.0, draft_per_step=True)
BY_TOKEN = Linear(draft_s=2.0, target_s=6.0)


def lattice(passes="token", runs=((2, 0, 1, 0), (3, 1, 0, 0, 2)), depth=4):
    """One draft of `depth` tokens from each start, of which so many are accepted."""
    starts = [(s, i + 1, a) for s, run in enumerate(runs) for i, a in enumerate(run)]
    rows = [(s, i, j + 1, j < a) for s, i, a in starts for j in range(depth)]
    sequence, start, at, accepted = (np.array(column) for column in zip(*rows, strict=True))
    columns = {"sequence": sequence, "start": start, "depth": at, "accepted": accepted}
    return from_drafts(
        {"n_output": [len(run) for run in runs]},
        columns,
        max_draft=depth,
        max_new_tokens=40,
        draft_passes=passes,
    )


def charge_of(trace, cost):
    return Charge(cost.times(trace), layout_of(trace), 1)


def test_c_of_a_drafter_that_is_paid_by_the_step_is_that_of_its_first_token():
    trace = lattice()
    assert charge_of(trace, BY_TOKEN).cost_ratio() == pytest.approx(6 / 2)
    assert charge_of(trace, BY_STEP).cost_ratio() == pytest.approx(6 / 2.02)
    # 5.907 + 0.0000393 c ms over 2.1361 + 0.0000024 c + 0.0008 ms: about 2.8, not 7030
    for context in (100, 1000):
        target_s = 5.88590713e-3 + 2.10103129e-5 + 3.92645679e-8 * context
        draft_s = 2.13526175e-3 + 2 * 8.41429603e-7 + 2.37768493e-9 * context
        found = EAGLE.times(trace).cost_ratio(np.array([context]))[0]
        assert found == pytest.approx(target_s / draft_s) and 2.7 < found < 2.8


def test_pearls_window_and_the_threshold_follow_it():
    trace = lattice()
    layout = layout_of(trace)
    bound = PEARL(max_draft=4).bind(Setting(layout, charge_of(trace, BY_STEP), 1))
    assert bound.window == 2  # round(2.97) = 3, cut to Γ // 2
    h = rejection_threshold(BY_STEP, 0, 3)
    assert h == pytest.approx([(6 - 2.01 - 0.01 * k) / 6 for k in (1, 2, 3)])


def test_a_cost_under_which_drafting_is_free_has_no_c():
    trace = lattice()
    with pytest.raises(simkit.costs.CostError, match="drafting takes no time under this cost"):
        charge_of(trace, Linear(draft_s=0.0, target_s=1.0)).cost_ratio()


def test_what_a_step_pays_the_draft_once_runs_beside_the_target():
    trace = lattice()
    layout, charge = layout_of(trace), charge_of(trace, BY_STEP)
    for policy in (PEARL(2), PEARL(2, pre_verify=False), PEARL(2, colocated=True)):
        steps = concurrent.FAMILY.walk(policy, layout, 1)
        found = charge.of_steps(policy, steps)
        for k in range(len(steps)):
            alone, meanwhile = int(steps.alone[k]), int(steps.meanwhile[k])
            alone_s = 2.01 + 0.01 * alone if alone else 0.0
            meanwhile_s = 0.01 * meanwhile + (0.0 if alone else 2.01)
            if not policy.colocated:
                meanwhile_s = max(0.0, meanwhile_s - 6)
            assert found["draft_s"][k] == pytest.approx(alone_s + meanwhile_s)
            assert found["verify_s"][k] == 6


def test_without_both_strategies_pearl_still_costs_what_plain_speculation_does():
    trace = lattice()
    mine, plainly = (
        run(policy, layout_of(trace), charge_of(trace, BY_STEP), 1)
        for policy in (PEARL(2, False, False), simkit.policies.Fixed(2))
    )
    assert mine.total_s == pytest.approx(plainly.total_s)


@pytest.mark.parametrize(
    ("kind", "passes"),
    [
        ("token", lambda n: n),
        ("chain", lambda n: n),
        ("draft", lambda n: n > 0),
        ("block", lambda n: n > 0),
        ("none", lambda n: 0),
    ],
)
def test_tokens_and_passes_are_two_numbers(kind, passes):
    trace = lattice(kind)
    layout = layout_of(trace)
    for policy in (simkit.policies.Fixed(3), simkit.policies.Oracle(max_draft=4)):
        steps = interpreted.walk(policy, layout, 1)
        assert (steps.draft_passes == [passes(n) for n in steps.drafted.tolist()]).all()
        found = run(policy, layout, charge_of(trace, BY_TOKEN), 1)
        assert found.counts["drafted"].sum() == steps.drafted.sum()
        assert found.counts["draft_passes"].sum() == steps.draft_passes.sum()
        # without a prefill of its own, a pass takes 2 s at every context
        assert found.seconds["draft_s"].sum() == pytest.approx(2 * steps.draft_passes.sum())
        summed, _ = found.steps()
        assert (summed.draft_passes == steps.draft_passes).all()
        (record,) = simkit.replay(trace, policy, cost="linear(draft_s=2, target_s=6)").records()
        assert record["draft_passes"] == steps.draft_passes.sum()


@pytest.mark.parametrize("kind", ["token", "draft", "chain", "block", "none"])
def test_prophet_knows_the_passes(kind):
    trace = lattice(kind)
    rules = [f"fixed({n})" for n in range(5)] + ["oracle(max_draft=4)"]
    found = simkit.replay(trace, ["prophet(max_draft=4)", *rules], cost=BY_TOKEN)
    total_s = [record["total_s"] for record in found.records()]
    assert total_s[0] <= min(total_s[1:]) + 1e-9


def test_a_drafter_says_how_many_passes_a_draft_takes(tmp_path):
    trace = lattice("draft")
    assert '"draft_passes": "draft"' in trace.manifest.to_json()
    assert "draft_passes" not in lattice().manifest.to_json()
    assert trace.hash != lattice().hash
    traces.writer.save(trace, tmp_path / "t")
    assert traces.load(tmp_path / "t").manifest.draft_passes == "draft"
    with pytest.raises(
        TraceError, match="draft_passes must be one of token, draft, chain, block, none"
    ):
        replace(trace.manifest, draft_passes="level")
    with pytest.raises(TraceError, match="draft_passes must be token where drafts share"):
        replace(traces.load("reference").manifest, draft_passes="draft")


def test_communication_can_be_given_and_is_asked_for_where_it_is_not():
    trace = traces.load("reference")
    free = simkit.replay(trace, "pearl(4)", cost="measured")
    (note,) = [note for note in free.notes if "communication" in note]
    paid = simkit.replay(trace, "pearl(4)", cost=Measured(communication_s=0.3e-3))
    assert not [note for note in paid.notes if "communication" in note]
    was, now = (result.records()[0]["speedup"] for result in (free, paid))
    assert note.endswith(f"its speedup is {now:.3f} in place of {was:.3f}")
    steps = free.records()[0]["steps"]
    more_s = paid.records()[0]["total_s"] - free.records()[0]["total_s"]
    assert more_s == pytest.approx(0.3e-3 * steps)
    with pytest.raises(simkit.costs.CostError, match="communication_s must be a number >= 0"):
        Measured(communication_s=-1.0)


def test_plain_speculation_never_communicates():
    trace = traces.load("reference")
    result = simkit.replay(trace, ["fixed(4)", "pearl(4, false, false)"], cost="measured")
    assert isinstance(trace, Trace)
    assert not [note for note in result.notes if "communication" in note]


@pytest.mark.parametrize("first_token", ["draft", "prefill"])
def test_a_pass_over_each_verified_batch_is_counted_and_paid(first_token):
    """llama.cpp of 2026 drafts as fixed(3) does, and its draft reads every 1 + γ tokens anew."""
    trace = iid(30, 60, 0.7, max_draft=8, seed=4)
    cost = Linear(
        draft_s=2.0, target_s=6.0, draft_per_token_s=0.5, draft_per_kv_token_s=0.125, policy_s=0.0
    )
    specs = ["llamacpp(version=2026)", "fixed(3)"]
    steps = simkit.replay(trace, specs, cost, by="step", first_token=first_token).frame
    mine, plain_ones = (steps.filter(policy=str(policies.parse(spec))) for spec in specs)
    for name in ("drafted", "proposed", "accepted", "start", "verify_s", "prefill_s"):
        assert (mine[name] == plain_ones[name]).all()
    assert (mine["draft_passes"] == plain_ones["draft_passes"] + 1).all()
    gamma, n_prompt = mine["proposed"].to_numpy(), trace.sequences["n_prompt"].to_numpy()
    known = n_prompt[mine["sequence"].to_numpy()] + mine["start"].to_numpy() - 1
    again_s = 2.0 + 0.5 * (gamma + 1) + 0.125 * known
    assert mine["draft_s"].to_numpy() == pytest.approx(plain_ones["draft_s"].to_numpy() + again_s)
    layout = layout_of(trace)
    charge = Charge(cost.times(trace), layout, 2 if first_token == "prefill" else 1)
    summed = run(policies.parse(specs[0]), layout, charge, charge.first)
    assert summed.counts["draft_passes"].sum() == mine["draft_passes"].sum()
    assert summed.seconds is not None
    assert summed.seconds["draft_s"].sum() == pytest.approx(mine["draft_s"].sum())


@pytest.mark.parametrize(("passes", "extra"), [("token", 1), ("draft", 1), ("none", 0)])
def test_without_a_draft_model_no_batch_is_read_anew(passes, extra):
    policy = policies.parse("llamacpp(version=2026)")
    assert extra_passes(policy, layout_of(lattice(passes))) == extra
    assert (
        extra_passes(policies.parse("llamacpp(n_max=0, version=2026)"), layout_of(lattice())) == 0
    )
    assert extra_passes(policies.parse("llamacpp"), layout_of(lattice())) == 0


def test_a_pass_over_several_tokens_takes_as_long_as_a_cost_says():
    tokens, context = np.array([1, 4]), np.array([[10], [20]])
    linear = Linear(draft_s=2.0, target_s=6.0, draft_per_token_s=0.5, draft_per_kv_token_s=0.125)
    assert linear.draft_block(tokens, context).tolist() == [[3.75, 5.25], [5.0, 6.5]]
    # a step pays the draft 2.01 once, and 0.01 for each further token
    assert BY_STEP.draft_block(tokens, context).tolist() == [[0.01, 0.04]] * 2
    roofline = parse("roofline(device=a100, target=codellama-70b, draft=codellama-7b)")
    times = roofline.times(lattice())
    assert (times.draft_block(tokens, context)[:, 0] == times.draft(context[:, 0])).all()
