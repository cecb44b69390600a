"""Logs of engines: what they become, what is refused, and round trips with replays."""

import json
import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from commands import refused, run
from engine_logs import metrics, response, steps_of, vllm_log
from hypothesis import given, settings
from hypothesis import strategies as st
from test_import import written
from written_logs import FORMS

import simkit
import traces
from simkit import engines
from simkit.errors import ImporterError, ReplayError
from simkit.importers import aiperf, llama_cpp, sglang, vllm
from simkit.importers.steps import LoggedDrafts
from simkit.simulator.intervals import Intervals
from traces.drafters import log as log_kind
from traces.drafters.kind import Shard
from traces.errors import TraceError
from traces.memory import from_steps
from traces.rows import FileRows
from traces.synthetic import iid
from traces.validate import validate
from traces.writer import save

COST = "linear(draft_s=0.001, target_s=0.02)"


def good(n=3):
    """Responses of vLLM's: a rejection, a whole accepted draft, one cut by a grammar to nothing."""
    return [response(f"r{k}", 7 + k, 8, [3, 3, 0], [1, 3, 0]) for k in range(n)]


def broken(change):
    """One response whose object was changed."""
    line = good(1)[0]
    change(line["metrics"]["speculative_decoding"])
    return [line]


def meta(**more):
    """SGLang's `meta_info` of a server with three steps: 1, 3 and 0 accepted of 3."""
    return {
        "id": "a",
        "finish_reason": {"type": "length", "length": 8},
        "prompt_tokens": 5,
        "completion_tokens": 8,
        "spec_verify_ct": 3,
        "spec_num_correct_drafts": 4,
        "spec_num_proposed_drafts": 9,
        "spec_accept_rate": 4 / 9,
        "spec_accept_length": 8 / 3,
        "spec_correct_drafts_histogram": [1, 1, 0, 1],
        **more,
    }


def exported(phase="profiling", **more):
    """A line of AIPerf's `profile_export.jsonl`."""
    found = metrics([3, 3, 0], [1, 3, 0])
    found["acceptance_histogram"] = {
        str(a): n for a, n in enumerate(found["acceptance_histogram"]) if n
    }
    return {
        "metadata": {"session_num": 0, "x_request_id": "q", "benchmark_phase": phase},
        "metrics": {"input_sequence_length": {"value": 5, "unit": "tokens"}},
        "spec_decode_acceptance": {"engine": "vllm", "completion_tokens": 8, **found, **more},
        "error": None,
    }


def test_what_a_response_becomes(tmp_path):
    trace, notes = vllm.load(written(tmp_path, good()))
    assert notes == []
    assert (trace.manifest.kind, trace.max_draft, trace.n_positions) == ("log", 3, 24)
    assert trace.column("log", "drafted").tolist() == [3, 3, 0] * 3
    assert trace.column("log", "accepted").tolist() == [1, 3, 0] * 3
    assert trace.column("log", "step").tolist() == [1, 2, 3] * 3
    rows = trace.sequences.to_pylist()
    assert [row["n_prompt"] for row in rows] == [7, 8, 9]
    assert {row["n_output"] for row in rows} == {8}
    assert not trace.has_draft_model


def test_a_log_is_written_read_and_checked(tmp_path, capsys):
    file, out = written(tmp_path, good()), tmp_path / "log"
    status, said, err = run(capsys, "import", "vllm", file, "--out", out)
    assert (status, err) == (0, "")
    assert "3 requests, 9 steps; first rejections are located in 3 of them" in said
    assert run(capsys, "validate", out)[:2] == (
        0,
        "OK: 2 files, 3 sequences, 24 positions, 9 step rows\n",
    )
    status, said, _ = run(capsys, "info", out)
    assert status == 0 and "records.jsonl (sha256" in said and "intervals" in said
    assert not any(word in said for word in ("greedy", "sampler", "temperature"))


