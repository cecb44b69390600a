"""Fidelity on a made-up machine, where a prediction must be right, and on tiny models."""

from dataclasses import replace

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from live_logs import COST, TESTED, judged, ruled, run
from replay_traces import with_scores
from trace_files import trace

import simkit
from analysis.figures import fidelity_speedups
from simkit import costs, fidelity, policies
from simkit.costs import fit
from simkit.costs.passes import Passes, Timings, trimmed_mean
from simkit.drafters.path import PathLayout
from simkit.errors import LiveError
from simkit.fidelity import errors, report, results
from simkit.fidelity.run import LivePlan, check_recorded, jobs_of, split
from simkit.live.summary import Drift
from traces.arrays import count_up
from traces.errors import TraceError
from traces.memory import from_drafts
from traces.subset import select
from traces.synthetic import iid


@pytest.fixture(scope="module")
def source():
    return iid(30, 120, 0.7, max_draft=40, seed=3)


@pytest.fixture(scope="module")
def plan(source):
    held_out, calibration = split(source.prompt_numbers, 16, 10)
    chosen = tuple(policies.parse(spec) for spec in TESTED)
    return LivePlan(chosen, held_out, calibration, rounds=2)


def test_a_machine_without_noise_is_predicted(source, plan):
    """Fitted on other prompts and other draft lengths; cells of contexts cost some accuracy."""
    found, samples, residuals, _ = judged(source, plan)
    assert [row.policy for row in found.rows] == [str(policy) for policy in plan.policies]
    assert found.worst_error < 0.004
    assert found.tau == 1 and not found.misranked and found.passes and found.conclusive
    assert found.differing == 0 and len(found.pairs) == 6 and len(found.distinct) >= 3
    assert all(row.error_lo <= row.error <= row.error_hi for row in found.rows)
    assert max(row.error_hi - row.error_lo for row in found.rows) < 0.004
    assert 0 <= found.median_lo <= found.median_error <= found.median_hi < 0.004
    for row in found.rows:
        if not row.policy.startswith("fixed"):  # looks at tokens
            assert row.predicted_policy_s == pytest.approx(row.policy_s, rel=1e-6)
            assert row.free > row.predicted
    assert {r["component"] for r in samples.to_pylist()} >= {"draft", "target", "policy:svip"}
    assert {r.what for r in residuals} >= {"draft", "verify", "decode", "target prefill"}
    assert max(r.worst for r in residuals) < 0.004
    assert all(r.median <= r.p95 <= r.worst for r in residuals)


def test_a_slower_first_draft_pass_counts_once_a_step(source, plan):
    """It weighs most where drafts are short: fixed(1) would be 4% off if passes were all alike."""
    found, samples, *_ = judged(source, plan, first_s=5e-4)
    assert found.worst_error < 0.004
    (overhead,) = [r["seconds"] for r in samples.to_pylist() if r["component"] == "overhead"]
    assert overhead == pytest.approx(7e-4, rel=0.02)


def test_a_policy_that_is_slower_live_than_predicted_shows(source, plan):
    found = judged(source, plan, slow={2: 1.5}).comparison  # fixed(5)
    wrong = next(row for row in found.rows if row.policy == "fixed(5)")
    assert wrong.error == pytest.approx(0.5, abs=0.01)
    assert wrong.error_lo == pytest.approx(0.5, abs=0.01)
    assert found.worst_error == wrong.error and not found.passes and found.conclusive
    assert {pair.slower for pair in found.misranked} == {"fixed(5)"}
    assert all(pair.measured_lo > 1 > pair.predicted for pair in found.misranked)
    said = "\n".join(results.verdict(found))
    assert "wrong way round: " in said and "missed: the worst error is above 8%" in said


@pytest.mark.parametrize(
    ("lo", "hi", "agrees", "words"),
    [
        (0.99, 1.02, True, ""),
        (1.011, 1.02, False, "differ by more than 1%"),  # small, but there
        (0.96, 0.98, False, "differ by more than 1%"),
        (0.96, 1.01, False, "may differ by more than 3%"),  # wide: who knows
        (0.99, 1.04, False, "may differ by more than 3%"),
        (float("nan"), float("nan"), False, "may differ by more than 3%"),  # of one prompt
    ],
)
def test_equal_arms_must_be_known_to_agree(lo, hi, agrees, words):
    drift = Drift("fixed(1)", (lo + hi) / 2, lo, hi, 5)
    assert drift.agrees == agrees
    assert agrees or words in drift.complaint
    few = replace(drift, prompts=4)
    assert not few.agrees and ("ran 4 prompts" in few.complaint or few.differs)


