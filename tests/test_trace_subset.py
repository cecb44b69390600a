"""Cuts of a trace on disk: numbered from 0, valid, and replayed as in memory."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from replay_traces import with_scores
from trace_files import SAMPLED, trace

import simkit
from traces import load, scores
from traces.errors import TraceError
from traces.memory import from_arrays
from traces.schema import LATENCY
from traces.subset import select
from traces.validate import validate
from traces.writer import save

COST = "linear(draft_s=1, target_s=6, target_per_token_s=0.1)"
SPECS = ("fixed(3)", "svip(h=0.5, max_draft=6)", "heuristic(initial=2, max_draft=6)")
WHOLE = trace(n=9)


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