@pytest.mark.parametrize(
    ("rows", "what"),
    [
        ({"accepted": [1, 4, 0]}, "accepted is 4, drafted is 3"),
        ({"drafted": [3, -1, 0], "accepted": [1, -1, 0]}, "drafted is -1, Γ is 3"),
        ({"step": [1, 3, 2]}, "steps must be 1, 2, 3"),
        ({"n_output": 9}, "its steps emit 8, 1 of them in the last"),
        ({"n_output": 7}, "its steps emit 8, 1 of them in the last"),
    ],
)
def test_rows_that_contradict_each_other_are_found(tmp_path, rows, what):
    columns = {"step": [1, 2, 3], "drafted": [3, 3, 0], "accepted": [1, 3, 0]} | rows
    n_output = columns.pop("n_output", 8)
    counts = {name: np.array(values, np.int32) for name, values in columns.items()}
    source = vllm.load(written(tmp_path, good(1))).trace.manifest.source
    trace = from_steps({"n_output": [n_output]}, {"sequence": np.zeros(3, int), **counts}, source)
    header = replace(trace.manifest, max_draft=3)
    rows = FileRows(tmp_path, {"sequence": np.zeros(3, int), **counts})
    shard = Shard(tmp_path, header, trace.sequences, lambda *table: rows, lambda: 0)
    assert any(what in problem for problem in header.drafter.check_shard(shard))


def test_a_log_without_its_source_is_none():
    with pytest.raises(TraceError, match="must name the file"):
        from_steps({"n_output": [1]}, {"sequence": [], "drafted": [], "accepted": []}, None)


@pytest.mark.parametrize(
    ("change", "what"),
    [
        (lambda m: m.pop("num_spec_steps"), "field num_spec_steps is missing"),
        (lambda m: m.update(per_step_accepted=[1, 4, 0]), "[1] is 4, but 3 were drafted"),
        (lambda m: m.update(per_step_accepted=[1, 3]), "differ in length"),
        (lambda m: m.update(per_step_accepted=[1.5, 3, 0]), "must be a whole number, not 1.5"),
        (lambda m: m.update(per_step_drafted=[3, 3, -1]), "is -1, not from 0"),
        (lambda m: m.update(num_draft_tokens=7), "num_draft_tokens is 7, but its steps come to 6"),
        (lambda m: m.update(num_spec_tokens=2), "per_step_drafted is above num_spec_tokens, 2"),
        (lambda m: m.update(acceptance_histogram=[2, 0, 0, 1]), "contradicts per_step_accepted"),
        (lambda m: m.update(mean_acceptance_length=float("nan")), "must be a finite number"),
        (lambda m: m.pop("per_step_accepted"), "what each of them drafted is not known"),
    ],
)
def test_bad_counts_are_one_line_with_its_number(tmp_path, capsys, change, what):
    file = written(tmp_path, [*good(1), *broken(change)])
    line = refused(capsys, "import", "vllm", file, "--out", tmp_path / "log")
    assert f"{file}: line 2: metrics.speculative_decoding: " in line and what in line
    assert not (tmp_path / "log").exists()


@pytest.mark.parametrize(
    ("lines", "what"),
    [
        ([], "there is no record in it"),
        ([{"id": "a"}], "no line has metrics.speculative_decoding: start the server with"),
        (["[1]"], "not a JSON object"),
        (
            [{"choices": [{"speculative_decoding_stats": {}}]}],
            "speculative_decoding_stats is of no release",
        ),
        (
            [good(1)[0] | {"choices": [{"index": 0}, {"index": 1}]}],
            "line 1: metrics.speculative_decoding is of 2 choices: vLLM gives it for one only",
        ),
    ],
)
def test_files_that_hold_no_log_are_refused(tmp_path, capsys, lines, what):
    file = written(tmp_path, lines)
    assert what in refused(capsys, "import", "vllm", file, "--out", tmp_path / "log")


def test_where_the_output_ends_must_be_known(tmp_path):
    line = good(1)[0]
    del line["usage"]["completion_tokens"]
    with pytest.raises(ImporterError, match=r"usage.completion_tokens is missing"):
        vllm.load(written(tmp_path, [line]))


def test_requests_without_drafts_and_steps_without_any_are_counted(tmp_path):
    undrafted = {"id": "b", "metrics": {"speculative_decoding": None}}
    longer = response("c", 0, 12, [3], [2])  # eight tokens of steps that are not in the log
    trace, notes = vllm.load(written(tmp_path, [*good(1), undrafted, longer]))
    assert trace.n_sequences == 2
    assert any("8 tokens came from steps without a draft" in note for note in notes)
    assert any("1 line is left out: no metrics.speculative_decoding" in note for note in notes)
    assert any("length of some prompts" in note for note in notes)


def test_an_output_may_end_inside_its_last_step(tmp_path):
    """Cut by a budget or at a word: what the step emitted behind that is none of it."""
    whole, inside = (response(f"{n}", 5, n, [3, 3], [1, 3]) for n in (7, 5))
    trace, notes = vllm.load(written(tmp_path, [whole, inside]))
    assert trace.sequences["n_output"].to_pylist() == [7, 5]
    assert (
        len(notes) == 1
        and "1 output ends inside what its last step emitted: left out 2 tokens" in notes[0]
    )
    save(trace, tmp_path / "log")
    assert validate(tmp_path / "log") == []
    found = simkit.replay(trace, "fixed(3)").records()[0]
    assert found["tokens_per_step_any_lo"] <= found["tokens_per_step_any_hi"]