def test_equal_arms_that_disagree_make_it_inconclusive(source, plan):
    found = judged(source, plan, slow={5: 1.03}).comparison  # fixed(1) again
    (drift,) = found.drifts
    assert drift.ratio == pytest.approx(1.03) and drift.differs
    assert not found.conclusive and not found.passes
    assert any("not conclusive" in line for line in results.verdict(found))
    assert judged(source, plan, slow={5: 1.005}).comparison.conclusive
    wide = judged(source, plan, noise=0.15).comparison
    assert not wide.conclusive and "may differ" in wide.drifts[0].complaint


def test_pairs_within_the_noise_of_equal_arms_are_not_told_apart(source, plan):
    """Without noise every paired interval is narrow; what is left is what equal arms show."""
    both = [judged(source, plan, slow={5: slow}).comparison for slow in (1.0, 1.3)]
    assert len(both[1].distinct) < len(both[0].distinct)
    for found, margin in zip(both, (0, 0.3), strict=True):
        assert all(pair.measured_lo > 1 + margin for pair in found.distinct)


def test_what_cannot_be_concluded_misses_a_bar(source, plan):
    found = judged(source, plan).comparison
    assert found.passes and found.missed == []
    alike = [replace(pair, distinct=False) for pair in found.pairs]
    assert "no pair" in replace(found, pairs=alike).missed[0]
    assert replace(found, drifts=[]).missed == ["there are no equal arms"]
    other = replace(found, rows=[replace(found.rows[0], differing=2), *found.rows[1:]])
    assert other.passes and not other.exact  # a made-up trace has no dtype
    assert replace(other, exact=True).missed == ["2 live sequences took other steps"]


def test_other_steps_are_counted(source, plan):
    log = run(source, plan, COST.times(source))
    mine = (log["run"].to_numpy() == 1) & (log["sequence"].to_numpy() == plan.held_out[0])
    log = log.filter(~(mine & (log["step"].to_numpy() == 2)))
    found = fidelity.judge(source, log, n_refits=2).comparison
    assert [row.differing for row in found.rows] == [1, 0, 0, 0] and found.differing == 1
    chosen = select(source, plan.held_out)
    replayed = simkit.replay(chosen, list(plan.policies), COST)
    assert not fidelity.compare(log, plan, replayed).passes


def test_errors_are_paired_with_what_was_measured(source, plan):
    """Prompts differ by far more than predictions err: an error that all share has no interval."""
    chosen = select(source, plan.held_out)
    runs = simkit.replay(chosen, list(plan.policies), COST).runs
    total, baseline = np.array([r.total_s for r in runs]), runs[0].seconds["baseline_s"]
    draws = errors.error_draws(runs, 1.05 * total, baseline)
    np.testing.assert_allclose(draws, 0.05, atol=1e-12)
    costs_ = [COST.times(source), replace(COST, target_s=9e-3).times(source)]
    both = errors.error_draws(runs, total, baseline, costs_)
    assert both.shape == (len(TESTED), 2000)
    assert abs(both[:, :1000]).max() < 1e-12 and (both[:, 1000:] > 0).all()
    one = errors.error_draws(runs, total[:, :1], baseline[:1])
    assert np.isnan(errors.interval(one[0])).all()
    same = errors.error_intervals(draws, runs, 1.05 * total, baseline)
    np.testing.assert_allclose(same, 0.05, atol=1e-12)


def test_scatter_of_errors_is_that_of_the_delta_method(source, plan):
    """SD of a ratio of sums over n prompts: sqrt(n) * SD(t - ratio * t') / sum(t')."""
    chosen = select(source, plan.held_out)
    runs = simkit.replay(chosen, [plan.policies[1]], COST).runs
    total, baseline = runs[0].total_s, runs[0].seconds["baseline_s"]
    measured = total * np.exp(0.05 * np.random.default_rng(1).normal(size=len(total)))
    draws = errors.error_draws(runs, measured[None], baseline)
    error = measured.sum() / total.sum() - 1
    residual = measured - (1 + error) * total
    expected = np.sqrt(len(total)) * residual.std() / total.sum()
    assert draws.std() == pytest.approx(expected, rel=0.1)
    low, high = errors.interval(draws[0])
    ((lower, upper),) = errors.error_intervals(draws, runs, measured[None], baseline)
    assert lower < low < error < high < upper  # corrected for sixteen prompts


