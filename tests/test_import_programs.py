"""Logs of llama.cpp, OpenVINO and TensorRT-LLM, and of vLLM offline: real files, and their laws."""

import copy
import json
from pathlib import Path

import numpy as np
import pytest
from commands import refused, run
from test_import import written
from written_logs import FORMS, replayed, write

import simkit
import traces
from simkit.errors import ImporterError
from simkit.importers import llama_cpp, openvino, tensorrt_llm, vllm
from traces.validate import validate

FILES = Path(__file__).parent / "engine_files"
DRAFTED = [3, 3, 3, 3, 3, 3, 2, 1]  # of the first prompt, in both engines and in the replay
ACCEPTED = [2, 1, 3, 3, 3, 2, 0, 1]


def columns(trace):
    return [trace.column("log", name).tolist() for name in ("drafted", "accepted")]


@pytest.mark.parametrize("name", ["llama_cpp_stream", "llama_cpp_openai"])
def test_streams_of_llama_cpp_give_steps_and_times(name, tmp_path, capsys):
    """What `llama-server` wrote; the replay of the recorded pair has the same steps."""
    file, out = FILES / f"{name}.txt", tmp_path / "log"
    status, said, _ = run(capsys, "import", "llama.cpp", file, "--out", out)
    assert status == 0 and "with their times (live.parquet)" in said
    trace = traces.load(out)
    drafted, accepted = columns(trace)
    assert (drafted[:8], accepted[:8]) == (DRAFTED, ACCEPTED)
    assert trace.sequences["n_output"].to_pylist()[0] == 24
    assert trace.sequences["finish_reason"].to_pylist()[0] == "length"
    assert validate(out) == []
    theirs = simkit.replay("reference", "fixed(3)", first_token="prefill").steps()
    first = theirs.filter(theirs["sequence"] == 0)
    assert first["accepted"].to_list()[:6] == ACCEPTED[:6]
    rows = trace.extra("live.parquet").to_pylist()
    assert [row["kind"] for row in rows[:9]] == ["prefill"] + ["step"] * 8
    assert [row["start"] for row in rows[1:9]] == [2, 5, 7, 11, 15, 19, 22, 23]
    assert [row["depth"] for row in rows[1:9]] == DRAFTED
    if name == "llama_cpp_stream":
        assert rows[0]["seconds"] == pytest.approx(0.158518)
        assert sum(row["seconds"] for row in rows[1:9]) == pytest.approx(0.145307)


def test_openvinos_metrics_give_steps_and_the_times_of_passes(tmp_path):
    trace, notes = openvino.load(FILES / "openvino.jsonl")
    drafted, accepted = columns(trace)
    assert (drafted[:8], accepted[:8]) == (DRAFTED, ACCEPTED)
    assert notes == ["1 line is left out: no step behind the prompt's"]
    rows = trace.extra("live.parquet").to_pylist()
    of_first = [row for row in rows if row["sequence"] == 0]
    assert [row["kind"] for row in of_first[:6]] == ["prefill", *["draft"] * 3, "verify", "draft"]
    verified = [row for row in of_first if row["kind"] == "verify"]
    assert [row["tokens_in"] for row in verified] == [d + 1 for d in DRAFTED]
    assert verified[0]["seconds"] == pytest.approx(0.014473)
    assert [row["depth"] for row in of_first if row["kind"] == "draft"] == [
        depth for d in DRAFTED for depth in range(1, d + 1)
    ]


def test_both_engines_and_a_replay_agree():
    """The prompts that both were given, steps one for one."""
    ours, _ = llama_cpp.load(FILES / "llama_cpp_stream.txt")
    theirs, _ = openvino.load(FILES / "openvino.jsonl")
    n = ours.rows("log")
    assert ours.column("log", "accepted").tolist() == theirs.column("log", "accepted")[:n].tolist()


def lines_of(form, k=3, n=4):
    return [*replayed("reference", f"fixed({k})")[:n]]


def unsaid(name, n_prompt, n, drafted, accepted, end):
    """The same with a last step that locates no rejection, where the output ended by itself."""
    if end != "length":
        last = n - 1 - sum(a + 1 for a in accepted[:-1]) - 1
        drafted, accepted = [*drafted[:-1], last], [*accepted[:-1], last]
    return name, n_prompt, n, drafted, accepted, end


