"""Fidelity on a made-up machine, where a prediction must be right, and on tiny models."""

from dataclasses import replace

import numpy as np
import polars as pl
import pyarrow.parquet as pq
import pytest
from live_logs import run
from replay_traces import with_scores
from trace_files import trace

import simkit
from simkit import costs, fidelity, policies
from simkit.costs import fit
from simkit.errors import LiveError
from simkit.fidelity import report
from simkit.fidelity.run import Plan, Runs, jobs_of, split
from traces.synthetic import iid

COST = costs.Linear(
    draft_s=1e-3,
    target_s=8e-3,
    draft_per_kv_token_s=1e-6,
    target_per_token_s=2e-4,
    target_per_kv_token_s=5e-6,
    draft_per_token_s=1e-5,
    overhead_s=2e-4,
    baseline_overhead_s=1e-5,
    policy_s=1e-4,
)
TESTED = ("fixed(1)", "fixed(5)", "svip(h=0.4)", "confidence")


@pytest.fixture(scope="module")
def source():
    return iid(30, 120, 0.7, max_draft=40, seed=3)


@pytest.fixture(scope="module")
def plan(source):
    held_out, calibration = split(source.n_sequences, 16, 10)
    chosen = tuple(policies.parse(spec) for spec in TESTED)
    return Plan(chosen, held_out, calibration, rounds=2)


def compared(source, plan, tmp_path, slow=None, first_s=0.0):
    log, found = run(source, plan, COST.times(source), slow, first_s)
    numbers = set(plan.calibration)
    mine = log.filter([n in numbers for n in log["sequence"].to_pylist()])
    samples = fit.samples(mine, plan.passes, plan.rules)
    pq.write_table(samples, tmp_path / "cost.parquet")
    chosen = fidelity.select(source, plan.held_out)
    replayed = simkit.replay(chosen, list(plan.policies), str(tmp_path / "cost.parquet"))
    return fidelity.compare(log, Runs(plan, found), replayed), samples


def test_a_machine_without_noise_is_predicted(source, plan, tmp_path):
    """Fitted on other prompts and other draft lengths; cells of contexts cost some accuracy."""
    found, samples = compared(source, plan, tmp_path)
    assert [row.policy for row in found.rows] == [str(policy) for policy in plan.policies]
    assert found.worst_error < 0.004
    assert found.tau == 1 and not found.misranked and found.passes and found.conclusive
    assert sum(row.differing for row in found.rows) == 0
    assert len(found.pairs) >= 3
    for row in found.rows:
        if not row.policy.startswith("fixed"):  # looks at tokens
            assert row.predicted_policy_s == pytest.approx(row.policy_s, rel=1e-6)
            assert row.free > row.predicted
    _, residuals = fit.linear(samples)
    assert {r.what for r in residuals} >= {"draft", "verify", "decode", "target prefill"}
    assert max(r.worst for r in residuals) < 0.004


def test_a_slower_first_draft_pass_counts_once_a_step(source, plan, tmp_path):
    """It weighs most where drafts are short: fixed(1) would be 4% off if passes were all alike."""
    found, samples = compared(source, plan, tmp_path, first_s=5e-4)
    assert found.worst_error < 0.004
    (overhead,) = [r["seconds"] for r in samples.to_pylist() if r["component"] == "overhead"]
    assert overhead == pytest.approx(7e-4, rel=0.02)


def test_a_policy_that_is_slower_live_than_predicted_shows(source, plan, tmp_path):
    found, _ = compared(source, plan, tmp_path, slow={2: 1.5})  # fixed(5)
    wrong = next(row for row in found.rows if row.policy == "fixed(5)")
    assert wrong.error == pytest.approx(0.5, abs=0.01)
    assert found.worst_error == wrong.error and not found.passes
    assert {pair.slower for pair in found.misranked} == {"fixed(5)"}
    assert all(pair.measured > 1 > pair.predicted for pair in found.misranked)


def test_equal_arms_that_disagree_make_it_inconclusive(source, plan, tmp_path):
    found, _ = compared(source, plan, tmp_path, slow={5: 1.03})  # fixed(1) again
    (drift,) = found.drifts
    assert drift.ratio == pytest.approx(1.03) and not drift.agrees
    assert not found.conclusive
    assert any("not conclusive" in line for line in report.verdict(found))
    assert compared(source, plan, tmp_path, slow={5: 1.005})[0].conclusive


