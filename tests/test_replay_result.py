"""`simkit.replay`, its result, and the command."""

import csv
import io
import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from commands import refused, run
from replay_traces import build, with_scores
from test_costs_models import samples

import simkit
from simkit import policies
from simkit.costs import Linear
from simkit.errors import ReplayError
from simkit.policies import PolicyError
from traces import scores
from traces.errors import TraceError
from traces.synthetic import iid
from traces.writer import save

COST = "linear(draft_s=0.002, target_s=0.03, policy_s=1e-5)"
FIELDS = (
    "policy steps drafted draft_passes proposed accepted emitted tokens_per_step accepted_per_step"
    " prefill_s draft_s verify_s policy_s overhead_s total_s baseline_s speedup speedup_lo"
    " speedup_hi"
).split()
KEYS = {
    "trace": [],
    "task": ["task"],
    "sequence": ["sequence"],
    "step": ["sequence", "step", "start", "draft_length"],
}
WHOLE = {"steps", "drafted", "draft_passes", "proposed", "accepted", "emitted", *KEYS["step"]}
TIMES = FIELDS[9:]


@pytest.fixture(scope="module")
def trace():
    return iid(12, 60, 0.7, max_draft=40, seed=2, eos_prob=0.01, tasks=("math", "chat"))


@pytest.fixture(scope="module")
def folder(trace, tmp_path_factory):
    path = tmp_path_factory.mktemp("replay") / "trace"
    save(trace, path)
    return str(path)


@pytest.mark.parametrize("by", KEYS)
def test_fields(trace, by):
    frame = simkit.replay(trace, ["fixed(5)", "svip"], COST, by=by).frame
    assert frame.columns == FIELDS + KEYS[by]
    for name, dtype in frame.schema.items():
        expected = pl.Int64 if name in WHOLE else pl.Float64
        assert dtype == (pl.String if name in ("policy", "task") else expected)
    assert frame["policy"].unique(maintain_order=True).to_list() == ["fixed(5)", "svip(h=0.4)"]
    tokens = frame["accepted"] / frame["steps"] + 1
    assert frame["tokens_per_step"].to_list() == pytest.approx(tokens.to_list())
    has_interval = by in ("trace", "task")
    assert frame["speedup_lo"].null_count() == (0 if has_interval else len(frame))
    if has_interval:
        assert (frame["speedup_lo"] < frame["speedup"]).all()
        assert (frame["speedup"] < frame["speedup_hi"]).all()


def test_rows_are_in_order(trace):
    frame = simkit.replay(trace, "fixed(5)", by="task").frame
    assert frame["task"].to_list() == ["math", "chat"]
    steps = simkit.replay(trace, "fixed(5)", by="step").frame
    assert steps["step"].to_list()[:3] == [1, 2, 3]
    assert steps.select("sequence", "start").equals(
        steps.select("sequence", "start").sort("sequence", "start")
    )
    assert steps["start"].to_list()[0] == 1
    assert (steps["draft_length"] == steps["proposed"]).all()


def test_without_costs_times_are_missing(trace):
    for by in KEYS:
        frame = simkit.replay(trace, "fixed(5)", by=by).frame
        assert frame.columns == FIELDS + KEYS[by]
        assert all(frame[name].null_count() == len(frame) for name in TIMES)
        assert all(frame.schema[name] == pl.Float64 for name in TIMES)


def test_a_trace_with_timings_is_charged_by_them():
    table = samples(
        ("draft", 1, 4, 0.5), ("target", 1, 4, 1.0), ("target", 3, 4, 1.0), ("overhead", 0, 0, 0.25)
    )
    trace = build([[(1, 1)] * 5] * 2, t_max=5, max_draft=5, latency=table)
    (record,) = simkit.replay(trace, "fixed(2)").records()
    assert record["draft_s"] == pytest.approx(2 * 0.5 * 3)  # drafts of 2 and of 1
    assert record["verify_s"] == pytest.approx(4.0)
    assert record["overhead_s"] == pytest.approx(1.0)
    assert record["speedup_lo"] == record["speedup_hi"] == pytest.approx(record["speedup"])


