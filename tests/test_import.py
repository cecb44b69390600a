"""Other programs' files: what they become, against those programs' own arithmetic."""

import hashlib
import json
import os
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pyarrow.parquet as pq
import pytest
from commands import refused, run

import simkit
import traces
from analysis.report import report
from benchmarks.peers import (
    BATCHES,
    COST,
    GSM8K_SHA256,
    PRINTED,
    printed_of,
    served_ratios,
    setting_s,
    throughput_ratio,
)
from simkit import costs
from simkit.errors import ImporterError
from simkit.importers import spec_bench, specdecode_bench
from traces.errors import UserError
from traces.manifest import Manifest
from traces.synthetic import iid

SAMPLE = os.environ.get("SIMKIT_PEER_DATA", "")


def records(n: int = 5, seed: int = 0) -> list[dict]:
    """Made-up records of the SpecDecode-Bench form; token lists as long as acc_len or not."""
    rng = np.random.default_rng(seed)
    out = []
    for k in range(n):
        eagle = rng.integers(1, 7, rng.integers(1, 30)).tolist()
        out.append(
            {
                "id": str(k),
                "prompt_token_ids": rng.integers(0, 99, rng.integers(1, 20)).tolist(),
                "generated_token_ids": [5] * max(0, len(eagle) + k - 2),
                "acc_eagle": {"acc_len": eagle},
                "acc_ngram": {"acc_len": [1] * (len(eagle) + 1)},
            }
        )
    return out


def written(folder, lines) -> str:
    file = folder / "records.jsonl"
    file.write_text("".join(f"{x if isinstance(x, str) else json.dumps(x)}\n" for x in lines))
    return str(file)


def lattice(*given, **how):
    """The trace that an import makes."""
    return specdecode_bench.load(*given, **how).trace


def seconds_by_hand(record: dict, length: int) -> tuple[float, float]:
    """A request by that simulator's arithmetic: draft lengths fixed, and without drafts.

    The prefill's token is out, then entry k of acc_len is the step behind k + 1 tokens; KV is the
    prompt and what was emitted; a step pays drafting and verification of length + 1 tokens.
    """

    def target(kv: int, tokens: int) -> float:
        return 3.92645679e-8 * kv + 2.10103129e-5 * tokens + 5.88590713e-3 + 1.20683946e-3

    def draft(kv: int, tokens: int) -> float:
        return 2.37768493e-9 * kv + 8.41429603e-7 * tokens + 2.13526175e-3

    acc_len, prompt = record["acc_eagle"]["acc_len"], len(record["prompt_token_ids"])
    total = baseline = target(0, prompt)
    baseline += sum(target(prompt + k, 1) for k in range(1, len(acc_len)))
    emitted = 1
    while emitted < len(acc_len):
        total += target(prompt + emitted, length + 1) + draft(prompt + emitted, length + 1)
        emitted += min(length + 1, acc_len[emitted - 1])
    return total, baseline


@pytest.mark.parametrize("length", [0, 1, 3, 40])
def test_times_are_those_of_that_simulator(tmp_path, length):
    trace = lattice(written(tmp_path, records()))
    result = simkit.replay(trace, f"fixed({length})", COST, by="sequence", first_token="prefill")
    expected = np.array([seconds_by_hand(record, length) for record in records()])
    np.testing.assert_allclose(result.columns["total_s"], expected[:, 0], rtol=1e-12)
    np.testing.assert_allclose(result.columns["baseline_s"], expected[:, 1], rtol=1e-12)
    tokens = [len(record["acc_eagle"]["acc_len"]) for record in records()]
    ratio = np.mean(tokens / expected[:, 0]) / np.mean(tokens / expected[:, 1])
    assert throughput_ratio(result.runs[0]) == pytest.approx(ratio, rel=1e-12)
    steps = result.steps()
    parts = steps.select("draft_s", "verify_s", "overhead_s", "prefill_s").sum_horizontal().sum()
    without = sum(e for e, n in zip(expected[:, 0], tokens, strict=True) if n == 1)
    assert parts + without == pytest.approx(expected[:, 0].sum(), rel=1e-12)


