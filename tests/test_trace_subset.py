"""Cuts of a trace on disk: numbered from 0, valid, and replayed as in memory."""

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from replay_traces import with_scores
from trace_files import MODEL, SAMPLED, trace

import simkit
from traces import load, scores, writer
from traces.describe import describe
from traces.errors import TraceError
from traces.memory import from_arrays, from_drafts
from traces.schema import LATENCY
from traces.subset import select
from traces.validate import validate
from traces.writer import save

COST = "linear(draft_s=1, target_s=6, target_per_token_s=0.1)"
SPECS = ("fixed(3)", "svip(h=0.5, max_draft=6)", "heuristic(initial=2, max_draft=6)")
WHOLE = trace(n=9)
DOCS = Path(__file__).parents[1] / "docs"


@settings(max_examples=15, deadline=None)
@given(
    some=st.sets(st.integers(0, 8), min_size=1),
    budget=st.integers(1, 20),
    batch_size=st.integers(1, 9),
)
def test_a_greedy_cut_is_valid_on_disk_and_replayed_the_same(
    tmp_path_factory, some, budget, batch_size
):
    folder = tmp_path_factory.mktemp("cut") / "t"
    cut = select(WHOLE, sorted(some), max_new_tokens=budget)
    save(cut, folder, batch_size)
    assert validate(folder) == []
    loaded = load(folder)
    assert loaded.n_sequences == len(some)
    assert loaded.sequences["sequence"].to_pylist() == list(range(len(some)))
    assert loaded.sequences.drop("sequence").equals(cut.sequences.drop("sequence"))
    there, here = (simkit.replay(t, SPECS, COST).records() for t in (cut, loaded))
    assert here == there


def test_timings_are_written_and_scores_can_be(tmp_path):
    row = ("target", 1, 4, 1, 0.5, "float32", "cpu", "eager", 0)
    times = LATENCY.empty_table().from_pylist([dict(zip(LATENCY.names, row, strict=True))], LATENCY)
    cut = select(with_scores(WHOLE), [1, 4, 8], ["pacer", "specdecpp"], latency=times)
    save(cut, tmp_path / "t")
    loaded = load(tmp_path / "t")
    assert loaded.latency() == times
    assert select(loaded, [0]).latency() is None  # unless they are given
    scores.save(tmp_path / "t", loaded, "pacer", scores.load(cut, "pacer"), {})
    assert validate(tmp_path / "t") == []
    there, here = (scores.load(t, "pacer") for t in (cut, load(tmp_path / "t")))
    for field in vars(there):
        np.testing.assert_array_equal(getattr(here, field), getattr(there, field))


def refused(made, folder, message):
    with pytest.raises(TraceError, match=message):
        save(made, folder)
    assert not folder.exists()


def test_what_cannot_be_written_is_refused_before_anything_is(tmp_path):
    sampled = trace(sampler=SAMPLED, n=9)
    refused(
        select(sampled, [0, 2]), tmp_path / "t", "its draws are keyed by the sequences' numbers"
    )
    bare = from_arrays(
        {"n_output": [2]}, {"accepted": [True, True]}, {}, max_draft=2, max_new_tokens=2
    )
    refused(bare, tmp_path / "t", "positions lack the column draft_token")


def test_the_first_prompts_of_a_sampled_trace_keep_numbers_and_seed(tmp_path):
    sampled = trace(sampler=SAMPLED, n=9)
    sampled.manifest = replace(sampled.manifest, seed=7)
    save(select(sampled, [0, 1, 2]), tmp_path / "t")
    assert validate(tmp_path / "t") == []
    assert load(tmp_path / "t").manifest.seed == 7


@pytest.mark.parametrize(
    "indices",
    [
        [], [-1], [9], [8, 9], [3, 1, 2], [2, 2], [0, 1.0], [True], ["1"], [[1], [2, 3]], [[1]],
        [2**70], [None], 3, None, np.array([], int), np.array([9], np.uint64),
    ],
)  # fmt: skip
def test_indices_that_are_none_are_refused_in_plain_words(indices):
    with pytest.raises(TraceError, match=r"^indices must ascend within 0\.\.8: one or more whole"):
        select(WHOLE, indices)


