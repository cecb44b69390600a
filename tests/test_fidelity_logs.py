"""What a log of a fidelity run may say: whose it is, what counts once, and what it concludes."""

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from commands import refused
from live_logs import COST, TESTED, judged, ruled, run

import simkit
from analysis.fidelity import BUNDLED
from simkit import costs, fidelity, policies
from simkit.errors import LiveError, PolicyError
from simkit.fidelity import comparison, logs, results
from simkit.fidelity.run import LivePlan, check_policies, split
from simkit.live.log import BASELINE
from simkit.live.settings import DecoderSettings
from simkit.live.summary import Sequences, drifts, free_speedup, losses, sequences
from traces import parquet, schema
from traces.sampler import Sampler
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


def test_a_log_says_what_its_plan_was(source, plan):
    log = run(source, plan, COST.times(source))
    assert logs.plan_of(log, source) == plan
    assert logs.first_token(log) == "draft"
    steps = logs.taken(log, plan)
    assert set(steps) == {(arm, n) for arm in plan.rules for n in (*plan.held_out, *ruled(plan))}
    sequence = log["sequence"].to_numpy()
    control, last = log["run"].to_numpy() == 5, max(plan.held_out)
    whole = logs.plan_of(log.filter(~(control & (sequence == last))), source)
    assert whole.held_out == plan.held_out[:-1] and whole.calibration == plan.calibration


def test_what_was_timed_is_not_tested_by_a_copy(source, plan):
    log, there = run(source, plan, COST.times(source)), select(source, range(30))
    number = np.arange(30)
    number[plan.held_out[2]] = plan.calibration[0]
    vars(there)["prompt_numbers"] = number
    found = logs.plan_of(log, there)
    assert found.held_out == (*plan.held_out[:2], *plan.held_out[3:])
    assert found.calibration == plan.calibration


@pytest.mark.parametrize(
    ("broken", "words"),
    [
        (lambda log, run, sequence: log.slice(0, 0), "some of its runs are missing"),
        (lambda log, run, sequence: log.filter(run != 0), "it has other runs"),
        (lambda log, run, sequence: log.filter(pc.field("kind") == "sequence"), "passes are need"),
        (lambda log, run, sequence: log.filter(run < 7), "it has other runs"),
        (lambda log, run, sequence: log.filter(run != 5), "it has other runs"),
        (lambda log, run, sequence: log.filter((run != 2) | (sequence < 1)), "broke off before"),
    ],
)
def test_a_log_of_something_else_is_refused(source, plan, broken, words):
    log = run(source, plan, COST.times(source))
    runs, sequence = log["run"].to_numpy(), log["sequence"].to_numpy()
    with pytest.raises(LiveError, match=words):
        logs.plan_of(broken(log, runs, sequence), source)


def test_a_log_of_another_trace_is_refused(source, plan, tmp_path):
    log = run(source, plan, COST.times(source))
    with pytest.raises(LiveError, match="another trace: this one has no sequence 2"):
        logs.plan_of(log, iid(20, 120, 0.7, max_draft=40, seed=3))
    changed = log.set_column(
        log.schema.get_field_index("tokens_in"),
        log.schema.field("tokens_in"),
        [np.where(log["kind"].to_numpy() == "prefill", 9, log["tokens_in"].to_numpy())],
    )
    with pytest.raises(LiveError, match="prompt of 1 token in the trace, but 9 in the log"):
        logs.plan_of(changed, source)
    sampled = log.replace_schema_metadata({"sampler": str(Sampler(temperature=1.0))})
    with pytest.raises(LiveError, match="its sampling settings differ"):
        logs.plan_of(sampled, source)
    with pytest.raises(LiveError, match="there is no log in it"):
        logs.read(tmp_path)


def test_a_log_that_is_not_there_or_not_whole(tmp_path):
    whole = tmp_path / "live.parquet"
    with pytest.raises(LiveError, match="live.parquet: no such file or folder$"):
        logs.read(whole)
    pq.write_table(schema.LIVE.empty_table(), whole)
    whole.write_bytes(whole.read_bytes()[:-9])
    with pytest.raises(LiveError, match="live.parquet: corrupt: "):
        logs.read(whole)


