"""Sweeps: the numbers of a replay for every setting, however the work is split."""

import csv
import io
import json
import threading
from dataclasses import replace

import numpy as np
import polars as pl
import pyarrow.parquet as pq
import pytest
from commands import refused, run
from replay_traces import build, with_scores

import simkit
from simkit import policies
from simkit.drafters.layout import spans
from simkit.errors import PolicyError, ReplayError
from simkit.sweeps import engine
from traces.errors import TraceError
from traces.synthetic import iid
from traces.writer import save

COST = "linear(draft_s=0.002, target_s=0.03, target_per_token_s=1e-4, policy_s=1e-5)"
RANGES = ["fixed(0:12)", "svip(h=0.1:2:0.1)", "heuristic(initial=1:4, schedule=heuristic)"]


@pytest.fixture(scope="module")
def trace():
    tasks = ("math", "chat", "code")
    return iid(20, 60, 0.7, max_draft=60, seed=2, eos_prob=0.01, tasks=tasks)


@pytest.fixture(scope="module")
def folder(trace, tmp_path_factory):
    path = tmp_path_factory.mktemp("sweep") / "trace"
    save(trace, path)
    return str(path)


@pytest.fixture
def small_items(monkeypatch):
    """So small that a short trace gives many of them."""
    monkeypatch.setattr(engine, "SPAN", 100)
    monkeypatch.setattr(engine, "TOGETHER", 3)


@pytest.mark.parametrize("by", ["trace", "task"])
@pytest.mark.parametrize("spec", policies.chains())
def test_every_policy_gives_the_numbers_of_its_replay(trace, spec, by, small_items):
    trace = with_scores(trace)
    expected = simkit.replay(trace, spec, COST, by=by, first_token="prefill").frame
    found = simkit.sweep(
        trace, spec, COST, by=by, first_token="prefill", workers=3, intervals=True
    ).frame
    assert found.select(expected.columns).equals(expected)


@pytest.mark.parametrize("threads", [1, 2, 5])
@pytest.mark.parametrize("by", ["trace", "task"])
def test_the_work_is_split_without_a_trace_of_it(trace, by, threads, small_items):
    given = [*RANGES, lambda depth, row: row.draft_entropy > 0.3, "fixed(5)"]
    done = []
    sweep = simkit.sweep(
        trace, given, COST, by=by, workers=threads, progress=lambda *n: done.append(n)
    )
    frame = simkit.replay(trace, sweep.policies, COST, by=by).frame
    frame = frame.with_columns(pl.lit(None, pl.Float64).alias(f"speedup_{e}") for e in ("lo", "hi"))
    assert sweep.frame.select(frame.columns).equals(frame)
    assert done[-1] == (len(sweep.policies), len(sweep.policies)) == (38, 38)


def test_parallel_policies_are_shared_out_too(trace, small_items):
    sweep = simkit.sweep(trace, "pearl(1:8)", COST, workers=2)
    alone = pl.concat(simkit.replay(trace, f"pearl({n})", COST).frame for n in range(1, 9))
    columns = [name for name in alone.columns if name not in ("speedup_lo", "speedup_hi")]
    assert sweep.frame.select(columns).equals(alone.select(columns))


def test_one_thread_makes_what_is_shared(trace, monkeypatch):
    """Before the pool is asked: each loop is called once, over no sequence."""
    made, whole = [], engine.total

    def total(policy, setting, span=None):
        if span == (0, 0):
            made.append((type(policy).name, threading.current_thread()))
        return whole(policy, setting, span)

    monkeypatch.setattr(engine, "total", total)
    simkit.sweep(trace, ["pearl(1:3)", "fixed(1:3)", "svip(h=1)", "pearl(4)"], COST, workers=2)
    here = threading.current_thread()
    assert made == [("pearl", here), ("fixed", here), ("svip", here)]


def test_arguments_are_columns(trace):
    frame = simkit.sweep(trace, ["fixed(1:2)", "svip(h=0.5:1:0.5)", "pearl(window=3)"]).frame
    assert frame["family"].to_list() == ["fixed", "fixed", "svip", "svip", "pearl"]
    assert frame["length"].to_list() == [1, 2, None, None, None]
    assert frame["h"].to_list() == [None, None, 0.5, 1.0, None]
    assert frame["max_draft"].to_list() == [40] * 5
    assert frame["colocated"].to_list() == [None] * 4 + [False]
    kinds = {name: frame.schema[name] for name in ("length", "h", "colocated")}
    assert kinds == {"length": pl.Int64, "h": pl.Float64, "colocated": pl.Boolean}
    mixed = with_scores(trace)
    frame = simkit.sweep(mixed, ["acceptance_head(h=0.9)", "acceptance_head(h=cost)"], COST).frame
    assert frame["h"].to_list() == ["0.9", "cost"]