@pytest.mark.parametrize("form", sorted(FORMS))
def test_a_replay_in_each_form_comes_back(tmp_path, form):
    """Drafted and accepted tokens of each step, or their histogram, of replays with a length."""
    requests = lines_of(form)
    trace = FORMS[form][2](write(tmp_path / "log.jsonl", form, requests, 3), 3).trace
    drafted, accepted = columns(trace)
    ordered = form not in ("vllm summary", "sglang", "tensorrt-llm")
    if form in ("llama.cpp", "openvino"):  # whether the last token was drafted is not known there
        requests = [unsaid(*own) for own in requests]
    want = [a for own in requests for a in (own[4] if ordered else sorted(own[4]))]
    assert accepted == want
    if ordered:
        assert drafted == [d for own in requests for d in own[3]]
    assert trace.sequences["n_prompt"].to_pylist() == [own[1] for own in requests]
    assert (trace.extra("live.parquet") is not None) == (form in ("llama.cpp", "openvino"))


def chunks(change=lambda lines: None):
    """The first stream of llama.cpp, changed."""
    found = []
    for line in (FILES / "llama_cpp_stream.txt").read_text().splitlines():
        if line.startswith("data: {"):
            found.append(json.loads(line[6:]))
            if found[-1]["stop"]:
                break
    change(found)
    return found


@pytest.mark.parametrize(
    ("change", "what"),
    [
        (lambda c: c.pop(), "the stream breaks off before its end"),
        (lambda c: c[9]["timings"].update(draft_n=4), "draft_n falls in it"),
        (lambda c: c[9]["timings"].update(predicted_ms=1.0), "predicted_ms falls in it"),
        (lambda c: c[9]["timings"].update(predicted_ms="x"), "predicted_ms must be a time"),
        (lambda c: c[-1]["timings"].update(draft_n=10**12), "is 1000000000000, not from 0"),
        (lambda c: c[0]["timings"].pop("prompt_ms"), None),
        (lambda c: c[-1]["timings"].pop("prompt_ms"), "field prompt_ms is missing"),
        (lambda c: [x["timings"].update(predicted_n=30) for x in c[-2:]], "left out"),
    ],
)
def test_streams_that_contradict_themselves_are_refused(tmp_path, change, what):
    file = written(tmp_path, chunks(change))
    if what is None:
        assert llama_cpp.load(file).trace.n_sequences == 1
    elif what == "left out":  # two steps may be in one chunk, of which neither is known
        with pytest.raises(ImporterError, match="nothing was drafted in it"):
            llama_cpp.load(file)
    else:
        with pytest.raises(ImporterError, match=what):
            llama_cpp.load(file)


def test_a_usage_chunk_behind_the_end_is_no_stream(tmp_path):
    """OpenAI's routes send it last, without choices; builds differ in whether they do."""
    lines = (FILES / "llama_cpp_openai.txt").read_text().splitlines()
    streamed = [json.loads(line[6:]) for line in lines if line.startswith("data: {")]
    last = {**streamed[-1], "choices": []}
    trace = llama_cpp.load(written(tmp_path, [*streamed, last])).trace
    assert columns(trace) == [DRAFTED, ACCEPTED]
    other = copy.deepcopy(streamed[-2])
    other["timings"]["prompt_n"] += 1
    with pytest.raises(ImporterError, match="its chunks are of several prompts"):
        llama_cpp.load(written(tmp_path, [*streamed[:-1], other, streamed[-1]]))
    _, notes = llama_cpp.load(written(tmp_path, [{"stop": True}, *streamed]))
    assert notes == ["1 line is left out: no timings"]


def test_a_token_that_was_held_back_counts_where_it_was_decoded(tmp_path):
    """A chunk fewer: the token that ends inside a character comes with the next step's."""
    streamed = chunks()
    del streamed[4]  # the only chunk whose step emits tokens 5 and 6 alone keeps the other one
    trace = llama_cpp.load(written(tmp_path, streamed)).trace
    assert columns(trace) == [DRAFTED, ACCEPTED]


def test_an_answer_that_was_not_streamed_has_sums(tmp_path):
    timings = {"prompt_n": 5, "prompt_ms": 1.0, "predicted_n": 16, "predicted_ms": 50.0}
    line = {"stop": True, "stop_type": "limit"}
    line["timings"] = {**timings, "draft_n": 24, "draft_n_accepted": 7}
    file = written(tmp_path, [line])
    with pytest.raises(ImporterError, match="it has sums alone, 24 drafted and 7 accepted"):
        llama_cpp.load(file)
    trace, notes = llama_cpp.load(file, 3)
    assert trace.manifest.totals and columns(trace) == [[3] * 8, [0] + [1] * 7]
    assert any("the sums of each request alone" in note for note in notes)
    with pytest.raises(ImporterError, match="not all of its 8 steps drafted 4"):
        llama_cpp.load(file, 4)


LOG = """\
0.06.895.980 I slot print_timing: id  1 | task 0 | prompt eval time =     300.11 ms /    20 tokens
0.06.895.998 I slot print_timing: id  1 | task 0 |        eval time =    2296.72 ms /   256 tokens
0.06.896.015 I slot print_timing: id  1 | task 0 | draft acceptance = 0.64479 (  167 accepted /\
   259 generated), mean acceptance length =  2.92, acceptance rate per position =\
 (0.805, 0.632, 0.483)
"""