def test_drafting_by_the_step_is_paid_once_and_without_drafts_too():
    cost = costs.Linear(draft_s=3.0, target_s=4.0, draft_per_token_s=0.5, draft_per_step=True)
    trace = iid(4, 20, 0.7, max_draft=9, seed=1)
    for spec in ("fixed(0)", "fixed(4)", "svip(h=0.5)"):
        result = simkit.replay(trace, spec, cost)
        (row,) = result.records()
        assert row["draft_s"] == 3.5 * row["steps"] + 0.5 * row["drafted"]
        assert row["prefill_s"] == 4 * 4.0
        assert result.steps()["draft_s"].sum() == row["draft_s"]
    with pytest.raises(costs.CostError, match="draft_per_step must be true or false"):
        costs.parse("linear(draft_s=1, target_s=2, draft_per_step=1)")


def test_no_policy_is_faster_than_prophet(tmp_path):
    trace = lattice(written(tmp_path, records(20, seed=1)))
    specs = ["prophet", "oracle", "fixed(0:6)", "heuristic"]
    policies = [policy for spec in specs for policy in simkit.policies.expand(spec)]
    result = simkit.replay(trace, policies, COST, first_token="prefill")
    total_s = [replayed.total_s for replayed in result.runs]
    assert (total_s[0] <= np.min(total_s, axis=0) * (1 + 1e-12)).all()


def test_what_a_record_becomes(tmp_path):
    record = {
        "id": "a",
        "prompt_token_ids": [7, 8],
        "generated_token_ids": [1, 2, 3, 4, 5],
        "acc_eagle": {"acc_len": [2, 1, 3]},
    }
    file = written(tmp_path, [record, ""])
    for align, expected in (("simulator", [0, 1, 0]), ("measured", [1, 0, 2])):
        trace = lattice(file, align=align)
        drafts = np.split(trace.lattice("accepted"), trace.lattice_offsets[1:-1])
        assert [draft.tolist() for draft in drafts] == [[True] * a + [False] for a in expected]
    (info,) = trace.sequences.to_pylist()
    assert info["output_tokens"] == [1, 2, 3, 4, 5] and info["n_output"] == 3
    assert (info["id"], info["n_prompt"]) == ("a", 2)
    assert trace.max_draft == 3 and trace.manifest.lattice_columns == ()


def test_acceptance_may_reach_past_the_end(tmp_path):
    lines = records(1)
    lines[0]["acc_eagle"]["acc_len"] = [1, 6, 6]
    trace = lattice(written(tmp_path, lines), align="measured")
    steps = simkit.replay(trace, "fixed(4)", by="step").steps()
    assert steps["start"].to_list() == [1, 2]
    assert steps["emitted"].to_list() == [1, 2]
    assert steps["drafted"].to_list() == [4, 4]