def test_logs_of_rounds_and_of_killed_runs_are_read(source, plan, tmp_path):
    log = run(source, plan, COST.times(source))
    for folder, name in (
        ("rounds", "live-{}.parquet"),
        ("killed", "live.parquet.parts/{}.parquet"),
    ):
        for number in range(2):
            file = tmp_path / folder / name.format(number)
            file.parent.mkdir(parents=True, exist_ok=True)
            pq.write_table(log.filter(log["round"].to_numpy() == number), file)
        assert logs.plan_of(logs.read(tmp_path / folder), source) == plan
    assert logs.read(tmp_path / "rounds/live-0.parquet")["round"].to_numpy().max() == 0
    other = log.replace_schema_metadata({"dtype": "float16", "device": "made up"})
    pq.write_table(other, tmp_path / "rounds/live-1.parquet")
    words = "live-0.parquet and live-1.parquet are of two runs: dtype is float32 in one and float16"
    with pytest.raises(LiveError, match=words):
        logs.read(tmp_path / "rounds")
    for name in ("live.parquet", "live.partial.parquet"):
        pq.write_table(log, tmp_path / "killed" / name)
        with pytest.raises(LiveError, match="which log.*live.parquet.parts/0.parquet are of diff"):
            logs.read(tmp_path / "killed")


def test_sittings_are_judged_together(source, plan, tmp_path):
    """Each numbers its rounds from 0 on: the log is that of a run of as many rounds."""
    whole = run(source, replace(plan, rounds=3), COST.times(source), noise=0.05)
    rounds = whole["round"].to_numpy()
    index, field = whole.schema.get_field_index("round"), whole.schema.field("round")
    for number, mine in ((1, rounds < 2), (2, rounds == 2)):
        sitting = whole.filter(mine)
        again = sitting.set_column(index, field, [rounds[mine] % 2])
        pq.write_table(again, tmp_path / f"live-{number}.parquet")
    together = logs.read(tmp_path)
    assert together.equals(whole, check_metadata=True)
    assert logs.plan_of(together, source).rounds == 3
    assert logs.plan_of(logs.read(tmp_path / "live-2.parquet"), source).rounds == 1
    other = replace(plan, policies=(*plan.policies[:-1], policies.parse("svip(h=0.9)")))
    pq.write_table(run(source, other, COST.times(source)), tmp_path / "live-3.parquet")
    with pytest.raises(LiveError, match="of runs that tested different policies"):
        logs.plan_of(logs.read(tmp_path), source)


def test_a_round_may_be_in_several_parts(source, plan, tmp_path):
    log, folder = run(source, plan, COST.times(source)), tmp_path / "live.parquet.parts"
    folder.mkdir()
    for number, at in enumerate(range(0, len(log), 5000)):
        pq.write_table(log.slice(at, 5000), folder / f"{number:05d}.parquet")
    assert logs.read(tmp_path).equals(log)


def test_a_sequence_of_one_step_after_a_prefill_that_emits(plan):
    """Its own row has step 1 and start 1, as a first step of a run without such a prefill."""
    source = iid(30, 8, 0.7, max_draft=8, seed=3)
    log = run(source, plan, COST.times(source), first=2)
    rows = log.filter((log["kind"].to_numpy() == "sequence") & (log["step"].to_numpy() == 1))
    assert set(rows["start"].to_pylist()) == {1}
    assert logs.first_token(log) == "prefill"
    assert fidelity.judge(source, log, n_refits=2).comparison.differing == 0


def test_judging_again_takes_no_option_for_running(tmp_path, capsys):
    options = ["--rounds", "3", "--dtype", "float32", "--threads", "1"]
    line = refused(capsys, "fidelity", "reference", "--from", tmp_path, *options)
    assert line == "simkit: --from runs nothing: leave out --rounds, --dtype, --threads"


