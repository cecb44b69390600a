"""Lookups of a recording in the papers' tables: alone, and before its own draft model."""

import numpy as np
import pytest

import simkit
from analysis import outside_loops, token_drafters
from analysis.figures import policies_by_task
from analysis.figures.tables import pacer, tables
from analysis.replays import of
from analysis.study import MissingError, Study
from traces.synthetic import iid


@pytest.fixture(scope="module")
def at():
    return of(Study("reference"), None)


def test_alone_is_the_replay_of_all_that_it_proposes(at):
    assert token_drafters.names(at) == ["ngram", "prompt_lookup", "suffix"]
    found = token_drafters.alone(at, "suffix")
    row = simkit.replay("reference", {"suffix": "fixed(64, max_draft=64)"}).records()[0]
    assert found.total_s.sum() == pytest.approx(row["total_s"])
    assert found.counts["accepted"].sum() == row["accepted"]


def test_before_a_model_least_is_chosen_on_other_prompts(at):
    """Each prompt's time is a mixture of those that the values of `least` give it."""
    found = token_drafters.before(at, "suffix", "fixed(4)")
    assert set(found.least) <= set(token_drafters.LEASTS)
    each = {
        least: simkit.replay("reference", {f"route(suffix, own, least={least})": "fixed(4)"})
        for least in found.least
    }
    total_s = np.array([next(iter(r.results.values())).runs[0].total_s for r in each.values()])
    assert (found.replayed.total_s <= total_s.max(0) * (1 + 1e-12)).all()
    assert (found.replayed.total_s >= total_s.min(0) * (1 - 1e-12)).all()
    emitted = at.replay("fixed(4)").counts["emitted"]
    np.testing.assert_allclose(found.replayed.counts["emitted"], emitted)


def test_tables_1_and_4_hold_them(at):
    one, four = pacer.policies(at), pacer.hybrids(at)
    assert {"ngram", "prompt_lookup", "suffix"} <= {row[1] for row in one.rows}
    assert "In the place of Lookahead and REST: ngram, prompt_lookup, suffix" in one.note
    assert four.source == "PACER Table 4" and all(len(r) == len(four.heads) for r in four.rows)
    methods = ["Vanilla", "suffix", "suffix, then Speculative", "suffix, then PACER"]
    assert [row[1] for row in four.rows] == methods * 5
    assert "behind Ouroboros, in the paper, 1.04–1.07" in four.note


def test_without_any_there_is_no_table_of_hybrids():
    trace = iid(6, 20, 0.7, max_draft=8, seed=1)
    cost = "linear(draft_s=1, target_s=6)"
    found, gone = tables(trace, cost)
    assert "PACER Table 4" not in {one.source for one in found} and "hybrids" not in str(gone)
    with pytest.raises(MissingError, match="no drafter from tokens alone is attached"):
        token_drafters.first_of(of(Study(trace), cost))


def test_tau_outside_of_loops_is_that_of_its_own_steps(at):
    """Of the lookup's steps, not of the draft model's; and the figure has both."""
    one = token_drafters.alone(at, "suffix")
    left, (run,) = outside_loops.stretches(at), one.runs
    steps, _ = run.steps()
    room = left.room(at.trace.position_offsets[steps.sequence] + steps.start - 1)
    counts = outside_loops.counts(at, one)
    assert counts["accepted"].sum() == np.minimum(steps.accepted, room).sum()
    assert counts["steps"].sum() == (room > 0).sum()
    frame = policies_by_task(at.study).frame.filter(task="all")
    rows = {row["policy"]: row for row in frame.to_dicts()}
    assert rows["suffix"]["speedup"] == pytest.approx(
        one.seconds["baseline_s"].sum() / one.total_s.sum()
    )
    want = counts["accepted"].sum() / counts["steps"].sum()
    assert rows["suffix"]["accepted_per_step_outside"] == pytest.approx(want)
    assert rows["suffix, then PACER"]["speedup"] > rows["suffix"]["speedup"]