def test_a_summary_is_enough_where_all_steps_drafted_as_much(tmp_path):
    line = response("a", 5, 8, [3, 3, 3], [1, 3, 0])
    line["metrics"]["speculative_decoding"] = metrics([3, 3, 3], [1, 3, 0], detailed=False)
    trace, notes = vllm.load(written(tmp_path, [line]))
    assert trace.manifest.unordered and any("the order of steps" in note for note in notes)
    assert sorted(trace.column("log", "accepted").tolist()) == [0, 1, 3]


def test_sglang_tells_of_a_fixed_length_alone(tmp_path, capsys):
    file = written(tmp_path, [{"text": "x", "meta_info": meta()}])
    line = refused(capsys, "import", "sglang", file, "--out", tmp_path / "a")
    assert "give --draft-length K" in line
    arguments = ["--out", tmp_path / "b", "--draft-length", "3"]
    assert run(capsys, "import", "sglang", file, *arguments)[0] == 0
    trace = traces.load(tmp_path / "b")
    assert trace.column("log", "drafted").tolist() == [3, 3, 3]
    assert trace.sequences["finish_reason"].to_pylist() == ["length"]
    with pytest.raises(ImporterError, match="not all steps drafted 4 tokens"):
        sglang.load(file, 4)
    older = meta(spec_accept_histogram=[1, 1, 0, 1], spec_accepted_drafts=4)
    del older["spec_correct_drafts_histogram"], older["spec_num_correct_drafts"]
    again = sglang.load(written(tmp_path, [{"meta_info": older}]), 3).trace
    assert again.column("log", "accepted").tolist() == [0, 1, 3]


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"spec_correct_drafts_histogram": None}, "must be a list"),
        ({"spec_cap_lens_histogram": [1]}, "spec_cap_lens_histogram has 1 step,"),
        ({"spec_accept_histogram": [3]}, "contradicts spec_correct_drafts_histogram"),
        ({"spec_verify_ct": 4}, "its histogram has 3 steps"),
        ({"spec_accept_length": float("nan")}, "finite number"),
        ({"spec_num_correct_drafts": 5}, "spec_num_correct_drafts is 5, but its histogram"),
    ],
)
def test_bad_meta_info_is_refused(tmp_path, change, what):
    with pytest.raises(ImporterError, match=what):
        sglang.load(written(tmp_path, [{"meta_info": meta(**change)}]), 3)


def test_sglangs_sums_alone_are_refused(tmp_path):
    sums = {k: v for k, v in meta().items() if "histogram" not in k}
    with pytest.raises(ImporterError, match="sums alone do not say how deep"):
        sglang.load(written(tmp_path, [{"meta_info": sums}]), 3)


def test_aiperf_gives_what_vllm_gives(tmp_path):
    failed = exported() | {"error": {"message": "x"}}
    without = exported()
    del without["spec_decode_acceptance"]
    again = exported() | {"metadata": {"x_request_id": "r", "benchmark_phase": "profiling"}}
    lines = [exported(), exported("warmup"), failed, without, again]
    trace, notes = aiperf.load(written(tmp_path, lines))
    assert trace.column("log", "drafted").tolist() == [3, 3, 0] * 2
    assert trace.sequences["n_prompt"].to_pylist() == [5, 5]
    assert len(notes) == 3 and all("1 line is left out" in note for note in notes)
    assert aiperf.load(written(tmp_path, [exported(depth=2)])).notes == [
        "the field depth is not known: left alone"
    ]
    with pytest.raises(ImporterError, match="no line has spec_decode_acceptance"):
        aiperf.load(written(tmp_path, [without]))
    with pytest.raises(ImporterError, match="keys of acceptance_histogram must be whole"):
        aiperf.load(written(tmp_path, [exported(acceptance_histogram={"-1": 2})]))


VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 2**40),
    st.floats(),
    st.text(max_size=3),
    st.lists(st.integers(-2, 5), max_size=4),
    st.dictionaries(st.text(max_size=2), st.integers(), max_size=2),
)


def in_form(form):
    return FORMS[form][1]("r", 7, 11, [3] * 4, [1, 3, 0, 2], 3, "length")[-1]