@pytest.mark.parametrize(
    "indices", [range(2, 5), (2, 3, 4), np.arange(2, 5, dtype=np.uint8), pa.array([2, 3, 4])]
)
def test_any_sequence_of_whole_numbers_will_do(indices):
    assert select(WHOLE, indices).sequences["sequence"].to_pylist() == [2, 3, 4]


@pytest.mark.parametrize(
    ("latency", "message"),
    [
        (3, r"latency must be timing samples, such as trace.latency\(\), not int"),
        (WHOLE.latency, "not method"),
        (pa.table({"seconds": [1.0]}), "latency: column component is missing"),
    ],
)
def test_what_is_no_timing_samples_is_refused(latency, message):
    with pytest.raises(TraceError, match=message):
        select(WHOLE, [0], latency=latency)


def test_what_has_no_prompts_to_select_is_refused():
    with pytest.raises(TraceError, match="the trace has no sequences"):
        select(from_arrays({"n_output": []}, {}, {}, max_draft=1, max_new_tokens=1), [])
    drafts = {"sequence": [0], "start": [1], "depth": [1], "accepted": [False]}
    lattice = from_drafts({"n_output": [1]}, drafts, max_draft=1, max_new_tokens=2)
    with pytest.raises(TraceError, match="the trace is a lattice"):
        select(lattice, [0])


def test_a_cut_says_what_the_whole_was_recorded_with(tmp_path):
    whole = trace(n=9)
    recorded_with = {
        "target": MODEL, "draft": replace(MODEL, id="c/d"), "tokenizer_sha256": "1" * 64,
        "dtype": "float32", "device": "cpu", "libraries": {"torch": "2"},
    }  # fmt: skip
    of_all = {"prompts_sha256": "2" * 64, "hidden": True, "mix": 0.5, "near_ties": 3}
    whole.manifest = replace(whole.manifest, **recorded_with, **of_all)
    save(select(whole, [1, 4], max_new_tokens=12), tmp_path / "t", batch_size=1)
    assert validate(tmp_path / "t") == []
    cut = load(tmp_path / "t").manifest
    changed = {"max_new_tokens": 12, "batch_size": 1, "n_prompts": 2, "files": cut.files}
    dropped = {"prompts_sha256": None, "hidden": False, "mix": 0.0, "near_ties": 0}
    assert cut == replace(whole.manifest, **changed, **dropped)


def test_the_lines_in_the_docs_cut_a_bundled_trace(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = (DOCS / "trace-format.md").read_text(encoding="utf-8")
    [lines] = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    exec(lines, {})
    assert validate("cut") == []
    whole, cut = describe(load("reference")), describe(load("cut"))
    for name in ("target", "draft", "dtype", "device", "libraries", "sampler"):
        assert cut[name] == whole[name] is not None
    assert {"measured costs", "scores of pacer"} <= set(cut["uses"])
    there, here = (scores.facts(load(name), "pacer") or {} for name in ("reference", "cut"))
    assert there["head"] and here["head"] == there["head"]
    assert simkit.replay(load("cut"), "pacer", "measured").records()
    roofline = 'roofline(device="h100")'
    here, there = (
        simkit.replay(part, "fixed(3)", roofline).records()
        for part in (select(load("reference"), [0, 32, 64]), load("cut"))
    )
    assert here == there


def test_no_finished_trace_is_without_its_times(tmp_path, monkeypatch):
    whole = load("reference")
    cut = select(whole, [0], latency=whole.latency())
    real = writer.write_atomic
    for survived in range(20):
        folder = tmp_path / str(survived)
        left = iter(range(survived))

        def dying(file, data, left=left):
            if next(left, None) is None:
                raise KeyboardInterrupt
            real(file, data)

        monkeypatch.setattr(writer, "write_atomic", dying)
        try:
            save(cut, folder)
        except KeyboardInterrupt:
            with pytest.raises(TraceError):
                load(folder)
        else:
            break
    assert survived > 5 and load(folder).latency() == cut.latency()