@pytest.mark.parametrize(("timed", "call_s"), [("pacer-small", 0.5), ("pacer", 0.5), ("other", 0)])
def test_a_head_that_was_not_timed_takes_as_long_as_its_policys_own(timed, call_s):
    passes = ("draft", 1, 4, 0.5), ("target", 1, 4, 1.0)
    table = samples(*passes, (f"head:{timed}", 1, 0, 0.5))
    trace = with_scores(build([[(1, 1)] * 5] * 2, t_max=5, max_draft=5, latency=table))
    trace = scores.attach(trace, "pacer-small", scores.load(trace, "pacer"))
    given = trace, "pacer(block=1, head=pacer-small)", "measured(policy_s=0)"
    result = simkit.replay(*given)
    (record,) = result.records()
    assert record["policy_s"] == pytest.approx(call_s * record["drafted"])
    for said in (result, simkit.sweep(*given), simkit.tune(*given, folds=2)):
        assert ("its calls are not charged" in " ".join(said.notes)) == (call_s == 0)


def test_few_prompts_are_named_below_the_table(folder, capsys):
    """From 12 on an interval covers what it says, docs/statistics.md."""
    tasks = ["a"] * 3 + ["b"] * 12 + ["c"] * 3 + ["d"]
    trace = iid(len(tasks), 20, 0.6, max_draft=40, seed=0, tasks=tasks)
    assert simkit.replay(trace, "fixed(2)", COST).notes == []
    assert simkit.replay(trace, "fixed(2)", by="task").notes == []
    assert simkit.replay(trace, "fixed(2)", COST, by="sequence").notes == []
    result = simkit.replay(trace, "fixed(2)", COST, by="task")
    said = "only 3 prompts: the interval may be too narrow (a, c); one prompt: no interval (d)"
    assert result.notes == [said]
    assert str(result).endswith(f"\nnote: {said}")
    assert result._repr_html_().endswith(f"<p>Note: {said}.</p>")


@pytest.mark.parametrize(("n", "weak"), [(2, True), (11, True), (12, False)])
def test_few_prompts_altogether(n, weak):
    trace = iid(n, 20, 0.6, max_draft=40, seed=0)
    two = "2 prompts give no usable interval"
    note = two if n == 2 else f"only {n} prompts: the interval may be too narrow"
    assert simkit.replay(trace, "fixed(2)", COST).notes == [note] * weak


def test_what_drafts_nothing_is_below_1_for_a_reason():
    """The loop around a step is not that around a token of the target alone, docs/costs.md."""
    trace = iid(12, 20, 0.6, max_draft=40, seed=0)
    specs = ["autoregressive", "fixed(0)", "fixed(2)"]
    slower = Linear(draft_s=1, target_s=8, overhead_s=0.5)
    result = simkit.replay(trace, specs, slower)
    (note,) = result.notes
    assert note.startswith("autoregressive(), fixed(0): the speedup is below 1 although nothing")
    assert [record["speedup"] < 1 for record in result.records()][:2] == [True, True]
    alike = Linear(draft_s=1, target_s=8, overhead_s=0.5, baseline_overhead_s=0.5)
    assert simkit.replay(trace, specs, alike).notes == []


def test_one_prompt_has_no_interval():
    trace = build([[(1, 1)] * 5], t_max=5, max_draft=5)
    (record,) = simkit.replay(trace, "fixed(2)", COST).records()
    assert record["speedup"] is not None
    assert record["speedup_lo"] is None
    assert record["speedup_hi"] is None


def test_a_sequence_that_the_prefill_ends():
    trace = build([[(1, 0)], [(1, 1)] * 4], t_max=4, max_draft=4)
    result = simkit.replay(trace, "fixed(2)", COST, by="sequence", first_token="prefill")
    first, second = result.records()
    assert (first["steps"], first["emitted"], first["tokens_per_step"]) == (0, 0, None)
    assert first["total_s"] == first["baseline_s"] == first["prefill_s"] == pytest.approx(0.03)
    assert second["emitted"] == 3
    assert simkit.replay(trace, "fixed(2)", by="step", first_token="prefill").frame[
        "start"
    ].to_list() == [2]


def test_policies_are_given_as_objects_specs_or_functions(trace):
    def unsure(depth, row):
        return row.draft_entropy > 0.16  # sqrt(0.16) = 0.4 in exact arithmetic

    given = [policies.SVIP(h=0.4), "svip(0.4)", unsure]
    frame = simkit.replay(trace, given, COST).frame
    assert frame["policy"].to_list() == ["svip(h=0.4)", "unsure"]
    assert frame["steps"].n_unique() == 1
    assert simkit.replay(trace, "fixed(5)").frame["policy"].to_list() == ["fixed(5)"]


