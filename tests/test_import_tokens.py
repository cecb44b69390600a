"""Logs of chats: what they become, and drafters that are attached to them."""

import json

import numpy as np
import pytest
from commands import refused, run
from test_import import written

import traces
from analysis.claims import check, claims
from benchmarks.prompt_lookup import predicted
from simkit.importers import tokens
from traces.attach.tokens import PromptLookup
from traces.memory import from_outputs
from traces.record.prompts import Prompt

EOS = 3


def records(n=6, seed=0):
    """Made-up chats of few tokens; most outputs end in an EOS, most records have all fields."""
    rng = np.random.default_rng(seed)
    out = []
    for k in range(n):
        record = {
            "id": k,
            "task": f"task{k % 2}",
            "prompt_token_ids": rng.integers(4, size=rng.integers(20)).tolist(),
            "output_token_ids": rng.integers(3, size=rng.integers(1, 40)).tolist(),
        }
        record["output_token_ids"] += [EOS] * (k % 3 > 0)
        out.append(record)
    return [*out, {"prompt_token_ids": [], "output_token_ids": [2]}]


def test_what_a_record_becomes(tmp_path):
    file = written(tmp_path, records())
    trace = tokens.read(file, [EOS])
    rows = trace.sequences.to_pylist()
    for row, record in zip(rows, records(), strict=True):
        assert row["prompt_tokens"] == record["prompt_token_ids"]
        assert row["output_tokens"] == record["output_token_ids"]
        assert (row["n_prompt"], row["n_output"]) == tuple(
            len(row[name]) for name in ("prompt_tokens", "output_tokens")
        )
        ended = record["output_token_ids"][-1] == EOS
        assert row["finish_reason"] == ("eos" if ended else "unknown")
    assert [row["id"] for row in rows] == ["0", "1", "2", "3", "4", "5", None]
    assert [row["task"] for row in rows] == ["task0", "task1"] * 3 + [None]
    flat = [token for record in records() for token in record["output_token_ids"]]
    assert trace.column("target", "target_token").tolist() == flat
    longest = max(len(record["output_token_ids"]) for record in records())
    assert (trace.eos_token_ids, trace.max_new_tokens) == ((EOS,), longest + 64)
    assert (trace.manifest.kind, trace.manifest.coupling) == ("target", "target")
    assert trace.manifest.source.file == "records.jsonl"
    assert not trace.has_draft_model


def test_a_drafter_is_attached_and_replayed(tmp_path, capsys):
    file, out = written(tmp_path, records()), tmp_path / "chats"
    status, text, err = run(capsys, "import", "tokens", file, "--out", out, "--eos", EOS)
    assert (status, err) == (0, "")
    assert "7 sequences" in text and "simkit attach" in text and "earlier one" not in text
    assert run(capsys, "validate", out)[0] == 0
    status, text, _ = run(capsys, "info", out)
    assert status == 0 and "records.jsonl (sha256" in text and "aligned" not in text
    assert not any(word in text for word in ("greedy", "Γ", "drop")), "that is not known of a log"
    assert "name an attached drafter" in refused(capsys, "replay", out, "--policy", "fixed(2)")
    assert run(capsys, "attach", out, "--drafter", "prompt_lookup(length=4)")[0] == 0
    assert check(traces.load(out, "prompt_lookup")).note() == (
        f"Trace {out.name}, drafter prompt_lookup, no times: {len(claims())} claims: none can be"
        " tested; 40 of them: needs a draft model: these drafts are those of"
        " prompt_lookup(length=4), which runs none."
    )
    arguments = ["--drafter", "prompt_lookup", "--policy", "fixed(4)", "--format", "json"]
    cost = ["--cost", "linear(draft_s=0, target_s=1)"]
    status, text, _ = run(capsys, "replay", out, *arguments, *cost)
    assert status == 0
    trace, rule = traces.load(out), PromptLookup(length=4)
    steps = 0
    for row in trace.sequences.to_pylist():
        prompt = Prompt("", None, None, row["prompt_tokens"])
        limits = trace.max_new_tokens, (EOS,)
        steps += predicted(prompt, row["output_tokens"], rule, *limits).target
    assert json.loads(text)[0]["steps"] == steps