def test_the_command_writes_a_trace(tmp_path, capsys):
    file, out = written(tmp_path, records()), tmp_path / "trace"
    status, text, err = run(capsys, "import", "specdecode-bench", file, "--out", out)
    assert (status, err) == (0, "")
    assert "5 sequences" in text and "of eagle" in text
    assert run(capsys, "validate", out)[0] == 0
    assert run(capsys, "info", out)[0] == 0
    arguments = ["--policy", "fixed(3)", "--cost", COST, "--first-token", "prefill"]
    status, text, _ = run(capsys, "replay", out, *arguments, "--format", "json")
    expected = np.array([seconds_by_hand(record, 3) for record in records()]).sum(0)
    assert json.loads(text)[0]["total_s"] == pytest.approx(expected[0], rel=1e-12)
    line = refused(capsys, "import", "specdecode-bench", file, "--out", out)
    assert line == f"simkit: {out}: exists and is not an empty folder: name another"
    assert "column draft_entropy" in refused(capsys, "replay", out, "--policy", "svip")
    status, text, _ = run(
        capsys, "import", "specdecode-bench", file, "--out", tmp_path / "n", "--drafter", "ngram"
    )
    assert status == 0 and "of ngram" in text


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"acc_eagle": {"acc_len": []}}, "line 2: acc_eagle.acc_len is empty"),
        ({"acc_eagle": {"acc_len": [2, -1]}}, "line 2: acc_eagle.acc_len[1] is -1, not from 1"),
        ({"acc_eagle": {"acc_len": [0]}}, "line 2: acc_eagle.acc_len[0] is 0, not from 1"),
        ({"acc_eagle": {"acc_len": [2.5]}}, "acc_eagle.acc_len[0] must be a whole number, not 2.5"),
        ({"acc_eagle": {"acc_len": [True]}}, "acc_len[0] must be a whole number, not true"),
        ({"acc_eagle": {"acc_len": 3}}, "acc_eagle.acc_len must be a list of whole numbers, not 3"),
        ({"acc_eagle": {"acc_len": [10**9]}}, "acc_eagle.acc_len[0] is 1000000000, not from 1"),
        ({"acc_eagle": {}}, "line 2: field acc_eagle.acc_len is missing"),
        ({"acc_eagle": [1]}, "line 2: field acc_eagle.acc_len is missing"),
        ({"acc_eagle": None}, "line 2: no drafter eagle: there is ngram"),
        ({"acc_eagle": None, "acc_ngram": None}, "no drafter eagle: it has no field acc_NAME"),
        ({"prompt_token_ids": None}, "line 2: field prompt_token_ids is missing"),
        ({"prompt_token_ids": "x"}, 'prompt_token_ids must be a list of whole numbers, not "x"'),
        ({"generated_token_ids": [-5]}, "line 2: generated_token_ids[0] is -5, not from 0"),
        ({"id": None}, "line 2: field id is missing"),
        ({"id": [1]}, "line 2: id must be text or a whole number, not [1]"),
        ({"id": "\ud800"}, "line 2: id holds half of a surrogate pair"),
        ("[1, 2]", "line 2: not a JSON object"),
        ('{"id": ', "line 2: not JSON: "),
    ],
)
def test_bad_records(tmp_path, capsys, change, message):
    lines = records(3)
    if isinstance(change, str):
        lines[1] = change
    else:
        lines[1] = {k: v for k, v in (lines[1] | change).items() if v is not None}
    file, out = written(tmp_path, lines), tmp_path / "trace"
    line = refused(capsys, "import", "specdecode-bench", file, "--out", out)
    assert line.startswith(f"simkit: {file}: line 2: ") and message in line and not out.exists()


def test_which_drafter_is_taken_is_said(tmp_path, capsys):
    def imported(lines, *options):
        out = tmp_path / str(len(list(tmp_path.iterdir())))
        file = written(tmp_path, lines)
        return run(capsys, "import", "specdecode-bench", file, "--out", out, *options)

    text = imported(records())[1]
    assert "rows of eagle\nthe file has ngram too: --drafter NAME takes another\n" in text
    assert "too" not in imported(records(), "--drafter", "eagle")[1]
    only = [{k: v for k, v in line.items() if k != "acc_eagle"} for line in records()]
    text = imported(only)[1]
    assert "rows of ngram\n" in text and "too: --drafter" not in text
    others = [{**line, "acc_x": line["acc_ngram"]} for line in only]
    status, text, err = imported(others)
    assert (status, text) == (2, "") and "no drafter eagle: there is ngram, x" in err


def test_ids_that_come_twice_are_said(tmp_path, capsys):
    lines = [{**line, "id": 7} for line in records(3)]
    file = written(tmp_path, lines)
    status, text, _ = run(capsys, "import", "specdecode-bench", file, "--out", tmp_path / "t")
    assert status == 0 and "3 sequences" in text
    assert "2 records have the id of an earlier one" in text