LINES = {
    "vllm": lambda: good(1)[0],
    "vllm offline": lambda: in_form("vllm offline"),
    "sglang": lambda: {"meta_info": meta()},
    "aiperf": exported,
    "tensorrt-llm": lambda: in_form("tensorrt-llm"),
    "openvino": lambda: in_form("openvino"),
    "llama.cpp": lambda: in_form("llama.cpp") | {"id": None},
}


@settings(max_examples=300, deadline=None)
@given(st.data(), st.sampled_from(sorted(LINES)))
def test_a_line_with_anything_in_it_is_read_or_refused(data, engine):
    """Never anything but a complaint that names the line; what is read makes sense."""
    line = LINES[engine]()
    for _ in range(data.draw(st.integers(1, 2))):
        place = line
        while True:
            key = data.draw(st.sampled_from(sorted(place)))
            if not isinstance(place[key], dict) or not place[key] or data.draw(st.booleans()):
                break
            place = place[key]
        place[key] = data.draw(VALUES)
    with tempfile.TemporaryDirectory() as folder:
        file = written(Path(folder), [line])
        try:
            trace = llama_cpp.load(file, 3).trace if engine == "llama.cpp" else None
            trace = trace or FORMS[engine][2](file, 3).trace
        except ImporterError as error:
            assert str(error).startswith(file) and "\n" not in str(error)
            return
        drafted, accepted = trace.column("log", "drafted"), trace.column("log", "accepted")
        assert np.all((accepted >= 0) & (accepted <= drafted))
        save(trace, Path(folder) / "log")
        assert validate(Path(folder) / "log") == []
        if len(drafted):
            simkit.replay(trace, "fixed(2)").records()


@pytest.mark.parametrize("shared_path", [False, True])
@pytest.mark.parametrize("logged", ["fixed(2)", "fixed(5)", "svip(h=0.6)", "heuristic(initial=3)"])
def test_a_round_trip_holds_the_truth(tmp_path, logged, shared_path):
    """A draft model's verdicts do not depend on the start, which may be said or not."""
    trace = traces.load("reference")
    file = vllm_log(trace, logged, tmp_path / "log.jsonl")
    log = vllm.load(file, LoggedDrafts(shared_path)).trace
    some = np.isin(trace.sequences["sequence"].to_numpy(), [*steps_of(trace, logged)])
    for length in (0, 1, 3, 6):
        frame = simkit.replay(
            trace, f"fixed({length})", COST, by="sequence", first_token="prefill"
        ).frame.filter(some)
        record = simkit.replay(log, f"fixed({length})", COST).records()[0]
        tokens = 1 + frame["accepted"].sum() / frame["steps"].sum()
        speedup = frame["baseline_s"].sum() / frame["total_s"].sum()
        for name, truth in (("tokens_per_step", tokens), ("speedup", speedup)):
            assert record[f"{name}_any_lo"] - 1e-9 <= truth <= record[f"{name}_any_hi"] + 1e-9


def test_an_exported_length_comes_back_as_it_was_served(tmp_path):
    """Export, serve under what was written, import the log: the trace's own replay of it."""
    trace = traces.load("reference")
    config = json.loads(engines.export(trace, "vllm", cost=COST, first_token="prefill").text)
    policy = f"fixed({config['num_speculative_tokens']})"
    log = vllm.load(vllm_log(trace, policy, tmp_path / "log.jsonl")).trace
    (mine,) = simkit.replay(log, policy).records()
    (served,) = simkit.replay(trace, policy, first_token="prefill").records()
    for end in ("lo", "hi"):
        assert mine[f"tokens_per_step_any_{end}"] == pytest.approx(served["tokens_per_step"])
    low, high = (mine[f"tokens_per_step_band_{end}"] for end in ("lo", "hi"))
    assert low < served["tokens_per_step"] < high


def test_a_shared_path_says_more(tmp_path):
    file = vllm_log(traces.load("reference"), "fixed(5)", tmp_path / "log.jsonl")
    wide, narrow = (
        simkit.replay(vllm.load(file, LoggedDrafts(shared)).trace, "fixed(3)").records()[0]
        for shared in (False, True)
    )
    widths = [r["tokens_per_step_any_hi"] - r["tokens_per_step_any_lo"] for r in (wide, narrow)]
    assert widths[1] < widths[0] / 3


def test_with_independent_tokens_the_band_holds_the_truth(tmp_path):
    trace = iid(60, 120, 0.7, max_draft=8, seed=3)
    log = vllm.load(vllm_log(trace, "fixed(4)", tmp_path / "log.jsonl")).trace
    for length in (1, 2, 4):
        record = simkit.replay(log, f"fixed({length})").records()[0]
        truth = sum(0.7**j for j in range(length + 1))
        assert record["tokens_per_step_band_lo"] < truth < record["tokens_per_step_band_hi"]


