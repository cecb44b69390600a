"""What is stored of the machine beside times, and what is said where they cannot be trusted."""

import json

import live_logs
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from replay_traces import build
from typer.testing import CliRunner

import simkit
from analysis.report import report
from simkit.cli import app
from simkit.costs import Linear
from simkit.costs.passes import rounds_apart
from simkit.fidelity.run import LivePlan
from simkit.policies import Fixed
from simkit.simulator.step_costs import PARTS
from simkit.statistics.interval import ratio_interval
from simkit.sweeps import tuning
from traces import schema
from traces.conditions import APART, CONTROL, Conditions, Watch, conditions
from traces.files import encode
from traces.synthetic import iid
from traces.trace import load
from traces.writer import add_file, save

DRAFT_S, TARGET_S = 1e-3, 5e-3
SIZES = (1, 2, 3, 5, 9)


def timed(rounds, noise, seed=0, apart=0.0):
    """Samples as of `simkit latency`, each with noise of its own, and the control so far apart."""
    rng = np.random.default_rng(seed)
    shapes = [("draft", 1, c, DRAFT_S) for c in (8, 40)]
    shapes += [("target", n, c, TARGET_S) for n in SIZES for c in (8, 40)]
    shapes += [(model, 8, 0, 1e-3) for model in ("draft", "target")]
    shapes += [(f"{CONTROL}target", 3, 8, TARGET_S * (1 + apart))]
    rows = [
        (name, n, c, 1, s * np.exp(rng.normal(0, noise)), "float32", "a core", "eager", k)
        for k in range(rounds)
        for name, n, c, s in shapes
    ]
    columns = zip(schema.LATENCY, zip(*rows, strict=True), strict=True)
    return pa.table([pa.array(v, f.type) for f, v in columns], schema=schema.LATENCY)


def trace_of(table, prompts=12):
    """Prompts that are all alike, so that nothing but the times is uncertain."""
    sequence = [(1, 1), (1, 1), (1, 2), (1, 1)] * 4
    return build([sequence] * prompts, t_max=16, max_draft=8, latency=table)


def test_conditions_survive_a_file(tmp_path):
    known = Conditions("target over 3 tokens", 0.02, 1.5, 0.7, 2)
    table = known.kept_in(timed(2, 0.0))
    (tmp_path / "a.parquet").write_bytes(encode(table)[0])
    assert conditions(pq.read_table(tmp_path / "a.parquet")) == known
    save(iid(4, 20, 0.7, max_draft=8, seed=1), tmp_path / "trace")
    add_file(tmp_path / "trace", "latency.parquet", table)
    samples = load(tmp_path / "trace").latency()
    assert samples is not None and conditions(samples) == known
    assert json.loads(samples.schema.metadata[b"conditions"])["others"] == 0.7


def test_of_older_samples_the_control_is_read_off_them():
    found = conditions(timed(3, 0.0, apart=4.26))
    assert found.apart == pytest.approx(4.26) and found.load is None
    assert "426% apart" in found.warning and "load not known" in found.warning
    bare = timed(3, 0.0).filter(pa.array([False] * 42 + [True] * 3))
    assert conditions(bare.slice(0, 0)) == Conditions()
    broken = timed(1, 0.0).replace_schema_metadata({b"conditions": b"{"})
    assert conditions(broken).apart == 0


@pytest.mark.parametrize(("apart", "loud"), [(APART, False), (APART + 0.01, True), (None, True)])
def test_above_5_percent_and_without_a_control_it_warns(apart, loud):
    found = Conditions("it", apart, 1.3, 0.2, 2)
    assert bool(found.warning) == loud and found.good == (not loud)
    assert "load 1.3 on 2 cores, others kept 0.2 cores busy" in str(found)


def test_a_watch_sees_the_machine():
    watch = Watch()
    sum(k * k for k in range(200_000))
    found = watch.conditions("it", 0.01)
    assert found.apart == 0.01 and found.cores
    assert found.load is None or found.load >= 0
    assert found.others is None or found.others >= 0


def test_a_warning_is_repeated_wherever_the_times_are_used(tmp_path):
    save(iid(12, 20, 0.7, max_draft=8, seed=1), tmp_path / "trace")
    add_file(tmp_path / "trace", "latency.parquet", timed(3, 0.01, apart=1.0))
    folder = str(tmp_path / "trace")
    words = "do not trust these times: target over 3 tokens behind 8"
    result = simkit.replay(folder, "fixed(2)")
    assert result.notes[0].startswith(words) and words in result._repr_html_()
    swept = simkit.sweep(folder, "fixed(1:3)")
    assert swept.notes[0].startswith(words) and words in swept._repr_html_()
    assert simkit.tune(folder, "fixed(1:3)").notes[0].startswith(words)
    page = report(load(folder), figures=False)
    assert any(line.startswith(f"D{words[1:]}") for line in page.caveats)
    said = CliRunner().invoke(app, ["info", folder])
    assert "target over 3 tokens behind 8: 9" in " ".join(said.output.split())


