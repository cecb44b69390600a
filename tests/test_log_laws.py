"""The laws that every engine's log obeys: what contradicts them is refused, what is odd is told."""

import itertools
import json
from collections import Counter

import numpy as np
import pytest
from commands import run
from engine_logs import metrics, response, sglang_meta, vllm_log
from test_import import written
from test_import_logs import exported, meta

import simkit
import traces
from simkit.errors import ImporterError
from simkit.importers import aiperf, sglang, vllm
from simkit.statistics.survival import sum_bounds, sum_means

COST = "linear(draft_s=0.001, target_s=0.02)"


def aiperf_line(engine, drafted, accepted, n, detailed=False, **more):
    found = metrics(drafted, accepted, detailed=detailed)
    found["acceptance_histogram"] = {
        str(a): m for a, m in enumerate(found["acceptance_histogram"]) if m
    }
    line = exported()
    line["spec_decode_acceptance"] = {"engine": engine, "completion_tokens": n, **found, **more}
    return line


def load(engine, tmp_path, line):
    """One line of an engine's log, imported."""
    file = written(tmp_path, [line])
    if engine == "sglang":
        return sglang.load(file, 3)
    return {"vllm": vllm, "aiperf": aiperf}[engine].load(file)


def lines(n, drafted=(3, 3, 3), accepted=(0, 3, 2)):
    """The same steps and an output of n tokens, as each engine logs them."""
    histogram = [list(accepted).count(a) for a in range(4)]
    summary = response("a", 5, n, list(drafted), list(accepted), detailed=False)
    return {
        "vllm": [response("a", 5, n, list(drafted), list(accepted)), summary],
        "sglang": [{"meta_info": sglang_meta(histogram, 3, n)}],
        "aiperf": [
            aiperf_line("vllm", list(drafted), list(accepted), n, True),
            aiperf_line("tensorrt_llm", list(drafted), list(accepted), n),
        ],
    }


@pytest.mark.parametrize("n", [-1, 0, 1, 4, 5, 6, 7, 8, 9, 10])
@pytest.mark.parametrize("engine", ["vllm", "sglang", "aiperf"])
def test_an_output_ends_inside_its_last_step(tmp_path, engine, n):
    """Steps that accepted 0, 3 and 2 emit 9 tokens with the prefill's, 3 in the last one.

    Where their order is not known, the last one may be that which accepted 3.
    """
    for line in lines(n)[engine]:
        fields = line.get("metrics", {}).get("speculative_decoding") or line.get(
            "spec_decode_acceptance", {}
        )
        is_ordered = "per_step_accepted" in fields
        if n <= 9 - (3 if is_ordered else 4) or (engine == "sglang" and n > 9):
            with pytest.raises(ImporterError, match="completion_tokens"):
                load(engine, tmp_path, line)
            continue
        trace, notes = load(engine, tmp_path, line)
        assert trace.sequences["n_output"].to_pylist() == [min(n, 9)]
        assert any(" last step emitted: left out" in note for note in notes) == (n < 9)
        assert any("from steps without a draft" in note for note in notes) == (n > 9)


def test_twenty_one_tokens_are_not_eleven(tmp_path):
    line = {"meta_info": sglang_meta([4, 3, 2, 1], 3, 11)}
    with pytest.raises(ImporterError, match="is 11 tokens, but its 10 steps emit 21"):
        sglang.load(written(tmp_path, [line]), 3)
    line = {"meta_info": sglang_meta([4, 3, 2, 1], 3, 21)}
    assert sglang.load(written(tmp_path, [line]), 3).trace.sequences["n_output"].to_pylist() == [21]


def test_a_request_that_was_read_again_has_a_token_more_each_time(tmp_path):
    line = {"meta_info": sglang_meta([1, 1, 0, 1], 3, 9, total_retractions=1)}
    _, notes = sglang.load(written(tmp_path, [line]), 3)
    assert any("1 token came from steps without a draft" in note for note in notes)
    line["meta_info"].pop("total_retractions")
    with pytest.raises(ImporterError, match="is 9 tokens, but its 3 steps emit 8"):
        sglang.load(written(tmp_path, [line]), 3)


