"""Intervals of serving are over prompts: which of them each run serves, and how often they hold."""

from __future__ import annotations

import json

import numpy as np
import pytest
from commands import run
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

import simkit
from analysis.claims import Verdict
from analysis.claims.engines import ABOVE_1
from analysis.claims.verdict import judge
from analysis.serving import closed, curves, estimate
from analysis.study import Study
from simkit.serving.pools import Sample, bounds, sequences_of
from traces import synthetic

COST = "linear(draft_s=1, target_s=10, target_per_token_s=1)"


@given(st.integers(1, 12), st.integers(1, 40), st.integers(1, 6))
def test_all_seeds_together_serve_each_prompt_equally_often(prompts, rounds, seeds):
    runs = [sequences_of(prompts, rounds * prompts, seed, seeds) for seed in range(seeds)]
    counts = np.bincount(np.concatenate(runs), minlength=prompts)
    assert (counts == rounds * seeds).all()
    for one in runs:  # each of its own pool, round after round
        parts = np.sort(one.reshape(rounds, prompts), axis=1)
        assert (parts == parts[0]).all()


def test_pools_differ_by_seed_and_are_drawn_with_replacement():
    one, other = (sequences_of(64, 64, seed, 4) for seed in (0, 1))
    assert 30 < len(np.unique(one)) < 55 and sorted(one) != sorted(other)
    assert sorted(sequences_of(64, 64, 0, 1)) == list(range(64))  # one run serves all of them
    assert len(sequences_of(64, 20, 1, 4)) == 20


def plain_half(values, prompts, requests):
    """Student's interval of a mean whose spread is that of `prompts`, by hand."""
    seeds, mean = len(values), sum(values) / len(values)
    variance = sum((value - mean) ** 2 for value in values) / (seeds - 1)
    share = max(1 / seeds, min(requests, prompts) / (prompts - 1))
    return stats.t.ppf(0.975, min(seeds, prompts) - 1) * (share * variance) ** 0.5


@pytest.mark.parametrize(("prompts", "requests"), [(64, 1000), (64, 64), (64, 20), (64, 2), (3, 9)])
def test_half_a_width_by_hand(prompts, requests):
    values = [1.0, 1.25, 0.75, 1.5]
    half, why = Sample(prompts, requests).half(np.array(values), 0.95)
    assert half == pytest.approx(plain_half(values, prompts, requests)) and why == ""


NONE = {
    "one run": ([1.0], Sample(9, 9), "one run"),
    "one prompt": ([1.0, 2.0], Sample(1, 9), "one prompt"),
    "the same prompts": ([1.0, 2.0], Sample(9, 9, drawn=False), "all runs serve the same prompts"),
    "no width": ([2.0, 2.0, 2.0], Sample(9, 9), "all 3 runs gave the same"),
    "no width but rounding": ([0.3, 0.1 + 0.2], Sample(9, 9), "all 2 runs gave the same"),
    "zeros": ([0.0, 0.0], Sample(9, 9), "all 2 runs gave the same"),
    "no such number": ([1.0, np.nan], Sample(9, 9), "some runs have no such number"),
}


@pytest.mark.parametrize("name", NONE)
def test_where_nothing_shows_a_spread_there_is_no_interval(name):
    values, sample, words = NONE[name]
    half, why = sample.half(np.array(values), 0.95)
    assert half is None and words in why
    found = estimate(np.array(values), sample, 9)
    assert found.lo is None and found.hi is None and found.note
    assert judge(found, ABOVE_1) is Verdict.UNTESTED


@pytest.mark.parametrize(
    ("prompts", "requests", "seeds", "noise"),
    [
        (64, 1000, 5, 0.0),
        (24, 96, 4, 0.05),
        (100, 100, 4, 0.0),
        (200, 60, 5, 0.0),
        (64, 20, 4, 0.1),
    ],
)
def test_they_hold_the_truth_as_often_as_is_said(prompts, requests, seeds, noise):
    """Of 300 95% intervals 285 are expected to hold it; fewer than 268 has p = 1e-5.

    A run's number is a ratio of sums over the prompts that it serves, with noise of its own
    (arrivals). Requests drawn of all prompts, with Student's interval over seeds, hold it less.
    """
    rng = np.random.default_rng(prompts + requests)
    held = before = 0
    for _ in range(300):
        tokens, seconds = rng.gamma(4, 1 / 4, prompts), rng.gamma(4, 1 / 4, prompts)

        def ratio(which, tokens=tokens, seconds=seconds):
            return tokens[which].sum() / seconds[which].sum() * np.exp(rng.normal(0, noise))

        runs = [ratio(sequences_of(prompts, requests, k, seeds)) for k in range(seeds)]
        half, _ = Sample(prompts, requests).half(np.array(runs), 0.95)
        assert half is not None
        held += abs(np.mean(runs) - 1) <= half
        runs = [ratio(rng.integers(0, prompts, requests)) for _ in range(seeds)]
        half = stats.t.ppf(0.975, seeds - 1) * np.std(runs, ddof=1) / seeds**0.5
        before += abs(np.mean(runs) - 1) <= half
    assert held >= 268
    if requests >= prompts:
        assert before < 250