def test_every_policy_has_a_name_of_its_own(trace):
    def rule(depth, row):
        return row.draft_entropy > 0.3

    first = rule
    twice = [rule, "fixed(3)", lambda depth, row: True, lambda depth, row: False, first, "fixed(3)"]
    result = simkit.replay(trace, twice, COST)
    names = ["rule", "fixed(3)", "<lambda>", "<lambda> (2)"]
    assert result.frame["policy"].to_list() == names
    assert result.frame["drafted"].n_unique() == 4
    assert result.compare("<lambda> (2)", "rule").a == "<lambda> (2)"
    assert len(result.steps("<lambda>")) == result.frame["steps"][2]

    class Mine(policies.Fixed):
        def limit(self, state, ahead):
            return 1

    with pytest.raises(ReplayError, match=r"two different policies are both called fixed\(3\)"):
        simkit.replay(trace, ["fixed(3)", Mine(3)])


def test_functions_of_one_name_are_told_apart_as_objects(trace):
    first, second = (
        simkit.policy(lambda depth, row, last=last: depth == last, columns=[]) for last in (1, 3)
    )
    found = simkit.replay(trace, [first, second], Linear(draft_s=1, target_s=6))
    assert found.find(first) is found.runs[0] and found.find(second) is found.runs[1]
    assert found.find("<lambda> (2)") is found.runs[1]
    other = simkit.policy(lambda depth, row: True, columns=[])
    with pytest.raises(ReplayError, match="<lambda> was not replayed; there is <lambda>, <lambda>"):
        found.find(other)
    assert found.steps(second).height == found.runs[1].counts["steps"].sum()


def test_a_trace_is_given_by_its_folder_or_name(folder, trace):
    expected = simkit.replay(trace, "fixed(3)", COST).frame
    assert simkit.replay(folder, "fixed(3)", COST).frame.equals(expected)
    assert simkit.replay(Path(folder), "fixed(3)", COST).frame.equals(expected)
    with pytest.raises(TraceError, match="nowhere: no such folder and no bundled trace"):
        simkit.replay("nowhere", "fixed(3)")


def test_bad_arguments(trace):
    for policy, message in ((3, "3 is no policy"), ([3], "3 is no policy")):
        with pytest.raises((PolicyError, TypeError), match=message if policy != 3 else None):
            simkit.replay(trace, policy)
    with pytest.raises(ReplayError, match="no policy to replay"):
        simkit.replay(trace, [])
    with pytest.raises(ReplayError, match="by must be one of trace, task, span, sequence, step"):
        simkit.replay(trace, "svip", by="prompt")
    with pytest.raises(ReplayError, match="first_token must be draft or prefill"):
        simkit.replay(trace, "svip", first_token="target")
    with pytest.raises(ReplayError, match="confidence must lie between 0 and 1"):
        simkit.replay(trace, "svip", confidence=95)


def test_a_column_that_is_missing_is_named(trace):
    policy = policies.from_function(lambda depth, row: True, columns=("draft_kurtosis",))
    with pytest.raises(TraceError, match="draft_kurtosis"):
        simkit.replay(trace, policy)


def test_compare(trace):
    oracle = policies.Oracle()
    result = simkit.replay(trace, [oracle, "fixed(5)"], COST)
    found = result.compare("oracle", "fixed(5)")
    totals = dict(zip(result.frame["policy"], result.frame["total_s"], strict=True))
    assert (found.a, found.b) == ("oracle()", "fixed(5)")
    assert found.speedup == pytest.approx(totals["fixed(5)"] / totals["oracle()"])
    assert 1 < found.speedup_lo < found.speedup < found.speedup_hi
    wide = result.frame["speedup_hi"] - result.frame["speedup_lo"]
    assert found.speedup_hi - found.speedup_lo < wide.max()  # paired
    same = result.compare(oracle, oracle)
    assert (same.speedup, same.speedup_lo, same.speedup_hi) == (1.0, 1.0, 1.0)
    with pytest.raises(
        ReplayError, match=r"svip\(h=0.4\) was not replayed; there is oracle\(\), fixed"
    ):
        result.compare("svip", "oracle")
    for unknown in ("my rule", "<lambda>", "svpi(h=1)", policies.Fixed(9)):
        with pytest.raises(ReplayError, match=f"{re.escape(str(unknown))} was not replayed"):
            result.steps(unknown)
    with pytest.raises(ReplayError, match="no times to compare"):
        simkit.replay(trace, ["oracle", "svip"]).compare("oracle", "svip")


def test_steps_of_a_result(trace):
    result = simkit.replay(trace, ["fixed(5)", "svip"], COST)
    frame = result.steps("svip")
    assert frame["policy"].unique().to_list() == ["svip(h=0.4)"]
    assert len(frame) == result.frame["steps"][1]
    assert len(result.steps()) == result.frame["steps"].sum()