def test_settings_that_occur_twice_count_once(trace):
    sweep = simkit.sweep(trace, ["fixed(1:3)", "fixed(2:4)", policies.Fixed(4)])
    assert sweep.frame["policy"].to_list() == [f"fixed({n})" for n in (1, 2, 3, 4)]


def test_the_best_setting(trace):
    sweep = simkit.sweep(trace, RANGES, COST)
    fastest = sweep.frame["speedup"].max()
    assert sweep.best()["speedup"].to_list() == [fastest]
    assert sweep.best(3)["speedup"].is_sorted(descending=True)
    by_task = simkit.sweep(trace, RANGES, COST, by="task")
    best = by_task.best(2)
    assert sorted(best["task"]) == sorted(["math", "chat", "code"] * 2)
    for task, group in best.group_by("task"):
        rows = by_task.frame.filter(pl.col("task") == task[0])
        assert group["speedup"].max() == rows["speedup"].max()
    with pytest.raises(ReplayError, match="there are no times to choose by"):
        simkit.sweep(trace, RANGES).best()


def test_a_trace_of_no_sequences():
    trace = build([], t_max=4, max_draft=2)
    assert len(simkit.sweep(trace, "fixed(1:2)", COST).frame) == 2
    assert len(simkit.sweep(trace, "fixed(1:2)", COST, by="task").frame) == 0


def test_an_error_names_the_setting():
    trace = build([[(1, 2)] * 9] * 2, t_max=9, max_draft=4)
    with pytest.raises(ReplayError, match=r"^fixed\(5\): sequence 0, position 1: depth 5 was not"):
        simkit.sweep(trace, "fixed(1:8)", workers=2)


@pytest.mark.parametrize("asked", [simkit.replay, simkit.sweep])
@pytest.mark.parametrize(
    "spec", ["svip(h=3)", "heuristic(initial=9, max_draft=20)", "confidence(threshold=0)"]
)
def test_a_draft_that_is_too_deep_is_told_what_to_write(asked, spec):
    trace = iid(6, 40, 0.5, max_draft=5, seed=2)
    policy = policies.parse(spec)
    with pytest.raises(ReplayError) as caught:
        asked(trace, spec, COST)
    message = str(caught.value)
    assert message.startswith(f"{policy}: sequence 0, position ")
    written = message.split("; write ")[1]
    assert policies.parse(written) == replace(policy, max_draft=5)
    asked(trace, written, COST)


@pytest.mark.parametrize("asked", [simkit.replay, simkit.sweep])
def test_a_draft_that_is_too_deep_by_another_argument_has_no_remedy(asked):
    trace = iid(6, 40, 0.5, max_draft=5, seed=2)
    end = r"drafts in this trace have at most max_draft \(Γ\) = 5 tokens$"
    for spec in ("fixed(9)", "fixed(60, max_draft=60)", "pearl(9)"):
        with pytest.raises(ReplayError, match=end):
            asked(trace, spec, COST)


def test_a_function_that_drafts_too_deep_is_given_a_bound():
    trace = iid(6, 40, 0.5, max_draft=5, seed=2)
    with pytest.raises(ReplayError, match=r"^never: .*; give it max_draft=5$"):
        simkit.replay(trace, policies.from_function(lambda depth, row: False, name="never"))


def test_bad_arguments(trace):
    for given, message in (
        ({"by": "step"}, "by must be trace or task, not 'step'"),
        ({"workers": 0}, "workers must be at least 1, not 0"),
        ({"first_token": "x"}, "first_token must be"),
        ({"confidence": 2}, "confidence must lie"),
    ):
        with pytest.raises(ReplayError, match=message):
            simkit.sweep(trace, "fixed(1:2)", **given)
    with pytest.raises(ReplayError, match="no policy to replay"):
        simkit.sweep(trace, [])
    with pytest.raises(PolicyError, match="more than 100000 settings: 120002"):
        simkit.sweep(trace, ["svip(h=0:6:0.0001)", "svip(h=7:13:0.0001)"])