def test_a_cost_is_fitted_again_to_prompts_drawn_anew(source, plan):
    log = run(source, plan, COST.times(source), noise=0.1)
    mine = log.filter(np.isin(log["sequence"].to_numpy(), plan.calibration))
    passes = Passes.of(mine, plan.passes, plan.rules)
    assert passes.samples().equals(fit.samples(mine, plan.passes, plan.rules))
    drawn = passes.again(np.random.default_rng(3))
    kinds = {*drawn.passes, *drawn.rules}
    assert kinds == {*passes.passes, *passes.rules} >= {"draft", "overhead", "policy:svip"}
    prompts = {*drawn.passes["verify"].sequence.tolist()}
    assert prompts < set(plan.calibration)  # some are left out, others there twice
    assert {*drawn.rules["policy:svip"].sequence.tolist()} <= ruled(plan)
    found = fidelity.refits(passes, n=40)
    at = np.array([60])
    verify = np.array([times.verify(np.array([4]), at)[0] for times in found])
    centre = COST.times(source).verify(np.array([4]), at)[0]
    assert len(found) == 40 and verify.std() / centre == pytest.approx(0.1 / 10**0.5, rel=0.8)
    steady = Passes.of(run(source, plan, COST.times(source)), plan.passes, plan.rules)
    same = [times.overhead() for times in fidelity.refits(steady, n=5)]
    assert same == pytest.approx([2e-4] * 5, rel=1e-2)
    assert fidelity.refits(replace(passes, passes={"verify": passes.passes["verify"]}), n=3) == []


def test_spans_of_some_prompts_as_often_as_they_are_named():
    spans = Timings(np.array([3, 1, 3, 2]), *(np.arange(4) for _ in range(4)))
    assert spans.of(np.array([3, 1, 3])).seconds.tolist() == [0, 2, 1, 0, 2]
    assert spans.of(np.array([7])).seconds.tolist() == []


def test_a_head_s_reading_of_the_prompt_is_no_stall(source, plan):
    """A span is a stall against its own kind only: the first call on a prompt is one of its own."""
    log = run(source, plan, COST.times(source))
    rows = log.filter((log["kind"].to_numpy() == "policy") & (log["run"].to_numpy() == 3))
    key = np.stack([rows["round"].to_numpy(), rows["sequence"].to_numpy()])
    first = np.unique(key, axis=1, return_index=True)[1]
    seconds = np.full(len(rows), 1e-4)
    seconds[first] = 5e-2  # fifty times a call
    seconds[first[0] + 1] = 5e-2  # a stall
    index = rows.schema.get_field_index("seconds")
    slow = rows.set_column(index, rows.schema.field("seconds"), [seconds])
    spans = Passes.of(pa.concat_tables([log.filter(log["run"].to_numpy() != 3), slow])).rules
    total = spans["policy:svip"].seconds.sum()
    assert total == pytest.approx(len(first) * 5e-2 + (len(rows) - len(first) - 1) * 1e-4 + 1e-3)


def test_report(source, plan):
    found, _, residuals, facts = judged(source, plan)
    assert facts["live"] == "2 rounds by sequences, float32, made up"
    text = report.markdown(found, residuals, facts)
    assert text.count("\n| `") == len(TESTED)
    assert "- trace: in memory, 16 prompts held out, 10 for calibration" in text
    assert "median 0." in text and "| 95% of them |" in text
    assert report.frame(found).height == len(TESTED)
    assert {"error_lo", "error_hi"} <= set(report.frame(found).columns)
    assert "prefill" in facts  # a synthetic trace's prompts have one length
    row = found.rows[2]
    for known, words in (
        ({"predicted": 0.99, "free": 1.02}, "(predicted)"),
        ({"measured": 0.99, "measured_free": 1.0}, "(measured)"),
        ({"predicted": 0.99, "measured": 0.9, "measured_free": 1.1}, "(predicted and measured)"),
    ):
        assert words in results.cells(replace(row, **known))[-1]
    assert not results.cells(row)[-1] and not replace(row, measured=0.9, measured_free=0.99).loss
    ax = fidelity_speedups(report.frame(found)).ax
    assert len(ax.get_yticklabels()) == len(TESTED)
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["measured", "predicted"]