def test_notebooks_see_a_table(trace):
    html = simkit.replay(trace, [lambda depth, row: True], COST)._repr_html_()
    assert html.startswith("<table>")
    assert "&lt;lambda&gt;" in html
    assert "speedup" in html
    assert "speedup" not in simkit.replay(trace, "fixed(5)")._repr_html_()


@pytest.mark.parametrize("by", KEYS)
def test_json(folder, trace, by, capsys):
    given = "--policy", "fixed(5)", "--policy", "svip(h=0.5)", "--by", by, "--cost", COST
    ended, out, err = run(capsys, "replay", folder, *given, "--format", "json")
    notes = ["note: time of rules: svip: given with the cost\n"]
    few = "note: only 6 prompts: the interval may be too narrow (math, chat)\n"
    notes += [few] * (by == "task")
    assert (ended, err) == (0, "".join(notes))
    records = json.loads(out)
    assert records == simkit.replay(trace, ["fixed(5)", "svip(h=0.5)"], COST, by=by).records()
    assert all(list(record) == FIELDS + KEYS[by] for record in records)


def test_json_has_null_for_what_is_missing(folder, capsys):
    (record,) = json.loads(
        run(capsys, "replay", folder, "--policy", "fixed(5)", "--format", "json")[1]
    )
    assert [record[name] for name in TIMES] == [None] * len(TIMES)


def test_csv(folder, trace, capsys):
    given = "--policy", "oracle", "--format", "csv", "--first-token", "prefill"
    rows = list(csv.DictReader(io.StringIO(run(capsys, "replay", folder, *given)[1])))
    expected = simkit.replay(trace, "oracle", first_token="prefill").records()[0]
    assert int(rows[0]["steps"]) == expected["steps"]
    assert rows[0]["speedup"] == ""


def test_table(folder, capsys):
    _, out, _ = run(capsys, "replay", folder, "--policy", "fixed(5)", "--cost", COST)
    assert "fixed(5)" in out
    assert "verify s" in out
    assert max(map(len, out.splitlines())) <= 200


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--policy", "svpi"], "simkit: unknown policy 'svpi' (did you mean svip?)"),
        (["--policy", "fixed(1:3)"], "simkit: fixed(1:3): 1:3 is a range; give one value here"),
        (["--policy", "svip", "--cost", "measured"], "has no timing samples"),
        (["--policy", "svip", "--cost", "lineal"], "did you mean linear?"),
        (
            ["--policy", "fixed(41, max_draft=41)"],
            "drafts in this trace have at most max_draft (Γ) = 40 tokens",
        ),
    ],
)
def test_bad_input_is_one_line_on_stderr(folder, arguments, message, capsys):
    assert message in refused(capsys, "replay", folder, *arguments)


def test_a_trace_of_no_sequences():
    trace = build([], t_max=4, max_draft=2)
    (record,) = simkit.replay(trace, "fixed(2)", COST).records()
    assert (record["steps"], record["tokens_per_step"], record["speedup"]) == (0, None, None)
    for by in ("task", "sequence", "step"):
        frame = simkit.replay(trace, "fixed(2)", COST, by=by).frame
        assert frame.columns == FIELDS + KEYS[by]
        assert len(frame) == 0


def test_policies_alone_need_few_imports():
    """They run beside models, where polars need not be, and decide without numba."""
    code = (
        "import sys, simkit; simkit.policies.parse('svip'); simkit.costs\n"
        "heavy = {'numba', 'polars', 'scipy', 'torch', 'matplotlib'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_replay_without_times_needs_few_imports(folder):
    """The command must start fast; polars and scipy.stats take a second between them."""
    code = (
        "import sys; from simkit.cli import main\n"
        f"try: main(['replay', {folder!r}, '--policy', 'fixed(5)', '--format', 'json'])\n"
        "except SystemExit: pass\n"
        "slow = {'polars', 'scipy.stats', 'torch', 'matplotlib', 'pandas'} & set(sys.modules)\n"
        "assert not slow, slow\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, stdout=subprocess.DEVNULL)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"seed": -1}, "seed must be at least 0, not -1"),
        ({"seed": 1.5}, "seed must be a whole number, not 1.5"),
        ({"seed": None}, "seed must be a whole number, not None"),
        ({"confidence": 1 - 2**-53}, "confidence must lie between 0 and 1"),
    ],
)
def test_seeds_and_confidence(trace, given, message):
    with pytest.raises(ReplayError, match=message):
        simkit.replay(trace, "fixed(1)", **given)
    with pytest.raises(ReplayError, match=message):
        simkit.sweep(trace, "fixed(1)", **given, intervals=True)
    simkit.replay(trace, "fixed(1)", confidence=np.float32(0.9), seed=np.int64(3))