def test_a_log_that_cannot_be_judged_is_named(tmp_path, capsys):
    """The bundled one, and one of `simkit live`."""
    bundled = BUNDLED / "live.parquet"
    log = pq.read_table(bundled)
    untested = parquet.sealed(log.filter(pc.field("run") < 2))
    pq.write_table(untested, tmp_path / "live.parquet")
    for folder, words in (
        (BUNDLED, "holds whole sequences only: passes are needed to judge it again"),
        (tmp_path, "not a log of simkit fidelity: some of its runs are missing"),
    ):
        given = "fidelity", "reference", "--from", folder, "-o", tmp_path / "out"
        assert refused(capsys, *given) == f"simkit: {folder / 'live.parquet'}: {words}"


def test_a_log_of_batches_is_no_cost(source, plan, tmp_path):
    """Its passes over one sequence are what is left of a batch."""
    log = run(source, plan, COST.times(source))
    index = log.schema.get_field_index("batch_size")
    sizes = np.where(log["round"].to_numpy() == 0, 3, 1).astype(np.int32)
    batches = log.set_column(index, log.schema.field(index), [sizes])
    pq.write_table(batches, tmp_path / "live.parquet")
    for size in (1, 3):
        cost = costs.Measured(file=str(tmp_path / "live.parquet"), batch_size=size)
        with pytest.raises(costs.CostError, match="the log has batches of up to 3"):
            cost.times(source)


def with_asked(log, seconds):
    """The log, in which each `limit` and `update` of the policy of a run takes so many seconds."""
    rows = []
    for row in log.to_pylist():
        spent = seconds.get(row["run"], 0.0)
        if spent and row["kind"] == "step" and row["step"]:
            name = (
                f"policy:{policies.parse(row['policy']).name}"
                if row["policy"] != "ladder"
                else "policy:ladder"
            )
            part = {**row, "kind": "policy", "component": name, "depth": 0, "seconds": spent}
            rows += [part, part]
            row = {**row, "seconds": row["seconds"] + 2 * spent}
        if spent and row["kind"] == "sequence":
            row = {**row, "seconds": row["seconds"] + 2 * spent * row["step"]}
        rows.append(row)
    return pa.Table.from_pylist(rows, schema=log.schema)


def test_limit_and_update_count_once(source, plan):
    """As overhead where the policy looks at no token, and no second time where it does."""
    log = run(source, plan, COST.times(source))
    slow = with_asked(log, dict.fromkeys(range(1, len(plan.arms)), 1e-4))
    found, samples, *_ = fidelity.judge(source, slow, n_refits=2)
    assert found.worst_error < 0.004
    seconds = {r["component"]: r["seconds"] for r in samples.to_pylist()}
    assert seconds["overhead"] == pytest.approx(4e-4, rel=0.02)
    assert seconds["policy:svip"] == pytest.approx(1e-4, rel=1e-6)
    slow = with_asked(log, {3: 2e-4} | dict.fromkeys(plan.passes[1:], 1e-4))  # svip's take longer
    samples = fidelity.judge(source, slow, n_refits=2).samples
    seconds = {r["component"]: r["seconds"] for r in samples.to_pylist()}
    rows = log.filter(
        (log["run"].to_numpy() == 3) & np.isin(log["sequence"].to_numpy(), [*ruled(plan)])
    )
    kind, step = np.array(rows["kind"].to_pylist()), rows["step"].to_numpy()
    steps, calls = np.sum((kind == "step") & (step > 0)), np.sum(kind == "policy")
    assert seconds["policy:svip"] == pytest.approx(1e-4 + 2e-4 * steps / calls, rel=1e-6)


def clocked(rng, n, n_arms):
    """Seconds of equal arms on n prompts, of which the first is the target alone."""
    seconds = rng.gamma(4, size=n) * np.exp(0.05 * rng.normal(size=(n_arms, n)))
    names = [BASELINE, *(f"fixed({k})" for k in range(1, n_arms - 1)), "fixed(1)"]
    return Sequences(np.arange(n_arms), names, np.arange(n), seconds, seconds, seconds)