MEANS = [
    ("vllm", ("metrics", "speculative_decoding", "mean_acceptance_length"), 7 / 3),
    ("vllm", ("metrics", "speculative_decoding", "draft_acceptance_rate"), 4 / 6),
    ("aiperf", ("spec_decode_acceptance", "mean_acceptance_length"), 7 / 3),
    ("aiperf", ("spec_decode_acceptance", "draft_acceptance_rate"), 4 / 6),
    ("sglang", ("meta_info", "spec_accept_length"), 8 / 3),
    ("sglang", ("meta_info", "spec_accept_rate"), 4 / 9),
]


@pytest.mark.parametrize(("engine", "place", "right"), MEANS)
def test_means_are_compared_with_their_counts(tmp_path, engine, place, right):
    """Within the digits that were printed."""
    for value in (99, -3, right + 0.01, 1 - right, round(right + 0.001, 3), round(right, 3) + 1e-3):
        line = {"vllm": response("a", 5, 8, [3, 3, 0], [1, 3, 0]), "aiperf": exported()}.get(
            engine, {"meta_info": meta()}
        )
        inner = line
        for name in place[:-1]:
            inner = inner[name]
        inner[place[-1]] = value
        with pytest.raises(ImporterError, match=f"{place[-1]} is .*, but its counts give"):
            load(engine, tmp_path, line)
    for value in (right, round(right, 2), round(right, 4), float(np.float32(right))):
        inner[place[-1]] = value
        load(engine, tmp_path, line)


OLD = {
    "id": "b",
    "prompt_tokens": 171,
    "completion_tokens": 200,
    "spec_accept_rate": 11 / 940,
    "spec_accept_length": 200 / 188,
    "spec_verify_ct": 188,
    "spec_accept_token_num": 11,
    "spec_draft_token_num": 940,
    "spec_accept_histogram": [180, 5, 3],
}


@pytest.mark.parametrize(
    ("k", "said"),
    [
        (4, "fits --draft-length 4: 5 tokens a step with the root"),
        (5, "fits --draft-length 5: 5 tokens a step without the root"),
        (3, "not 564: not all steps drafted 3 tokens; it is 5 a step, or 4 with the root"),
        (6, "not 1128: not all steps drafted 6 tokens; it is 5 a step, or 4 with the root"),
    ],
)
def test_the_older_name_counts_the_root_or_not(tmp_path, k, said):
    """The figures are those that pull request 13754 shows; the histogram sums up to them."""
    file = written(tmp_path, [{"meta_info": OLD}])
    if k in (4, 5):
        trace, notes = sglang.load(file, k)
        assert any(said in note for note in notes)
        assert set(trace.column("log", "drafted").tolist()) == {k}
    else:
        with pytest.raises(ImporterError, match=said):
            sglang.load(file, k)


def test_one_file_has_one_convention(tmp_path):
    other = OLD | {"spec_draft_token_num": 188 * 4, "spec_accept_rate": 11 / 752}
    with pytest.raises(ImporterError, match="line 2: .*but not in all lines"):
        sglang.load(written(tmp_path, [{"meta_info": OLD}, {"meta_info": other}]), 4)
    newer = OLD | {"spec_proposed_drafts": 940}
    del newer["spec_draft_token_num"]
    with pytest.raises(ImporterError, match="spec_proposed_drafts is 940, not 752"):
        sglang.load(written(tmp_path, [{"meta_info": newer}]), 4)


NEW = {
    "spec_accept_rate": 4 / 9,
    "spec_accept_length": 8 / 3,
    "spec_cap_length": 4.0,
    "spec_block_accept_length": 2.5,
    "spec_num_correct_drafts": 4,
    "spec_num_proposed_drafts": 9,
    "spec_verify_ct": 3,
    "spec_correct_drafts_histogram": [1, 1, 0, 1],
    "spec_cap_lens_histogram": [0, 0, 0, 0, 3],
}
USAGE = {"prompt_tokens": 5, "completion_tokens": 8, "total_tokens": 13}