def test_other_steps_are_counted(source, plan, tmp_path):
    log, found = run(source, plan, COST.times(source))
    key = (1, int(plan.held_out[0]))
    found[key] = found[key]._replace(steps=[found[key].steps[0][:-1]])
    chosen = fidelity.select(source, plan.held_out)
    replayed = simkit.replay(chosen, list(plan.policies), COST)
    rows = fidelity.compare(log, Runs(plan, found), replayed).rows
    assert [row.differing for row in rows] == [1, 0, 0, 0]


def test_report(source, plan, tmp_path):
    found, samples = compared(source, plan, tmp_path)
    text = report.markdown(found, fit.linear(samples)[1], {"trace": "made up"})
    assert text.count("\n| `") == len(TESTED)
    assert "- trace: made up" in text and "median 0." in text
    assert report.frame(found).height == len(TESTED)
    loss = replace(found.rows[2], predicted=0.99, free=1.02)
    assert "loss" in report.cells(loss)[-1] and not report.cells(found.rows[2])[-1]
    ax = report.picture(found)
    assert len(ax.get_yticklabels()) == len(TESTED)
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["measured", "predicted"]


@pytest.mark.parametrize(
    "spec", ["fixed(3)", "svip(h=0.5)", "pacer(block=2, max_draft=6)", "specdecpp(max_draft=6)"]
)
def test_a_part_of_a_trace_replays_as_it_does_in_the_whole(spec):
    whole = with_scores(trace(n=9))
    some = [1, 4, 5, 8]
    policy = policies.parse(spec)
    part = fidelity.select(whole, some, [policy.head] if policy.head else [])
    columns = ["sequence", "steps", "drafted", "accepted", "emitted", "total_s", "baseline_s"]
    expected, got = (
        simkit.replay(t, policy, COST, by="sequence").frame.select(columns) for t in (whole, part)
    )
    assert got.equals(expected.filter(pl.col("sequence").is_in(some)))


def test_state_of_a_run_passes_over_the_prompts_left_out():
    whole = trace(n=9)
    rule = policies.parse("heuristic(initial=2, schedule=heuristic)")
    part = fidelity.select(whole, [0, 1, 2])
    frames = [simkit.replay(t, rule, COST, by="sequence").frame for t in (whole, part)]
    assert frames[1]["steps"].to_list() == frames[0]["steps"].to_list()[:3]
    assert fidelity.select(whole, [8]).sequences["sequence"].to_pylist() == [8]


def test_split_and_jobs(source, plan):
    held_out, calibration = split(128, 24, 8)
    assert len(held_out) == 24 and len(calibration) == 8
    assert not set(held_out) & set(calibration)
    assert {i // 32 for i in held_out} == {i // 32 for i in calibration} == {0, 1, 2, 3}
    for numbers in ((5, 3, 3), (5, 0, 3), (5, 3, 0)):
        with pytest.raises(LiveError):
            split(*numbers)
    jobs = jobs_of(source, plan)
    assert [job.sequence for job in jobs] == sorted((*plan.held_out, *plan.calibration))
    tested = [job for job in jobs if job.sequence in plan.held_out]
    assert all(job.arms == plan.tested for job in tested)
    fitted = [job for job in jobs if job.sequence in plan.calibration]
    assert all(set(plan.passes) <= set(job.arms) for job in fitted)
    assert sum(set(plan.rules) <= set(job.arms) for job in fitted) == 3
    names = [arm.name for arm in plan.arms]
    assert not {names[k] for k in plan.passes} & {names[k] for k in plan.rules}


def test_samples_of_a_log_are_a_measured_cost(source, plan, tmp_path):
    log, _ = run(source, plan, COST.times(source))
    pq.write_table(log, tmp_path / "live.parquet")
    times = costs.Measured(file=str(tmp_path / "live.parquet")).times(source)
    context = np.array([30, 60, 90])
    expected = COST.times(source)
    assert times.draft(context) == pytest.approx(expected.draft(context), rel=1e-3)
    for n in (1, 2, 4, 9, 30):
        tokens = np.full(3, n)
        assert times.verify(tokens, context) == pytest.approx(
            expected.verify(tokens, context), rel=2e-3
        )
    assert times.overhead() == pytest.approx(2e-4, rel=1e-2)
    assert times.baseline_overhead() == pytest.approx(1e-5)
    assert times.policy("svip") == pytest.approx(1e-4)
    with pytest.raises(costs.CostError, match="no passes"):
        fit.samples(log.slice(0, 0))


def test_stalls_of_the_machine_are_trimmed():
    values = np.r_[np.full(96, 1.0), [50.0, 60.0, 0.1, 0.1]]
    assert fit.trimmed_mean(values) == 1.0
    assert fit.trimmed_mean(np.array([2.0, 4.0])) == 3.0