@pytest.mark.parametrize(
    ("source", "name", "wanted"),
    [
        ("spec-bench", "x.csv", "a .parquet file or a folder"),
        ("spec-bench", "x.json", "a .parquet file or a folder"),
        ("specdecode-bench", "x.parquet", "a folder, the trace's"),
    ],
)
def test_no_folder_gets_the_name_of_a_file(tmp_path, capsys, source, name, wanted):
    out, lines = tmp_path / name, records() if source == "specdecode-bench" else questions()
    line = refused(capsys, "import", source, written(tmp_path, lines), "--out", out)
    assert line == f"simkit: --out {out}: must be {wanted}" and not out.exists()


def test_bad_files(tmp_path, capsys):
    def refusal(file):
        return run(capsys, "import", "specdecode-bench", file, "--out", tmp_path / "t")[::2]

    assert refusal(tmp_path / "none") == (
        2,
        f"simkit: {tmp_path / 'none'}: cannot be read: No such file or directory\n",
    )
    (tmp_path / "empty").write_text("\n\n")
    assert "there is no record in it" in refusal(tmp_path / "empty")[1]
    (tmp_path / "bytes").write_bytes(b"\xff\xfe\x00")
    assert "not UTF-8 text" in refusal(tmp_path / "bytes")[1]
    refused(capsys, "import", "medusa", tmp_path / "x", "--out", tmp_path / "t")
    (tmp_path / "file").write_text("")
    file = written(tmp_path, records(1))
    line = refused(capsys, "import", "specdecode-bench", file, "--out", tmp_path / "file")
    assert "is not an empty folder" in line


def questions() -> list[dict]:
    """Made-up records of the Spec-Bench form."""
    turns = {"decoding_steps": [2, 1], "new_tokens": [5, 1], "wall_time": [0.5, 0.25]}
    more = {**turns, "new_tokens": [4, 3]}
    return [
        {"question_id": 1, "category": "math", "choices": [{**turns, "accept_lengths": [3, 2, 1]}]},
        {"question_id": 2, "category": "qa", "choices": [{**more, "accept_lengths": [1, 3, 3]}]},
    ]


def test_counts_that_contradict_each_other_are_counted(tmp_path, capsys):
    """Methods count in their own ways: no error, but said."""
    lines = questions()
    lines[0]["choices"][0]["decoding_steps"] = [1, 0]  # indices of the last steps
    lines.append({**lines[1], "question_id": 3})
    lines[2]["choices"] = [{**lines[1]["choices"][0], "new_tokens": [4, 4]}]
    file = written(tmp_path, lines)
    rows = [row for row in spec_bench.read(file).to_pylist() if row["depth"] == 1]
    assert [(row["answers"], row["mismatches"]) for row in rows] == [(3, 2), (1, 1), (2, 1)]
    arguments = ["import", "spec-bench", file, "--out", tmp_path / "t.parquet"]
    status, text, err = run(capsys, *arguments)
    assert (status, err) == (0, "") and "2 of 3 answers have decoding_steps or" in text
    arguments[2] = written(tmp_path, questions())
    assert "contradicts" not in run(capsys, *arguments)[1]