@pytest.mark.parametrize(
    "line",
    [
        {"meta_info": {**NEW, **USAGE}},
        {"choices": [{"index": 0, "meta_info": {**NEW, **USAGE}}]},
        {
            "choices": [{"index": 0, "finish_reason": "length"}],
            "usage": USAGE,
            "sglext": {"spec_tokens_details": NEW},
        },
        {"choices": [{"index": 0}], "usage": USAGE, "sglext": {"spec_tokens_details": [NEW]}},
        {"data": {"choices": [], "usage": USAGE, "sglext": {"spec_tokens_details": NEW}}},
        {"data": [{"meta_info": {**NEW, **USAGE}}]},
    ],
    ids=["generate", "choice", "sglext", "list", "data", "data-list"],
)
def test_newer_responses_of_sglang_are_read(tmp_path, line):
    trace, notes = sglang.load(written(tmp_path, [line]), 3)
    assert trace.column("log", "accepted").tolist() == [0, 1, 3]
    assert trace.column("log", "drafted").tolist() == [3, 3, 3]
    assert trace.sequences["n_prompt"].to_pylist() == [5]
    assert len(notes) == 1 and "order" in notes[0]


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"spec_cap_length": 3.0}, "spec_cap_length is 3, but its counts give 4"),
        ({"spec_cap_lens_histogram": [0, 0, 1, 0, 2]}, "spec_cap_length is 4, but its counts"),
        (
            {"spec_cap_lens_histogram": [0, 0, 1, 0, 2], "spec_cap_length": 10 / 3},
            "verified from 2 to 4 tokens",
        ),
        ({"spec_cap_lens_histogram": [0, 0, 0, 0, 2]}, "has 2 steps, spec_verify_ct 3"),
        ({"spec_block_accept_length": 4.5}, "spec_block_accept_length is 4.5, not up to 4"),
        ({"spec_cap_lens_histogram": "x"}, "must be a list"),
    ],
)
def test_caps_below_whole_drafts_are_refused(tmp_path, change, what):
    with pytest.raises(ImporterError, match=what):
        sglang.load(written(tmp_path, [{"meta_info": {**NEW, **USAGE, **change}}]), 3)


def test_tokens_of_several_choices_are_one_sum(tmp_path):
    line = {"choices": [{}, {}], "usage": USAGE, "sglext": {"spec_tokens_details": [NEW, NEW]}}
    with pytest.raises(ImporterError, match="tokens of several choices are one sum"):
        sglang.load(written(tmp_path, [line]), 3)


def test_what_is_not_known_is_named_once_and_left_alone(tmp_path):
    several = [{"meta_info": meta(id=k, spec_new=[1], spec_other=2)} for k in range(3)]
    trace, notes = sglang.load(written(tmp_path, several), 3)
    assert notes[-1] == "the fields spec_new, spec_other are not known: left alone"
    line = response("a", 5, 8, [3, 3, 0], [1, 3, 0])
    line["metrics"]["speculative_decoding"]["tree_width"] = 2
    assert vllm.load(written(tmp_path, [line])).notes == [
        "the field tree_width is not known: left alone"
    ]
    line["metrics"]["speculative_decoding"]["num_draft_tokens"] = 7
    with pytest.raises(ImporterError, match="num_draft_tokens is 7"):
        vllm.load(written(tmp_path, [line]))


def test_vllm_wrapped_in_data_is_read(tmp_path):
    line = response("a", 5, 8, [3, 3, 0], [1, 3, 0])
    empty = json.dumps({"id": "a", "choices": [{"index": 0}]})
    stream = tmp_path / "stream.jsonl"
    stream.write_text(f"data: {empty}\n\ndata: {json.dumps(line)}\n\ndata: [DONE]\n")
    for file in (written(tmp_path, [{"data": line}]), written(tmp_path, [{"data": [line]}])):
        assert vllm.load(file).trace.column("log", "accepted").tolist() == [1, 3, 0]
    trace, notes = vllm.load(stream)
    assert trace.column("log", "accepted").tolist() == [1, 3, 0]
    assert notes == ["1 line is left out: no metrics.speculative_decoding"]
    with pytest.raises(ImporterError, match=r"line 1: data\[0\] must be an object"):
        vllm.load(written(tmp_path, [{"data": [3]}]))