def test_the_servers_log_has_histograms(tmp_path):
    """The line of pull request 24536: 87 steps reach (70, 55, 42), one drafted two tokens less."""
    file = tmp_path / "server.log"
    file.write_text(LOG)
    trace, notes = llama_cpp.load(file)
    drafted, accepted = columns(trace)
    assert [accepted.count(a) for a in range(4)] == [17, 15, 13, 42]
    assert sum(drafted) == 259 and sum(accepted) == 167 and trace.manifest.unordered
    assert trace.sequences["n_output"].to_pylist() == [255]
    for a, b, what in (
        ("0.632", "0.732", "no number of steps gives these rates"),
        ("167 accepted", "168 accepted", "draft acceptance is 0.64479"),
        ("/   259", "/   200", "draft acceptance is 0.64479"),
        ("(0.805, 0.632, 0.483)", "()", "it has sums alone"),
    ):
        assert a in LOG
        file.write_text(LOG.replace(a, b))
        with pytest.raises(ImporterError, match=what):
            llama_cpp.load(file)


def call(change=lambda line: None):
    line = json.loads((FILES / "openvino.jsonl").read_text().splitlines()[0])
    change(line)
    return line


def raw(line, model="main"):
    return line["extended_perf_metrics"][f"{model}_model_metrics"]["raw_metrics"]


@pytest.mark.parametrize(
    ("change", "what"),
    [
        (lambda x: x.update(num_generated_tokens=23), "sum to 24, but num_generated_tokens is 23"),
        (lambda x: raw(x)["m_batch_sizes"].append(0), "is 0, not from 1"),
        (lambda x: raw(x)["m_durations"].pop(), "has 7 times for 8 steps"),
        (lambda x: raw(x).update(m_durations=[-1.0] * 9), "must be a time from 0 on"),
        (lambda x: raw(x).update(m_durations=[10**400] * 9), "must be a time from 0 on"),
        (lambda x: x["extended_perf_metrics"].update(num_draft_tokens=23), "is 23, not 21"),
        (lambda x: x["extended_perf_metrics"].update(num_accepted_tokens=15), "is 15, but its"),
        (lambda x: x.update(num_assistant_tokens=2), "num_draft_tokens is 20"),
        (lambda x: x.pop("num_assistant_tokens"), "give --draft-length K"),
        (lambda x: x["extended_perf_metrics"].pop("main_model_metrics"), "is missing"),
    ],
)
def test_metrics_that_contradict_themselves_are_refused(tmp_path, change, what):
    with pytest.raises(ImporterError, match=what):
        openvino.load(written(tmp_path, [call(change)]))


def test_openvinos_length_may_be_given_and_unknown_fields_are_named(tmp_path):
    line = call(lambda x: x.pop("num_assistant_tokens"))
    line["extended_perf_metrics"]["new_field"] = 1
    trace, notes = openvino.load(written(tmp_path, [line]), 3)
    assert columns(trace) == [DRAFTED, ACCEPTED]
    assert notes == ["the field new_field is not known: left alone"]


def test_what_openvino_does_not_say_of_the_last_draft_is_not_claimed(tmp_path):
    """Without the budget the last step locates no rejection: a longer draft is not excluded."""
    lines = (FILES / "openvino.jsonl").read_text().splitlines()
    third = json.loads(lines[2])
    drafted, accepted = columns(openvino.load(written(tmp_path, [third])).trace)
    assert drafted[-1] == accepted[-1] == 1
    third["max_new_tokens"] = 24
    assert columns(openvino.load(written(tmp_path, [third])).trace) == [drafted, accepted]
    third["max_new_tokens"] = 100
    assert columns(openvino.load(written(tmp_path, [third])).trace) == [drafted, accepted]


def performance(**more):
    """A line of TensorRT-LLM's performance log, as its writer has it."""
    counts = {"acceptance_rate": 0.5, "total_accepted_draft_tokens": 30, "total_draft_tokens": 60}
    metrics = {"speculative_decoding": {**counts, **more}, "first_iter": 4, "last_iter": 24}
    return {"request_id": 7, "perf_metrics": metrics, "status": "complete"}