def test_without_eos_tokens_drafts_go_on(tmp_path):
    trace = tokens.read(written(tmp_path, records()))
    assert trace.eos_token_ids == ()
    assert set(trace.sequences["finish_reason"].to_pylist()) == {"unknown"}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"output_token_ids": []}, "line 2: output_token_ids is empty"),
        ({"output_token_ids": None}, "output_token_ids must be a list of whole numbers, not null"),
        ({"output_token_ids": [1, 2.5]}, "output_token_ids[1] must be a whole number, not 2.5"),
        ({"output_token_ids": [1, EOS, 2]}, "output_token_ids[1] is 3, an EOS token, but not the"),
        ({"prompt_token_ids": [-1]}, "line 2: prompt_token_ids[0] is -1, not from 0"),
        ({"prompt_token_ids": [2**31]}, "prompt_token_ids[0] is 2147483648, not from 0"),
        ({"prompt_token_ids": "hello"}, 'prompt_token_ids must be a list of whole numbers, not "h'),
        ({"task": [1]}, "line 2: task must be text or a whole number, not [1]"),
        ({"id": 1.5}, "line 2: id must be text or a whole number, not 1.5"),
        ({"id": "\ud800"}, "line 2: id holds half of a surrogate pair"),
        ('{"output_token_ids": [1]}', "line 2: field prompt_token_ids is missing"),
        ('{"prompt_token_ids": [1]}', "line 2: field output_token_ids is missing"),
        ("[]", "line 2: not a JSON object"),
        ("{", "line 2: not JSON: "),
    ],
)
def test_bad_records(tmp_path, capsys, change, message):
    lines = records()
    lines[1] = change if isinstance(change, str) else {**lines[1], **change}
    file, out = written(tmp_path, lines), tmp_path / "chats"
    line = refused(capsys, "import", "tokens", file, "--out", out, "--eos", EOS)
    assert line.startswith(f"simkit: {file}: line 2: ") and message in line and not out.exists()


def test_bad_files_and_options(tmp_path, capsys):
    file, out = written(tmp_path, records()), tmp_path / "chats"

    def refused(*arguments):
        status, text, err = run(capsys, "import", *arguments)
        assert (status, text) == (2, "") and not out.exists()
        return err

    empty = tmp_path / "empty.jsonl"
    empty.touch()
    assert "there is no record in it" in refused("tokens", empty, "--out", out)
    assert "cannot be read" in refused("tokens", tmp_path / "none", "--out", out)
    assert "an EOS token must be from 0" in refused("tokens", file, "--out", out, "--eos", "-1")
    assert "--align and --sample are for" in refused("tokens", file, "--out", out, "--sample", "2")
    assert "--eos is for tokens" in refused("spec-bench", file, "--out", out, "--eos", "1")
    assert "must be a folder" in refused("tokens", file, "--out", tmp_path / "x.parquet")


def test_ids_that_come_twice_are_said(tmp_path, capsys):
    file = written(tmp_path, [{**line, "id": "a"} for line in records(3)])
    text = run(capsys, "import", "tokens", file, "--out", tmp_path / "t")[1]
    assert "3 records have the id of an earlier one" in text


def test_outputs_that_were_not_imported_say_why_they_ended():
    trace = from_outputs({"output_tokens": [[1, 2], [1, 9]]}, max_new_tokens=2, eos_token_ids=[9])
    assert trace.sequences["finish_reason"].to_pylist() == ["length", "eos"]
    assert trace.column("target", "position").tolist() == [1, 2, 1, 2]


def test_figures_that_would_show_nothing_are_skipped(tmp_path, capsys):
    """No rule from tokens has a distribution, and without times a proposal would be free."""
    file, out = written(tmp_path, records(12)), tmp_path / "chats"
    assert run(capsys, "import", "tokens", file, "--out", out, "--eos", EOS)[0] == 0
    for spec in ("ngram(2, 1, 3)", "prompt_lookup(length=4)"):
        assert run(capsys, "attach", out, "--drafter", spec)[0] == 0
    only = ["--only", "drafters_entropy", "--only", "drafters_by_depth"]
    status, text, err = run(capsys, "figures", out, "--out", tmp_path / "f", *only)
    assert (status, err) == (0, "") and "1 of 2 figures" in text
    said = " ".join(text.split())
    assert (
        "drafters_entropy: skipped: no drafter has a distribution to look at: no draft_ent" in said
    )
    assert not (tmp_path / "f" / "drafters_entropy.svg").exists()
    given = ["figures", out, "--drafter", "ngram", "--out", tmp_path / "g"]
    line = refused(capsys, *given, "--only", "runtime_breakdown")
    assert "the cost has no time for a proposal" in line