@pytest.mark.parametrize(
    ("reason", "step", "tokens"), [("stop", (3, 3), 4.0), ("length", (2, 2), 3.0)]
)
def test_tokens_behind_the_end_do_not_count(tmp_path, reason, step, tokens):
    """5 of 5 accepted and an output of 4: of the last step 3 tokens are in it.

    A replay's draft would end there, too: with the accepted EOS, whose step counts a + 1 = 4, or
    where the budget ends, with 2 tokens and the target's own.
    """
    both = [response("a", 5, 4, [5], [5], finish_reason=reason)]
    if reason == "length":
        line = {"meta_info": sglang_meta([0, 0, 0, 0, 0, 1], 5, 4, finish_reason={"type": reason})}
        logs = [vllm.load(written(tmp_path, both)), sglang.load(written(tmp_path, [line]), 5)]
    else:
        logs = [vllm.load(written(tmp_path, both))]
    for trace, notes in logs:
        assert any("1 output ends inside" in n and "left out 3 tokens behind" in n for n in notes)
        found = (trace.column("log", "drafted")[0], trace.column("log", "accepted")[0])
        assert found == step
        record = simkit.replay(trace, "fixed(5)").records()[0]
        assert record["tokens_per_step_any_hi"] == tokens
        assert [d["marginal_cut_lo"] for d in record["accepted_by_depth"]] == [
            1.0 if depth <= step[1] else 0.0 for depth in range(1, 6)
        ]


def test_an_engine_that_drafts_on_gives_the_log_of_one_that_does_not(tmp_path):
    """A replay's drafts end with the output; an engine's may go on, and tokens behind be accepted.

    Where a replay's last draft was accepted whole and ended the output, in an EOS or at the budget.
    """
    trace = traces.load("reference")
    file = vllm_log(trace, "fixed(5)", tmp_path / "replay.jsonl")
    ours = [json.loads(line) for line in file.read_text().splitlines()]
    theirs, changed = [], Counter()
    for k, line in enumerate(ours):
        own = line["metrics"]["speculative_decoding"]
        drafted, accepted = own["per_step_drafted"][:], own["per_step_accepted"][:]
        n, reason = line["usage"]["completion_tokens"], line["choices"][0]["finish_reason"]
        ends = 1 + sum(accepted) + len(accepted) > n or reason == "length"
        if ends and accepted[-1] == drafted[-1] < 5:
            accepted[-1] += 1 + k % (5 - drafted[-1])
            drafted[-1] = 5
            changed[reason] += 1
        theirs.append(response(line["id"], 5, n, drafted, accepted, k=5, finish_reason=reason))
    assert changed["stop"] and changed["length"]
    mine = vllm.load(file).trace
    found, notes = vllm.load(written(tmp_path, theirs))
    for name in ("drafted", "accepted"):
        assert found.column("log", name).tolist() == mine.column("log", name).tolist()
    n_output = mine.sequences["n_output"].to_pylist()
    assert found.sequences["n_output"].to_pylist() == n_output
    assert any("outputs end inside what their last step emitted" in note for note in notes)


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"engine": 5}, "engine must be text, not 5"),
        ({"engine": None}, "engine must be text, not null"),
        ({}, None),
        ({"engine": "vllm"}, None),
        ({"engine": "other"}, "the engine other is not known"),
    ],
)
def test_aiperf_names_its_engine(tmp_path, change, what):
    line = written(tmp_path, [exported(**change)])
    if what is None:
        assert aiperf.load(line).notes == []
    elif "must be" in what:
        with pytest.raises(ImporterError, match=what):
            aiperf.load(line)
    else:
        assert any(what in note for note in aiperf.load(line).notes)


def test_files_of_one_engine_and_records_with_one(tmp_path):
    line = exported()
    del line["spec_decode_acceptance"]["engine"]
    with pytest.raises(ImporterError, match="field engine is missing"):
        aiperf.load(written(tmp_path, [line]))
    both = [exported(), exported(engine="tensorrt_llm")]
    with pytest.raises(ImporterError, match="several engines: tensorrt_llm, vllm"):
        aiperf.load(written(tmp_path, both))


def test_aiperfs_own_metrics_repeat_the_counts(tmp_path):
    right = {
        "spec_decode_acceptance_length": 7 / 3,
        "spec_decode_draft_acceptance_rate": 400 / 6,
        "spec_decode_accepted_per_verified": 7 / 9,
        "spec_decode_steps": 3,
        "spec_decode_accepted_draft_tokens": 4,
        "spec_decode_draft_tokens": 6,
    }
    line = exported()
    line["metrics"] |= {name: {"value": value, "unit": ""} for name, value in right.items()}
    assert aiperf.load(written(tmp_path, [line])).notes == []
    for name, value in right.items():
        for wrong in (99, -3, value + 0.1):
            line["metrics"][name]["value"] = wrong
            with pytest.raises(ImporterError, match=f"metrics.{name}: value is "):
                aiperf.load(written(tmp_path, [line]))
        line["metrics"][name]["value"] = value


