"""The recordings of SmolLM2 that come with the package: what they hold, and counts on them."""

from collections import Counter

import numpy as np
import pytest

import simkit
import traces
from traces.trace import DATA
from traces.validate import validate

GREEDY, SAMPLED, LONG = "smollm2", "smollm2-sampled", "smollm2-long"
MOST_BYTES = 14_000_000  # of all three
DRAFTERS = {"prompt_lookup", "suffix", "feature", "parallel"}


@pytest.fixture(scope="module", params=[GREEDY, SAMPLED])
def trace(request):
    return traces.load(request.param)


def test_they_are_small():
    files = [file for name in (GREEDY, SAMPLED, LONG) for file in (DATA / name).rglob("*")]
    assert sum(file.stat().st_size for file in files if file.is_file()) <= MOST_BYTES


def test_every_task_has_its_prompts(trace):
    counts = Counter(trace.sequences["task"].to_pylist())
    assert counts.pop("humaneval") == 40
    assert len(counts) == 13 and set(counts.values()) == {20}
    assert trace.max_new_tokens == 512


def test_all_drafters_are_attached(trace):
    assert trace.max_draft == 16
    assert set(trace.drafters) == DRAFTERS


def test_columns_that_equal_another_were_not_kept_and_are_there():
    greedy, sampled = traces.load(GREEDY), traces.load(SAMPLED)
    for table in ("positions", "branches"):
        for trace, name in ((greedy, "draft_top1_prob"), (sampled, "draft_prob")):
            assert trace.has(table, name)
            assert np.array_equal(trace.column(table, name), trace.column(table, "draft_prob_raw"))
        assert not greedy.has(table, "draft_prob") and not sampled.has(table, "draft_top1_prob")
    specs = ["confidence(threshold=0.5, max_draft=16)", "draft_verify(max_draft=16)"]
    assert (simkit.replay(sampled, specs).frame["drafted"] > 0).all()


def test_greedily_a_draft_models_token_is_its_likeliest():
    whole = traces.load("reference")  # keeps both columns
    for table in ("positions", "branches"):
        pair = (whole.column(table, name) for name in ("draft_top1_prob", "draft_prob_raw"))
        np.testing.assert_allclose(*pair, rtol=1e-5)


def test_both_follow_the_same_prompts():
    one, other = (traces.load(name).sequences for name in (GREEDY, SAMPLED))
    assert one["prompt_tokens"].equals(other["prompt_tokens"])
    assert one["output_tokens"] != other["output_tokens"]


def test_the_long_one_is_long():
    long = traces.load(LONG)
    assert len(long.sequences) == 8
    assert set(long.sequences["n_output"].to_pylist()) == {4096}


@pytest.mark.parametrize("name", [GREEDY, SAMPLED, LONG])
def test_they_are_whole(name):
    assert validate(DATA / name) == []
