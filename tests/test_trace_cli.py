import json

import pyarrow as pa
import pytest
from commands import run
from trace_files import MODEL, edit, record, trace

from traces import schema
from traces.describe import describe
from traces.memory import from_drafts
from traces.sampler import Sampler
from traces.writer import add_file, save


@pytest.fixture
def folder(tmp_path):
    record(tmp_path / "t", trace())
    return tmp_path / "t"


def test_validate(folder, capsys):
    source = trace()
    status, out, err = run(capsys, "validate", folder)
    assert (status, err) == (0, "")
    assert out == (
        f"OK: 7 files, 7 sequences, {source.n_positions} positions,"
        f" {source.n_branch_rows} branch rows\n"
    )


def test_validate_counts_one_of_a_kind(tmp_path, capsys):
    drafts = {"sequence": [0], "start": [1], "depth": [1], "accepted": [False]}
    save(from_drafts({"n_output": [1]}, drafts, max_draft=1, max_new_tokens=2), tmp_path / "t")
    _, out, _ = run(capsys, "validate", tmp_path / "t")
    assert out == "OK: 2 files, 1 sequence, 1 position, 1 lattice row\n"


def test_validate_prints_problems(folder, capsys):
    edit(folder, max_draft=4)
    status, out, err = run(capsys, "validate", folder)
    assert (status, out) == (2, "")
    assert "positions/00000.parquet: sequence 0, position " in err
    assert all(line.startswith("simkit: ") for line in err.splitlines())


@pytest.mark.parametrize("command", ["info", "validate"])
def test_no_trace(command, tmp_path, capsys):
    status, out, err = run(capsys, command, tmp_path)
    assert (status, out) == (2, "")
    assert err == f"simkit: {tmp_path}: not a trace, it has no manifest.json\n"


def test_info_json(folder, capsys):
    status, out, err = run(capsys, "info", folder, "--format", "json")
    assert (status, err) == (0, "")
    facts = json.loads(out)
    source = trace()
    assert facts["path"] == str(folder)
    assert facts["sequences_by_task"] == {"code": 4, "math": 3}
    assert facts["positions"] == source.n_positions
    assert facts["branch_rows"] == source.n_branch_rows
    assert facts["accepted"] == source.positions("accepted").mean()
    assert set(facts["bytes"]) == {"positions", "branches", "sequences.parquet"}
    assert facts["target"] is None and facts["max_draft"] == 6


def test_info(folder, capsys):
    edit(folder, target=MODEL, draft=MODEL, device="cpu, 2 threads", dtype="float32")
    add_file(folder, "latency.parquet", schema.LATENCY.empty_table())
    add_file(folder, "scores/pacer.parquet", pa.table({"x": [1]}))
    status, out, err = run(capsys, "info", folder)
    assert (status, err) == (0, "")
    for words in (
        "a/b (LlamaForCausalLM, 1.2M parameters",
        "recorded on  cpu, 2 threads, float32",
        "greedy, seed 0",
        "Γ = 6, T_max = 20 tokens",
        "7 (code 4, math 3)",
        "measured costs",
        "scores of pacer",
    ):
        assert words in out, words


def test_describe_a_sampled_trace_in_memory():
    sampler = Sampler(0.7, top_k=5, top_p=0.9, draft_temperature=1.0)
    facts = describe(trace(sampler=sampler))
    assert facts["path"] is None and facts["bytes"] == {}
    assert facts["uses"] == ["any policy; up to 5 tokens past a rejection"]
    from traces.describe import in_words

    assert dict(in_words(facts))["sampler"] == (
        "temperature 0.7, top-k 5, top-p 0.9, draft temperature 1, seed 0"
    )


def test_describe_an_empty_trace(tmp_path, capsys):
    record(tmp_path / "t", trace(n=0))
    status, out, err = run(capsys, "info", tmp_path / "t")
    assert (status, err) == (0, "")
    assert run(capsys, "validate", tmp_path / "t")[0] == 0