def test_a_dense_histogram_is_as_long_as_drafts(tmp_path):
    """vLLM's has an entry for each of 0 to num_spec_tokens."""
    line = response("a", 5, 8, [3, 3, 0], [1, 3, 0])
    line["metrics"]["speculative_decoding"]["acceptance_histogram"].append(0)
    with pytest.raises(ImporterError, match="has 5 entries, but num_spec_tokens is 3"):
        vllm.load(written(tmp_path, [line]))


def llama_cpp(k=3, **more):
    """20 tokens, 14 of them accepted: AIPerf makes 6 steps, the prefill's among them."""
    found = {
        "engine": "llamacpp",
        "completion_tokens": 20,
        "mean_acceptance_length": 1 + 14 / 6,
        "draft_acceptance_rate": 14 / 15,
        "acceptance_histogram": {"3": 2, "2": 4},
        "num_accepted_draft_tokens": 14,
        "num_draft_tokens": 15,
        "num_spec_steps": 6,
        "num_spec_tokens": k,
    }
    return exported() | {"spec_decode_acceptance": {**found, **more}}


@pytest.mark.parametrize("histogram", [{"3": 2, "2": 4}, None])
def test_sums_alone_give_bounds(tmp_path, capsys, histogram):
    """Where all steps drafted as much; the histogram is AIPerf's own and is not read."""
    more = {"completion_tokens": 17, "num_accepted_draft_tokens": 10, "num_spec_steps": 7}
    more |= {"num_draft_tokens": 24, "num_spec_tokens": 4, "mean_acceptance_length": 1 + 10 / 7}
    more |= {"draft_acceptance_rate": 10 / 24, "acceptance_histogram": histogram}
    file = written(tmp_path, [llama_cpp(**more)])
    assert run(capsys, "import", "aiperf", file, "--out", tmp_path / "log")[0] == 0
    trace = traces.load(tmp_path / "log")
    assert trace.manifest.totals and trace.manifest.unordered
    result = simkit.replay(trace, ["fixed(2)", "fixed(4)", "fixed(6)"], COST)
    assert any("the sums of each request alone" in note for note in result.notes)
    for record in result.records():
        assert record["tokens_per_step_band_lo"] is None and record["speedup_band_hi"] is None
        assert record["speedup_cut_lo"] <= record["speedup_cut_hi"]
    two, four, six = result.records()
    assert (two["tokens_per_step_cut_lo"], two["tokens_per_step_cut_hi"]) == (1 + 1, 1 + 10 / 6)
    assert four["tokens_per_step_cut_lo"] == four["tokens_per_step_cut_hi"] == 1 + 10 / 6
    assert six["tokens_per_step_cut_hi"] == pytest.approx(1 + (10 + 2 * 2) / 6)
    assert (
        "note: the sums of each request"
        in run(capsys, "replay", tmp_path / "log", "--policy", "fixed(2)")[2]
    )


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"num_spec_tokens": None}, "llama.cpp reports sums alone"),
        ({"num_spec_tokens": 4}, "llama.cpp reports sums alone"),
        ({"num_spec_steps": 5}, "num_spec_steps is 5, but 6 tokens came from no draft"),
        ({"mean_acceptance_length": 99}, "mean_acceptance_length is 99"),
        ({"completion_tokens": 21}, "num_spec_steps is 6, but 7 tokens"),
    ],
)
def test_sums_of_unequal_drafts_are_refused(tmp_path, change, what):
    with pytest.raises(ImporterError, match=what):
        aiperf.load(written(tmp_path, [llama_cpp(**change)]))