def test_costs_know_how_many_passes_a_draft_takes(tmp_path, capsys):
    """With one a draft longer drafts cost no more passes, with none they are free."""
    file = vllm_log(iid(8, 40, 0.6, max_draft=6, seed=1), "fixed(4)", tmp_path / "log.jsonl")
    speeds = []
    for passes in ("token", "draft", "none"):
        out = tmp_path / passes
        assert run(capsys, "import", "vllm", file, "--out", out, "--passes", passes)[0] == 0
        record = simkit.replay(out, "fixed(4)", "linear(draft_s=0.01, target_s=0.02)").records()[0]
        speeds.append(record["speedup_any_hi"])
    assert speeds[0] < 0.8 * speeds[1] < 0.8 * speeds[2]
    line = refused(capsys, "import", "tokens", file, "--out", tmp_path / "x", "--passes", "none")
    assert "--passes are for vllm" in line


def log_folder(tmp_path, capsys):
    file = vllm_log(iid(8, 40, 0.6, max_draft=6, seed=1), "fixed(4)", tmp_path / "log.jsonl")
    assert run(capsys, "import", "vllm", file, "--out", tmp_path / "log")[0] == 0
    return tmp_path / "log"


def test_no_number_stands_alone(tmp_path, capsys):
    log = log_folder(tmp_path, capsys)
    arguments = ["--policy", "fixed(3)", "--policy", "autoregressive", "--cost", COST]
    status, said, err = run(capsys, "replay", log, *arguments, "--format", "json")
    assert status == 0
    first, second = json.loads(said)
    plain = {"policy", "requests", "logged_steps", "deepest_drafted", "accepted_by_depth"}
    assert all(name.endswith(("_lo", "_hi")) for name in first.keys() - plain)
    for depth in first["accepted_by_depth"]:
        assert all(name.endswith(("_lo", "_hi")) for name in depth.keys() - {"depth", "at_risk"})
    assert second["accepted_by_depth"] == [] and second["tokens_per_step_any_hi"] == 1
    for word in ("band: 95%", "cut: bounds for the logged starts", "any: bounds for these outputs"):
        assert word in err
    status, said, _ = run(capsys, "replay", log, *arguments)
    assert status == 0 and said.count("P(a ≥ ") == 3 and "speedup, any" in said
    status, said, _ = run(capsys, "replay", log, *arguments, "--format", "csv")
    lines = said.splitlines()
    assert status == 0 and len(lines) == 5 and lines[0].startswith("policy,requests,")
    result = simkit.replay(traces.load(log), "fixed(3)")
    assert isinstance(result, Intervals) and "tokens/step, band" in str(result)
    assert result.frame.height == 3 and "<table" in result._repr_html_()


@pytest.mark.parametrize(
    "arguments",
    [
        ("replay", "LOG", "--policy", "svip(h=0.4)"),
        ("replay", "LOG", "--policy", "prophet"),
        ("replay", "LOG", "--policy", "fixed(3)", "--by", "sequence"),
        ("sweep", "LOG", "--policy", "fixed(1:3)"),
        ("tune", "LOG", "--policy", "fixed(1:3)"),
        ("figures", "LOG", "--out", "OUT"),
        ("claims", "LOG"),
        ("report", "LOG", "-o", "OUT.html"),
        ("thin", "LOG", "-o", "OUT"),
        ("attach", "LOG", "--drafter", "prompt_lookup"),
        ("export", "LOG", "--engine", "vllm", "-o", "OUT"),
        ("serving", "LOG", "--controller", "static(3)", "--concurrency", "2"),
        ("compare", "LOG", "LOG"),
    ],
)
def test_what_a_log_cannot_give_is_refused_in_a_line(tmp_path, capsys, arguments):
    log = log_folder(tmp_path, capsys)
    places = {"LOG": log, "OUT": tmp_path / "out", "OUT.html": tmp_path / "out.html"}
    assert "log" in refused(capsys, *(places.get(word, word) for word in arguments))


def test_an_empty_log_has_nothing_to_replay(tmp_path):
    line = response("a", 1, 1, [], [])
    trace = vllm.load(written(tmp_path, [line])).trace
    with pytest.raises(ReplayError, match="no step"):
        simkit.replay(trace, "fixed(2)")
    assert "log of steps" in log_kind.REFUSED