def test_spec_bench_gives_acceptance_and_speeds(tmp_path, capsys):
    file = written(tmp_path, questions())
    rows = spec_bench.read(file).to_pylist()
    assert [(row["category"], row["depth"]) for row in rows] == [
        (name, depth) for name in (None, "math", "qa") for depth in (1, 2)
    ]
    # a is 2, 1, 0 and 0, 2, 2.
    assert [(row["reached"], row["accepted"]) for row in rows] == [
        *((6, 4), (4, 3)),
        *((3, 2), (2, 1)),
        *((3, 2), (2, 2)),
    ]
    assert rows[1]["conditional"] == 3 / 4 and rows[1]["marginal"] == 3 / 6
    assert (rows[0]["questions"], rows[0]["steps"], rows[0]["new_tokens"]) == (2, 6, 13)
    assert (rows[0]["wall_time_s"], rows[0]["tokens_per_s"]) == (1.5, 13 / 1.5)
    assert (rows[0]["answers"], rows[0]["mismatches"]) == (2, 0)
    assert rows[0]["accepted_per_step"] == 7 / 6
    for out, target in (("t.parquet", "t.parquet"), ("t", "t/spec-bench.parquet")):
        status, text, err = run(capsys, "import", "spec-bench", file, "--out", tmp_path / out)
        assert (status, err) == (0, "")
        assert "marginal (conditional)" in text and "0.50 (0.75)" in text
        assert pq.read_table(tmp_path / target).to_pylist() == rows


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"accept_lengths": [0]}, "choices[0]: accept_lengths[0] is 0, not from 1"),
        ({"accept_lengths": None}, "choices[0]: field accept_lengths is missing"),
        ({"new_tokens": [1]}, "must have one entry a turn"),
        ({"wall_time": [1.0, -1]}, "wall_time must be a list of seconds above 0, up to 1e+09"),
        ({"wall_time": [1.0, 0]}, "wall_time must be a list of seconds above 0"),
        ({"wall_time": ["1", 1]}, "wall_time must be a list of seconds above 0"),
        ({"wall_time": [10**400, 1]}, "wall_time must be a list of seconds above 0"),
        ({"wall_time": [1e308, 1e308]}, "wall_time must be a list of seconds above 0"),
        ({"wall_time": [float("nan"), 1]}, "wall_time must be a list of seconds above 0"),
        ({"new_tokens": [10**400, 1]}, "new_tokens[0] is 1000"),
    ],
)
def test_bad_choices(tmp_path, change, message):
    lines = questions()
    choice = lines[1]["choices"][0] | change
    lines[1]["choices"] = [{k: v for k, v in choice.items() if v is not None}]
    with pytest.raises(ImporterError) as caught:
        spec_bench.read(written(tmp_path, lines))
    assert "line 2: " in str(caught.value) and message in str(caught.value)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"category": 3}, "category must be text, not 3"),
        ({"category": "\udc00"}, "category holds half of a surrogate pair"),
        ({"choices": []}, "choices must be a list of at least one object"),
        ({"choices": [3]}, r"choices\[0\]: field decoding_steps is missing"),
        ({"question_id": None}, "field question_id is missing"),
    ],
)
def test_bad_questions(tmp_path, change, message):
    line = {k: v for k, v in (questions()[0] | change).items() if v is not None}
    with pytest.raises(ImporterError, match=message):
        spec_bench.read(written(tmp_path, [line]))


def test_a_table_that_cannot_be_written_is_named(tmp_path, capsys):
    (tmp_path / "t.parquet").mkdir()
    (tmp_path / "file").write_text("")
    file = written(tmp_path, questions())
    for out in (tmp_path / "t.parquet", tmp_path / "file"):
        line = refused(capsys, "import", "spec-bench", file, "--out", out)
        assert line.startswith(f"simkit: {out}") and "cannot be written: " in line


@pytest.mark.parametrize("spec", ["pacer", "specdecpp"])
def test_heads_have_no_scores_on_what_was_imported(tmp_path, spec):
    trace = lattice(written(tmp_path, records()))
    with pytest.raises(UserError, match="are missing: a lattice has no states to make them from"):
        simkit.replay(trace, spec, COST)


def test_options_of_the_other_format_are_refused(tmp_path, capsys):
    file = written(tmp_path, questions())
    arguments = ["import", "spec-bench", file, "--out", tmp_path / "t", "--drafter", "eagle"]
    assert "--align and --sample are for specdecode-bench" in refused(capsys, *arguments)


@pytest.mark.skipif(not os.path.exists(SAMPLE), reason="SIMKIT_PEER_DATA names no file")
def test_the_sample_gives_that_simulators_numbers():
    """Printed by the simulator at batch size 1; see `benchmarks.peers`."""
    trace = lattice(SAMPLE)
    assert trace.n_positions == 49_612
    result = simkit.replay(trace, list(PRINTED), COST, first_token="prefill")
    for row, replayed in zip(result.records(), result.runs, strict=True):
        ours = (throughput_ratio(replayed), row["speedup"])
        assert tuple(f"{ratio:.2f}" for ratio in ours) == PRINTED[row["policy"]]
    assert setting_s(trace, "fixed(3)", 20) < 0.02  # ten times what it takes on an idle machine