def test_bounds_of_sums_are_those_of_all_steps_that_fit():
    """Every way in which two requests' steps come to their sums."""
    drafted, sums, steps = 3, np.array([4, 2]), np.array([3, 2])
    ways = [
        [w for w in itertools.product(range(drafted + 1), repeat=n) if sum(w) == total]
        for total, n in zip(sums, steps, strict=True)
    ]
    every = [np.array(a + b) for a, b in itertools.product(*ways)]
    for k in (1, 2, 3, 5):
        cut = sum_bounds(sums, steps, drafted, k)
        for j in range(1, k + 1):
            shares = [np.mean(way >= j) for way in every]
            on = [np.mean(way >= min(j, drafted)) for way in every]  # whole drafts may go on
            assert cut.low[j - 1] == pytest.approx(min(shares))
            assert cut.high[j - 1] == pytest.approx(max(on))
        low, high = sum_means(sums, steps, drafted, k)
        means = [np.minimum(way, k).mean() for way in every]
        more = [
            (np.minimum(way, k) + (way == drafted) * max(0, k - drafted)).mean() for way in every
        ]
        assert (low, high) == (pytest.approx(min(means)), pytest.approx(max(more)))


RNG = np.random.default_rng(0)
SOUND = [
    (f"r{k}", [4] * 40, [min(4, int(x)) for x in RNG.geometric(0.3, 40) - 1]) for k in range(30)
]


def odd(change):
    """Thirty requests of forty steps, changed; every output ends with its last step."""
    made = [change(name, list(drafted), list(accepted)) for name, drafted, accepted in SOUND]
    return [response(name, 5, 1 + sum(a) + len(a), d, a, k=6) for name, d, a in made]


def zeros_at_the_end(name, d, a):
    return (name, d + [4] * 200, a + [0] * 200) if name == "r7" else (name, d, a)


def zeros_at_the_start(name, d, a):
    return name, d, [0, 0, *a[2:]]


def one_too_many(name, d, a):
    return name, [x + 1 for x in d], a


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda *row: row, None),
        (
            zeros_at_the_end,
            "the last 200 steps with a draft of 1 request accepted nothing (28% of the others)",
        ),
        (
            zeros_at_the_start,
            "the first 2 steps with a draft of 30 of 30 requests accepted nothing",
        ),
        (one_too_many, "none of the 290 steps that accepted 4 of 5 draft tokens accepted"),
    ],
)
def test_drafts_that_were_filled_in_are_told(tmp_path, capsys, change, said):
    """At the import, and beside every number that comes of it."""
    file = written(tmp_path, odd(change))
    status, _, err = run(capsys, "import", "vllm", file, "--out", tmp_path / "log")
    assert status == 0
    if said is None:
        assert err == ""
        return
    assert said in err
    replayed = run(capsys, "replay", tmp_path / "log", "--policy", "fixed(3)")[2]
    shown = run(capsys, "info", tmp_path / "log")[1]
    facts = json.loads(run(capsys, "info", tmp_path / "log", "--format", "json")[1])
    assert said in replayed and any(said in note for note in facts["source"]["notes"])
    assert " ".join(said.split()[:6]) in " ".join(shown.split())
    assert any(said in n for n in simkit.replay(traces.load(tmp_path / "log"), "fixed(3)").notes)


def test_a_token_too_many_a_step_is_refused_or_told(tmp_path):
    """Accepted counts that hold the target's own token: the steps outrun the output."""
    more = [min(6, x + 1) for x in SOUND[0][2]]
    line = response("a", 5, 1 + sum(more), [6] * 40, more)
    with pytest.raises(ImporterError, match="an output ends inside its last step"):
        vllm.load(written(tmp_path, [line]))
    short = [response(f"{k}", 5, 9, [4, 4], [4, 4]) for k in range(5)]
    _, notes = vllm.load(written(tmp_path, short))
    assert any("that counts the target's own token as accepted" in note for note in notes)


def test_an_untouched_log_has_no_notes_in_its_manifest(tmp_path):
    """Nor in its hash: those of before there were notes stay as they are."""
    trace, notes = vllm.load(written(tmp_path, [response("a", 5, 8, [3, 3, 0], [1, 3, 0])]))
    assert notes == [] and '"notes"' not in trace.manifest.to_json()
    assert '"totals"' not in trace.manifest.to_json()


def test_a_rate_beyond_all_floats_is_refused(tmp_path):
    line = aiperf_line("vllm", [3, 3], [0, 3], 9, draft_acceptance_rate=10**400)
    with pytest.raises(ImporterError, match="must be a finite number, not 1000"):
        load("aiperf", tmp_path, line)
