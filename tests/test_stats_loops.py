"""Loops in outputs: what is one, and what is left outside."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from stats_traces import ahead_of

import traces
from analysis.stats.loops import outside, split
from traces.loops import LEAST, LONGEST, TIMES, in_loop


def by_hand(tokens, offsets):
    """The docstring's words, position by position."""
    found = [False] * len(tokens)
    for start, end in zip(offsets[:-1], offsets[1:], strict=True):
        text = list(tokens[start:end])
        for lag in range(1, LONGEST + 1):
            k = lag
            while k < len(text):
                stop = k
                while stop < len(text) and text[stop] == text[stop - lag]:
                    stop += 1
                if stop - k >= max(TIMES * lag, LEAST):
                    found[start + k : start + stop] = [True] * (stop - k)
                k = max(stop, k) + 1
    return np.array(found, bool)


@given(st.lists(st.lists(st.integers(0, 2), max_size=40), max_size=4))
def test_in_loop_is_its_definition(texts):
    tokens = np.array([token for text in texts for token in text], np.int32)
    offsets = np.cumsum([0, *map(len, texts)])
    np.testing.assert_array_equal(in_loop(tokens, offsets), by_hand(tokens, offsets))


def test_a_loop_and_its_first_round():
    text = [9, 8, *[1, 2, 3, 4, 5] * 3, 7]
    found = in_loop(np.array(text), np.array([0, len(text)]))
    assert np.flatnonzero(found).tolist() == list(range(7, 17))
    twice = [1, 2, 3, 4, 5] * 2  # one repetition is none
    assert not in_loop(np.array(twice), np.array([0, 10])).any()
    assert not in_loop(np.array(text), np.array([0, 9, len(text)])).any()  # not across prompts


def test_random_text_has_none():
    tokens = np.random.default_rng(0).integers(0, 1000, 100_000)
    assert in_loop(tokens, np.arange(0, 100_001, 250)).mean() < 1e-4


@given(st.lists(st.lists(st.tuples(st.booleans(), st.booleans()), max_size=12), max_size=5))
def test_what_is_outside(texts):
    """Runs outside are those of each stretch taken by itself, and belong to their prompt."""
    loop = np.array([row[0] for text in texts for row in text], bool)
    accepted = np.array([row[1] for text in texts for row in text], bool)
    offsets = np.cumsum([0, *map(len, texts)])
    left = outside(loop, offsets)
    found = left.runs(accepted)
    wanted = []
    for text in texts:
        here, run = [], None
        for looped, kept in [*text, (True, False)]:
            if looped:
                here += [] if run is None or run == 0 else [(run, False)]
                run = None
            elif kept:
                run = (run or 0) + 1
            else:
                here.append((run or 0, True))
                run = 0
        wanted.append(here)
    got = list(zip(found.accepted.tolist(), found.rejected.tolist(), strict=True))
    bounds = zip(found.offsets[:-1], found.offsets[1:], strict=True)
    assert [got[low:high] for low, high in bounds] == wanted


@given(st.lists(st.lists(st.tuples(st.booleans(), st.booleans()), max_size=12), max_size=5))
def test_what_is_ahead_ends_where_a_loop_begins(texts):
    """Counted position by position; sums over stretches are those over their prompts' positions."""
    loop = np.array([row[0] for text in texts for row in text], bool)
    accepted = np.array([row[1] for text in texts for row in text], bool)
    offsets = np.cumsum([0, *map(len, texts)])
    left = outside(loop, offsets)
    wanted = []
    for text in texts:
        for k, (looped, _) in enumerate(text):
            stop = k
            while stop < len(text) and text[stop] == (False, True):
                stop += 1
            wanted += [] if looped else [stop - k]
    assert left.cut(ahead_of(accepted, offsets)).tolist() == wanted
    free = [sum(not looped for looped, _ in text) for text in texts]
    assert np.diff(left.prompts).tolist() == free
    assert left.summed(np.diff(left.offsets)[:, None])[:, 0].tolist() == free


def test_loops_split_a_text_only_where_both_are_there():
    text, plain = [1, 2] * 20, list(range(40))
    for tokens, share in ((text, 38 / 40), (plain, 0.0), ([7] * 40, 39 / 40)):
        found = split(np.array(tokens), np.array([0, 40]))
        assert found.share == share and (found.outside is None) == (share == 0)
    assert split(np.array([], int), np.array([0])).share == 0.0


def test_reference_is_mostly_loops():
    """Of the greedy outputs 69% (`traces.load("reference")`), of the sampled ones under 1%."""
    shares = []
    for name in ("reference", "reference-sampled"):
        trace = traces.load(name)
        shares.append(in_loop(trace.positions("target_token"), trace.position_offsets).mean())
    assert shares[0] == pytest.approx(0.691, abs=0.0005)
    assert shares[1] == pytest.approx(0.0073, abs=0.0005)