@pytest.mark.parametrize("n", [5, 8, 20])
def test_equal_policies_are_seldom_told_apart(source, plan, n):
    """Nine of them make 36 pairs: one comparison in twenty may find any of these distinct.

    Of 60 comparisons, more than 9 would have probability 0.001.
    """
    nine = [policies.parse(f"fixed({k})") for k in range(10, 19)]
    replayed = simkit.replay(select(source, plan.held_out), nine, COST)
    rng, found = np.random.default_rng(n), 0
    for _ in range(60):
        seen = clocked(rng, n, 11)
        found += any(pair.distinct for pair in comparison.pairs_of(replayed, seen, drifts(seen)))
    assert found <= 9


def test_pairs_are_tested_together(source, plan):
    """The interval of each of six pairs is one of 1 - 0.05 / 6."""
    log = run(source, plan, COST.times(source), noise=0.05)
    found, seen = fidelity.judge(source, log, n_refits=2).comparison, sequences(log, plan.tested)
    held_out = sequences(log, plan.tested, np.array(plan.held_out))
    pair = next(p for p in found.pairs if {p.faster, p.slower} == {"fixed(1)", "fixed(5)"})
    rows = [held_out.names.index(name) for name in (pair.slower, pair.faster)]
    ends = held_out.interval(*rows, confidence=1 - 0.05 / 6)
    assert (pair.measured_lo, pair.measured_hi) == ends
    alone = seen.interval(*rows)
    assert ends[0] < alone[0] < alone[1] < ends[1]


def test_few_prompts_conclude_nothing(source, plan):
    few = judged(source, replace(plan, held_out=plan.held_out[:4])).comparison
    assert not few.conclusive and any("ran 4 prompts" in line for line in few.missed)
    five = judged(source, replace(plan, held_out=plan.held_out[:5])).comparison
    assert five.conclusive
    words = "only 5 prompts: the interval may be too narrow (held out)"
    assert words in results.verdict(five)
    two = judged(source, replace(plan, held_out=plan.held_out[:2])).comparison
    assert "2 prompts give no usable interval (held out)" in results.verdict(two)
    enough = judged(source, replace(plan, held_out=plan.held_out[:12])).comparison
    assert not any("too narrow" in line for line in results.verdict(enough))


def test_a_loss_is_named(source, plan):
    """On the clock without its own time, and in a replay."""
    slow = costs.Linear(draft_s=1e-3, target_s=8e-3, policy_s=8e-3)
    log = run(source, plan, slow.times(source))
    seen = sequences(log, plan.tested)
    rows = {name: row for row, name in enumerate(seen.names)}
    free = free_speedup(log, seen, rows["confidence(threshold=0.4)"])
    row = next(r for r in judged(source, plan).comparison.rows if r.policy.startswith("confidence"))
    assert (
        free > 1 > seen.speedup(rows["confidence(threshold=0.4)"])
        and row.measured_free > row.measured
    )
    expected = ["svip(h=0.4)", "confidence(threshold=0.4)"]
    assert losses(log, seen) == expected
    notes = simkit.replay(source, list(plan.policies), slow).notes
    losing = [
        f"{name} is slower than no speculation: its decisions cost more than they save"
        for name in expected
    ]
    assert [note for note in notes if "slower than no speculation" in note] == losing


def test_what_would_draft_nothing_or_was_fitted_is_not_tested(source):
    for first, budget in (("draft", 1), ("prefill", 2)):
        settings = DecoderSettings(max_new_tokens=budget, first_token=first)
        with pytest.raises(
            LiveError, match=f"must be at least {budget + 1}, or nothing is drafted"
        ):
            check_policies([policies.parse("fixed(1)")], source, settings, {})
    with pytest.raises(PolicyError, match="fits the cost, so it cannot be tested"):
        check_policies([policies.parse("fixed(2, max_draft=41)")], source, DecoderSettings(), {})