def test_an_imported_trace_is_refused():
    lattice = from_drafts(
        {"n_output": [1]}, {"sequence": [0], "start": [1], "depth": [1], "accepted": [False]},
        max_draft=1, max_new_tokens=2,
    )  # fmt: skip
    with pytest.raises(LiveError, match="its drafts are those of none"):
        check_recorded(lattice)


@pytest.mark.parametrize(
    "spec", ["fixed(3)", "svip(h=0.5)", "pacer(block=2, max_draft=6)", "specdecpp(max_draft=6)"]
)
def test_a_part_of_a_trace_replays_as_it_does_in_the_whole(spec):
    whole = with_scores(trace(n=9))
    some = [1, 4, 5, 8]
    policy = policies.parse(spec)
    part = select(whole, some, [policy.head] if policy.head else [])
    columns = ["sequence", "steps", "drafted", "accepted", "emitted", "total_s", "baseline_s"]
    expected, got = (
        simkit.replay(t, policy, COST, by="sequence").frame.select(columns) for t in (whole, part)
    )
    assert got.equals(expected.filter(pl.col("sequence").is_in(some)))


def test_state_of_a_run_passes_over_the_prompts_left_out():
    whole = trace(n=9)
    rule = policies.parse("heuristic(initial=2, schedule=heuristic)")
    part = select(whole, [0, 1, 2])
    frames = [simkit.replay(t, rule, COST, by="sequence").frame for t in (whole, part)]
    assert frames[1]["steps"].to_list() == frames[0]["steps"].to_list()[:3]
    assert select(whole, [8]).sequences["sequence"].to_pylist() == [8]


@pytest.mark.parametrize("spec", ["fixed(3)", "svip(h=0.5)", "pacer(block=2, max_draft=6)"])
def test_a_trace_with_a_smaller_budget_is_cut_to_what_would_have_been_recorded(spec):
    whole = with_scores(trace(n=9))
    policy = policies.parse(spec)
    heads = [policy.head] if policy.head else []
    part = select(whole, range(9), heads, max_new_tokens=12)
    assert part.max_new_tokens == 12
    tokens, lengths = (whole.sequences[name].to_pylist() for name in ("output_tokens", "n_output"))
    assert part.sequences["output_tokens"].to_pylist() == [t[:12] for t in tokens]
    ends = part.sequences["finish_reason"].to_pylist()
    assert all(end == "length" for end, n in zip(ends, lengths, strict=True) if n > 12)
    layout = PathLayout(part)
    room = np.maximum(12 - 1 - count_up(layout.n_output), 0)
    assert (np.diff(layout.branch) <= room).all()
    frames = [simkit.replay(t, policy, COST, by="step").steps() for t in (whole, part)]
    keys, columns = ["sequence", "step"], ["start", "drafted", "accepted"]
    both = frames[1].join(frames[0], on=keys, suffix="_whole")
    inner = both.filter(pl.col("start") + pl.max_horizontal("drafted", "drafted_whole") < 12)
    assert inner.height > 9 and both.height == frames[1].height
    assert all(inner[name].equals(inner[f"{name}_whole"]) for name in columns)
    assert (frames[1]["start"] + frames[1]["drafted"]).max() <= 12
    with pytest.raises(TraceError, match="max_new_tokens must be from 1 to the trace's 20, not 21"):
        select(whole, [0], max_new_tokens=21)


def test_split_and_jobs(source, plan):
    held_out, calibration = split(np.arange(128), 24, 8)
    assert len(held_out) == 24 and len(calibration) == 8
    assert not set(held_out) & set(calibration)
    assert {i // 32 for i in held_out} == {i // 32 for i in calibration} == {0, 1, 2, 3}
    for numbers in ((5, 3, 3), (5, 1, 3), (5, 3, 0)):
        with pytest.raises(LiveError):
            split(np.arange(numbers[0]), *numbers[1:])
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
    log = run(source, plan, COST.times(source))
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
    assert trimmed_mean(values) == 1.0
    assert trimmed_mean(np.array([2.0, 4.0])) == 3.0