def test_tensorrt_llms_performance_log_has_sums(tmp_path):
    file = written(tmp_path, [performance(), {"request_id": 8, "perf_metrics": {}}])
    with pytest.raises(ImporterError, match="give --draft-length K"):
        tensorrt_llm.load(file)
    trace, notes = tensorrt_llm.load(file, 3)
    assert trace.manifest.totals and trace.rows("log") == 20
    assert any("the output's length is not in the log" in note for note in notes)
    disaggregated = {"ctx_server": "a", "gen_perf_metrics": performance()}
    assert tensorrt_llm.load(written(tmp_path, [disaggregated]), 3).trace.rows("log") == 20
    for change, length, what in (
        ({"acceptance_rate": 0.6}, 3, "acceptance_rate is 0.6"),
        ({"total_draft_tokens": 61, "acceptance_rate": 30 / 61}, 3, "not all of its 20 steps"),
        ({"total_draft_tokens": -1}, 3, "is -1, not from 0"),
        ({}, 2, "do not fit into iterations 4 to 24"),
    ):
        with pytest.raises(ImporterError, match=what):
            tensorrt_llm.load(written(tmp_path, [performance(**change)]), length)


def choice(change=lambda line: None):
    """The example of pull requests 19311 and 1433 of AIPerf, with its usage."""
    counts = {"acceptance_rate": 0.5, "total_accepted_draft_tokens": 30, "total_draft_tokens": 60}
    counts |= {"num_spec_steps": 20, "acceptance_histogram": [8, 0, 6, 6], "num_spec_tokens": 3}
    own = {"index": 0, "finish_reason": "stop", "avg_decoded_tokens_per_iter": 2.5}
    line = {"id": "a", "choices": [{**own, "speculative_decoding": counts}]}
    line["usage"] = {"prompt_tokens": 9, "completion_tokens": 51, "total_tokens": 60}
    change(line)
    return line


def counts_of(line):
    return line["choices"][0]["speculative_decoding"]


def test_tensorrt_llms_responses_have_histograms(tmp_path):
    trace, notes = tensorrt_llm.load(written(tmp_path, [choice(), {"choices": [{}]}]))
    assert np.bincount(trace.column("log", "accepted")).tolist() == [8, 0, 6, 6]
    assert any("1 line is left out: no speculative_decoding" in note for note in notes)
    for change, what in (
        (lambda x: counts_of(x).update(num_spec_tokens=None), "not all steps drafted as much"),
        (lambda x: counts_of(x).update(acceptance_histogram=[7, 1, 6, 6]), "is 30, but its steps"),
        (lambda x: x["choices"][0].update(avg_decoded_tokens_per_iter=3.0), "is 3, but its counts"),
        (lambda x: x["usage"].update(completion_tokens=9, total_tokens=18), "is 9 tokens, but"),
        (lambda x: x["choices"].append({}), "usage is of 2 choices"),
        (lambda x: x["choices"][0].update(speculative_decoding=5), "must be an object"),
    ):
        with pytest.raises(ImporterError, match=what):
            tensorrt_llm.load(written(tmp_path, [choice(change)]))


def test_vllm_offline_may_have_the_servers_names_or_the_engines(tmp_path):
    engine = write(tmp_path / "a.jsonl", "vllm offline", lines_of("vllm offline"), 3)
    line = json.loads(engine.read_text().splitlines()[0])
    counts = line["spec_decode_metrics"]
    server = copy.deepcopy(line)
    for name in ("per_step_accepted", "per_step_drafted"):
        server["spec_decode_metrics"].pop(name)
        counts_alone = server["spec_decode_metrics"]
    counts_alone["num_draft_tokens"] = 3 * sum(counts["histogram"])
    assert vllm.load(written(tmp_path, [server])).trace.manifest.unordered
    line["spec_decode_metrics"]["num_draft_tokens"] += 1
    with pytest.raises(ImporterError, match="num_draft_tokens is"):
        vllm.load(written(tmp_path, [line]))
    line["spec_decode_metrics"] = None
    with pytest.raises(ImporterError, match="no line has"):
        vllm.load(written(tmp_path, [line]))


def test_a_log_with_times_is_copied_with_them_and_its_passes_are_costs(tmp_path, capsys):
    out = tmp_path / "log"
    file = FILES / "openvino.jsonl"
    assert run(capsys, "import", "openvino", file, "--out", out)[0] == 0
    from simkit.live import log

    table = log.read(out / "live.parquet")
    assert table.num_rows == traces.load(out).extra("live.parquet").num_rows
    assert set(table["policy"].to_pylist()) == {"logged"}
    (record,) = simkit.replay(out, "fixed(2)", str(out / "live.parquet")).records()
    assert 1 < record["speedup_any_lo"] < record["speedup_any_hi"]


@pytest.mark.parametrize("name", ["llama.cpp", "openvino", "tensorrt-llm"])
def test_files_that_hold_nothing_are_refused_in_a_line(tmp_path, capsys, name):
    for lines in ([], [{"id": 1}], ["[1]"]):
        refused(capsys, "import", name, written(tmp_path, lines), "--out", tmp_path / "log")
        assert not (tmp_path / "log").exists()