def test_tuning_says_that_its_intervals_leave_out_the_spread_of_the_times():
    known, alone = (
        simkit.tune(trace_of(timed(n, 0.3)), "fixed(1:3)", folds=2).notes for n in (5, 1)
    )
    assert tuning.PROMPTS_ALONE in known and tuning.PROMPTS_ALONE not in alone


def test_one_sample_a_shape_has_no_spread_and_it_is_said():
    result = simkit.replay(trace_of(timed(1, 0.3)), "fixed(2)")
    assert any(
        "intervals of speeds cover the spread over prompts only" in note for note in result.notes
    )
    (record,) = result.records()
    assert record["speedup_lo"] == record["speedup_hi"]
    assert result.runs[0].spread is None


def test_the_spread_of_times_is_in_the_interval():
    """Prompts are alike: with more noise times are known less well."""
    widths = []
    for noise in (0.02, 0.2):
        (record,) = simkit.replay(trace_of(timed(20, noise)), "fixed(2)").records()
        assert record["speedup_lo"] < record["speedup"] < record["speedup_hi"]
        widths.append(record["speedup_hi"] / record["speedup_lo"] - 1)
    assert 5 * widths[0] < widths[1] < 20 * widths[0]


@pytest.mark.parametrize("policy", ["fixed(2)", "confidence_adaptive", "rate_optimal"])
def test_the_spread_is_that_of_steps_under_each_draw(policy):
    """Also where a rule's state lasts the run, so that prompts cannot be replayed alone."""
    (run,) = simkit.replay("reference", policy).runs
    steps, _ = run.steps()
    priced = [
        sum(float(charge.of_steps(run.bound, steps)[part].sum()) for part in PARTS)
        for charge in (run.charge, *run.charge.drawn_anew)
    ]
    np.testing.assert_allclose(run.spread.total, np.array(priced[1:]) / priced[0], rtol=1e-9)


def test_comparisons_are_paired():
    """Two policies are priced by the same draws: of one and the same nothing is uncertain."""
    result = simkit.replay(trace_of(timed(9, 0.3)), ["fixed(2)", "fixed(3)"])
    same = result.compare("fixed(2)", "fixed(2)")
    assert (same.speedup_lo, same.speedup_hi) == pytest.approx((1, 1))
    near = result.compare("fixed(2)", "fixed(3)")
    alone = result.records()[0]
    width = alone["speedup_hi"] / alone["speedup_lo"] - 1
    assert near.speedup_hi / near.speedup_lo - 1 < 0.5 * width


def test_noisy_times_are_held_as_often_as_is_said():
    """Of 30 timings of one machine, 95% intervals hold its speedup in 24 at least (p = 6e-4)."""
    truth = simkit.replay(trace_of(timed(3, 0.0)), "fixed(4)").records()[0]["speedup"]
    held = 0
    for seed in range(30):
        (record,) = simkit.replay(trace_of(timed(12, 0.25, seed), 2), "fixed(4)").records()
        held += record["speedup_lo"] <= truth <= record["speedup_hi"]
    assert 24 <= held


@pytest.mark.parametrize("scatter", [0.02, 0.1, 0.4])
def test_prompts_and_times_together_are_held_as_often_as_is_said(scatter):
    """Of 300 95% intervals 285 are expected to hold the truth; fewer than 272 has p = 2e-4."""
    rng = np.random.default_rng(7)
    held = 0
    for seed in range(300):
        size = rng.gamma(4, size=24)
        observed = np.exp(rng.normal(0, scatter))
        factors = np.exp(rng.normal(0, scatter, 32))
        top = 2.0 * observed * size * rng.gamma(40, 1 / 40, size=24)
        low, high = ratio_interval(top, size, 0.95, seed, factors)
        held += low <= 2.0 <= high
    assert 272 <= held


def test_turns_by_steps_are_judged_by_how_arms_stand_to_each_other():
    """Drift slows all arms alike there; one arm slower in one round shows."""
    plan = LivePlan((Fixed(1),), (), tuple(range(8)), 2)
    times = Linear(draft_s=1e-3, target_s=1e-2)
    log = live_logs.run(iid(8, 40, 0.7, max_draft=40, seed=0), plan, times)
    log = log.filter(pc.field("run").isin(plan.passes))

    def apart(arms, turns="step"):
        number, run = log["round"].to_numpy(), log["run"].to_numpy()
        slow = np.where((number == 1) & np.isin(run, arms), 1.3, 1.0)
        at = log.schema.get_field_index("seconds")
        seconds = pa.array(log["seconds"].to_numpy() * slow)
        changed = log.set_column(at, log.schema.field(at), seconds)
        facts = {**log.schema.metadata, b"turns": turns.encode()}
        return rounds_apart(changed.replace_schema_metadata(facts), Conditions())

    everything = list(plan.passes)
    assert apart(everything).apart == pytest.approx(0)
    assert apart([0]).apart == pytest.approx(0.3)
    assert "(their seconds 30.0% apart): 0.0% apart" in str(apart(everything))
    assert apart(everything, "sequence").apart == pytest.approx(0.3)
    assert apart(everything[1:]).warning and not apart(everything).warning