def test_parquet_says_what_the_numbers_hold_for(trace, folder, tmp_path):
    sweep = simkit.sweep(folder, "fixed(1:3)", COST, by="task")
    sweep.save(tmp_path / "x.parquet")
    table = pq.read_table(tmp_path / "x.parquet")
    assert pl.DataFrame(table).equals(sweep.frame)
    facts = json.loads(table.schema.metadata[b"simkit"])
    assert facts["cost"] == COST
    assert (facts["first_token"], facts["by"]) == ("draft", "task")
    assert len(facts["hash"]) == 64
    with pytest.raises(TraceError, match="cannot be written"):
        sweep.save("/proc/x.parquet")


def test_the_command(folder, trace, tmp_path, capsys):
    given = [folder, "--policy", "fixed(1:3)", "--policy", "svip", "--cost", COST, "--by", "task"]
    expected = simkit.sweep(trace, ["fixed(1:3)", "svip"], COST, by="task")
    timed = "note: time of rules: svip: given with the cost\n"
    status, out, err = run(
        capsys, "sweep", *given, "--format", "json", "-o", tmp_path / "x.parquet"
    )
    assert (status, err) == (0, timed)
    assert json.loads(out) == expected.records()
    assert pl.read_parquet(tmp_path / "x.parquet").equals(expected.frame)
    rows = list(csv.DictReader(io.StringIO(run(capsys, "sweep", *given, "--format", "csv")[1])))
    assert [row["policy"] for row in rows] == expected.frame["policy"].to_list()
    assert rows[0]["h"] == rows[0]["speedup_lo"] == ""
    status, out, err = run(capsys, "sweep", *given, "--intervals", "--confidence", "0.9")
    assert (status, err) == (0, timed)
    assert out.count("fixed(2)") == 3
    assert "[" in out


def test_a_long_table_shows_the_fastest(folder, capsys):
    status, out, err = run(capsys, "sweep", folder, "--policy", "svip(h=0.1:5:0.1)", "--cost", COST)
    rows = out.rsplit("\n\n", 1)[0]  # the answer stands behind them
    assert (status, rows.count("svip")) == (0, 10)
    assert err.startswith("50 settings; these are the fastest")
    status, out, err = run(capsys, "sweep", folder, "--policy", "svip(h=0.1:5:0.1)")
    assert (status, out.count("svip"), err) == (0, 50, "")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--policy", "fixed(5:1)"], "the range 5:1 is empty"),
        (["--policy", "svip(h=0:1:0.00001)"], "means 100,001 policies, more than 100000"),
        (["--policy", "svip(h=0:1e12:1e-12)"], "means 1,000,000,000,000,000,000,000,001 policies"),
        (["--policy", "svip(h=0:1e999999999)"], "numbers that are too large or too close"),
        (["--policy", "svip(h=0:1:1e-9999999999999999999)"], "too large or too close"),
        (["--policy", "svpi(h=0:1:0.1)"], "unknown policy 'svpi'"),
        (["--policy", "fixed(-1:2)"], "length must be a whole number >= 0, not -1"),
        (["--policy", "svip", "--cost", "lineal"], "did you mean linear?"),
        (["--policy", "svip", "--workers", "0"], "workers must be at least 1"),
        (["--policy", "svip", "--confidence", "0.9"], "--confidence needs --intervals"),
        ([], "Missing option '--policy'"),
    ],
)
def test_bad_input_is_one_line(folder, arguments, message, capsys):
    assert message in refused(capsys, "sweep", folder, *arguments)


@pytest.mark.parametrize("name", ["sweep", "claims", "compare", "report"])
@pytest.mark.parametrize(
    ("out", "words"),
    [
        ("{}", "--out {}: is a folder"),
        ("{}/none/x.html", "--out {0}/none/x.html: no such folder: {0}/none"),
        ("/proc/x.html", "--out /proc/x.html: cannot be written: No such file or directory"),
    ],
)
def test_commands_say_alike_that_a_file_cannot_be_written(
    folder, name, out, words, tmp_path, capsys
):
    given = ["--policy", "svip"] if name == "sweep" else []
    line = refused(capsys, name, folder, *given, "-o", out.format(tmp_path))
    assert line == f"simkit: {words.format(tmp_path)}"
    assert not list(tmp_path.iterdir())


def test_spans_cover_all_sequences_once():
    for lengths in ([], [5], [1] * 10, [1, 70_000, 1, 200_000, 5], [engine.SPAN] * 3):
        offsets = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])
        cuts = spans(offsets, engine.SPAN)
        covered = [s for low, high in cuts for s in range(low, high)]
        assert covered == list(range(len(lengths)))