@pytest.mark.skipif(not os.path.exists(SAMPLE), reason="SIMKIT_PEER_DATA names no file")
@pytest.mark.parametrize("size", BATCHES)
def test_the_sample_gives_that_simulators_numbers_in_batches(size):
    """Printed by the simulator with as many copies of a request; see `benchmarks.peers`."""
    trace = lattice(SAMPLE)
    assert tuple(f"{ratio:.4f}" for ratio in served_ratios(trace, size)) == BATCHES[size]
    *served, _ = served_ratios(trace, size, its_way=False)
    assert served == pytest.approx([float(ratio) for ratio in BATCHES[size][:3]], abs=1.5e-4)


def test_what_the_file_does_not_say_stays_unknown(tmp_path, capsys):
    """Why outputs ended, and of which models; manifest, info and report name the file instead."""
    file = written(tmp_path, records())
    out = tmp_path / "trace"
    assert (
        run(capsys, "import", "specdecode-bench", file, "--out", out, "--drafter", "eagle")[0] == 0
    )
    trace = traces.load(out)
    assert set(trace.sequences["finish_reason"].to_pylist()) == {"unknown"}
    assert not trace.has_draft_model and traces.load("reference").has_draft_model
    source = json.loads((out / "manifest.json").read_text())["source"]
    sha256 = hashlib.sha256((tmp_path / "records.jsonl").read_bytes()).hexdigest()
    assert source == {
        "file": "records.jsonl",
        "sha256": sha256,
        "drafter": "eagle",
        "align": "simulator",
        "sample": "",
    }
    assert run(capsys, "validate", out)[0] == 0
    said = run(capsys, "info", out)[1]
    assert f"records.jsonl (sha256 {sha256[:8]}), drafter eagle, aligned as simulator" in " ".join(
        said.split()
    )
    page = "".join(str(report(trace, COST, policies=["fixed(3)"], figures=False).html()).split())
    assert "notknown" in page and "100%</td>" not in page.partition("Promptsandtokens")[2][:900]
    again = traces.load(out).manifest
    assert Manifest.from_json(again.to_json()) == again


def test_a_sample_of_records(tmp_path, capsys):
    file = written(tmp_path, records(9))
    whole = lattice(file)
    one, same = (lattice(file, sample=4) for _ in range(2))
    ids = one.sequences["id"].to_pylist()
    assert ids == same.sequences["id"].to_pylist() == sorted(ids) and len(ids) == 4
    assert one.manifest.source.sample == "4 of 9 records, seed 42"
    assert lattice(file, sample=9).hash == whole.hash
    assert lattice(file, sample=4, seed=1).sequences["id"].to_pylist() != ids
    out = tmp_path / "trace"
    told = run(capsys, "import", "specdecode-bench", file, "--out", out, "--sample", "0")
    assert told[0] == 2 and "sample must be at least 1, not 0" in told[2]
    assert not out.exists()


def test_printed_figures_stand_beside_their_own_file_alone(tmp_path, capsys):
    trace = lattice(written(tmp_path, records()))
    assert printed_of(trace) == {} and "not known" in capsys.readouterr().out
    source = replace(trace.manifest.source, sha256=GSM8K_SHA256)
    manifest = replace(trace.manifest, source=source)
    assert printed_of(SimpleNamespace(manifest=manifest)) == PRINTED
    manifest = replace(trace.manifest, source=replace(source, align="measured"))
    assert printed_of(SimpleNamespace(manifest=manifest)) == {}


def test_a_byte_order_mark_is_no_harm(tmp_path):
    file = written(tmp_path, records())
    plain = lattice(file)
    path = tmp_path / "records.jsonl"
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
    marked = lattice(file)
    assert marked.sequences.equals(plain.sequences)


def test_an_unknown_alignment_is_refused(tmp_path):
    with pytest.raises(ImporterError, match="align must be simulator or measured, not 'measure'"):
        specdecode_bench.load(tmp_path / "none.jsonl", align="measure")