@pytest.fixture(scope="module")
def trace():
    return synthetic.iid(24, 60, 0.7, max_draft=8, seed=3, eos_prob=0.03)


def test_a_longer_run_does_not_narrow_it(trace):
    """More requests of the same prompts tell no more about other prompts."""
    width = {}
    for requests in (96, 768):
        found = simkit.serve(
            trace, ["none", "static(3)"], COST, concurrency=4, requests=requests, seeds=8
        )
        row = found.records()[1]
        width[requests] = row["steady_tokens_s_hi"] - row["steady_tokens_s_lo"]
        assert (row["prompts"], row["seeds"]) == (24, 8)
    assert width[768] > 0.6 * width[96]


def test_controllers_share_the_prompts_of_each_seed(trace):
    found = simkit.serve(trace, ["none", "static(3)"], COST, concurrency=4, requests=48, seeds=3)
    served = {(str(r.controller), r.seed): r.server.sequence.tolist() for r in found.runs}
    for seed in range(3):
        assert served["none()", seed] == served["static(3)", seed]
    assert served["none()", 0] != served["none()", 1]
    row = found.records()[1]
    alone = (row["steady_tokens_s_hi"] - row["steady_tokens_s_lo"]) / row["steady_tokens_s"]
    paired = (row["steady_against_hi"] - row["steady_against_lo"]) / row["steady_against"]
    assert paired < alone


def test_no_number_that_all_runs_share_has_an_interval(trace):
    found = simkit.serve(trace, ["none", "static(3)"], COST, concurrency=4, requests=48, seeds=3)
    none, drafts = found.records()
    assert none["steady_against"] == 1 and none["steady_against_lo"] is None
    assert none["length"] == 0 and none["length_hi"] is None
    assert drafts["steady_against_lo"] is not None
    assert any("is the same in all runs has none" in note for note in found.notes)
    assert found._cells()[1][0][-1] == "1.000"  # no ±


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (["--rate", "2", "--once"], "no intervals: all runs serve the same prompts"),
        (["--concurrency", "2", "--seeds", "1", "--requests", "6"], "no intervals: one run"),
        (["--concurrency", "2", "--seeds", "2", "--requests", "2"], "only "),
        (
            ["--concurrency", "2", "--seeds", "2", "--requests", "60"],
            "intervals cover the spread over prompts",
        ),
    ],
)
def test_the_command_says_what_its_intervals_are_over(given, words, capsys):
    cost = ("--cost", "atlas(target=qwen3-8b, draft=qwen3-0.6b)", "--format", "json")
    load = "serving", "reference", "--controller", "static(2)", *cost, *given
    ended, out, said = run(capsys, *load)
    (row,) = json.loads(out)
    assert ended == 0 and f"note: {words}" in said
    assert (row["tokens_s_lo"] is None) == words.startswith("no intervals")


def test_curves_have_the_prompts_that_were_served(trace):
    loads = closed((1, 4), least=12)
    found = curves(Study(trace), ["none", "static(3)"], loads, COST, seeds=2)
    one = found.of["static(3)"]
    assert [sample.requests for sample in one.samples] == [16, 64]
    assert one.prompts[0] <= one.prompts[1] == 24
    assert [e.n_prompts for e in one.estimates("steady_against")] == list(one.prompts)


@pytest.mark.parametrize(
    ("name", "mean", "half", "ends"),
    [
        ("good_share", 0.9, 0.3, (0.6, 1.0)),
        ("accepted_share", 0.1, 0.3, (0.0, 0.4)),
        ("busy", 1.0, 0.25, (0.75, 1.0)),
        ("tokens_s", 2.0, 3.0, (0.0, 5.0)),
        ("", 2.0, 3.0, (-1.0, 5.0)),
    ],
)
def test_ends_stay_where_a_measure_can_be(name, mean, half, ends):
    assert bounds(name, mean, half) == pytest.approx(ends)
