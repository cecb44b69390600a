"""What policies accept outside of verbatim loops, and where figures, tables and pages show it."""

import re
from dataclasses import replace

import numpy as np
import pytest
from replay_traces import build, with_scores

import simkit
import traces
from analysis import outside_loops
from analysis.claims import Findings, beside, check, claims, pard2
from analysis.claims.claim import ClaimKind, Part
from analysis.claims.table import examine
from analysis.claims.verdict import ABOVE_1, Verdict
from analysis.figures import (
    confidence_acceptance,
    draft_lengths,
    dynamic_policies,
    entropy_acceptance,
    entropy_length,
    expected_length,
    forward_passes,
    optimal_lengths,
    pearl_accepted,
    policies_by_task,
    step_lengths,
)
from analysis.figures.measures import APART, PER_STEP_APART
from analysis.figures.tables import tables
from analysis.replays import FAMILIES, groups, of
from analysis.report import report
from analysis.stats import Estimate
from analysis.stats.loops import in_loop
from analysis.study import MissingError, Study
from simkit.costs import Linear
from traces.subset import select
from traces.synthetic import iid, mixed
from traces.trace import load

pytestmark = pytest.mark.usefixtures("few_requests")

COST = Linear(0.001, 0.008)


@pytest.fixture(scope="module")
def reference() -> Study:
    whole = load("reference")
    heads = ("pacer", "pacer-no-position", "acceptance_head", "specdecpp")
    there = [name for name in heads if f"scores/{name}.parquet" in whole.manifest.files]
    return Study(select(whole, range(0, 128, 6), there))


@pytest.mark.parametrize("spec", ["fixed(4)", "svip(h=0.8)", "oracle"])
def test_steps_are_counted_one_by_one(reference, spec):
    counts = outside_loops.counts(at := of(reference, COST), at.replay(spec))
    trace = reference.trace
    loop = in_loop(trace.positions("target_token"), trace.position_offsets)
    found = {name: np.zeros(trace.n_sequences) for name in ("steps", "proposed", "accepted")}
    table = simkit.replay(trace, [spec], COST).steps(spec)
    numbers = trace.sequences["sequence"].to_pylist()
    for row in table.iter_rows(named=True):
        which = numbers.index(row["sequence"])
        low, high = trace.position_offsets[which : which + 2]
        at_row = low + row["start"] - 1
        if loop[at_row]:
            continue
        stop = at_row
        while stop < high and not loop[stop]:
            stop += 1
        found["steps"][which] += 1
        for name in ("proposed", "accepted"):
            found[name][which] += min(row[name], stop - at_row)
    assert list(counts) == list(found)
    for name, want in found.items():
        np.testing.assert_array_equal(counts[name], want)
    assert 0 < counts["steps"].sum() < len(table)


def test_a_family_counts_what_its_choices_do(reference):
    at = of(reference, COST)
    one = at.tuned_fixed()
    assert np.allclose(sum(one.shares), 1) and len(one.shares) == len(one.choices)
    each = [outside_loops.counts(at, at.replay(str(policy))) for policy in one.choices]
    for name, mine in outside_loops.counts(at, one).items():
        want = sum(share * found[name] for share, found in zip(one.shares, each, strict=True))
        np.testing.assert_allclose(mine, want)


def test_runs_outside_end_where_a_loop_begins():
    """By hand: 3 + 1 accepted tokens, a rejection, then a loop of one token to the end."""
    text = [(5, 5), (6, 6), (7, 7), (8, 1), *[(9, 9)] * 20]
    trace = build([text], t_max=24, max_draft=24)
    at = of(Study(trace), COST)
    inside = in_loop(trace.positions("target_token"), trace.position_offsets)
    assert np.flatnonzero(inside)[0] == 5
    assert outside_loops.accepted_runs(at, "fixed(20)").tolist() == [[4, 2]]
    assert at.accepted_runs("fixed(20)").tolist() == [[22, 2]]  # a step at 5 of 24 drafts 19


def test_without_loops_there_is_nothing_apart():
    at = of(Study(iid(8, 40, 0.7, max_draft=16, seed=1)), COST)
    with pytest.raises(MissingError, match="no part of the outputs repeats a loop"):
        outside_loops.counts(at, at.replay("fixed(2)"))
    assert outside_loops.if_any(at, {"fixed": at.replay("fixed(2)")}) == {}


FIGURES = {
    step_lengths: ("in_loop", True),
    optimal_lengths: ("task", "all, outside of loops"),
    expected_length: ("series", "accepted, outside of loops"),
    entropy_length: ("series", "spearman, outside of loops"),
    entropy_acceptance: ("series", "spearman:overlap, outside of loops"),
    confidence_acceptance: ("series", "outside of loops"),
    pearl_accepted: ("measure", "mat, outside of loops"),
    draft_lengths: ("task", "all, outside of loops"),
    forward_passes: ("measure", APART),
}
TIMED = (pearl_accepted, forward_passes)
WITH_TAU = {
    dynamic_policies: (PER_STEP_APART, "tau_ratio_outside"),
    policies_by_task: (PER_STEP_APART,),
}


@pytest.mark.parametrize("draw", FIGURES, ids=lambda draw: draw.__name__)
def test_figures_show_both(draw, reference):
    column, value = FIGURES[draw]
    trace = with_scores(iid(8, 40, 0.7, max_draft=40, seed=1, tasks=("a", "b")))
    under = {"cost": COST} if draw in TIMED else {}
    plain, looped = draw(trace, **under), draw(reference, **under)
    assert len(looped.frame.filter(**{column: value}))
    assert column not in plain.frame.columns or not len(plain.frame.filter(**{column: value}))


@pytest.mark.parametrize("draw", WITH_TAU, ids=lambda draw: draw.__name__)
def test_frames_hold_both_taus(draw, reference):
    """Of each policy and task, as the replays have them; and nowhere where there are no loops."""
    trace = with_scores(iid(8, 40, 0.7, max_draft=40, seed=1, tasks=("a", "b")))
    plain, frame = (draw(one, cost=COST).frame for one in (trace, reference))
    named = set(WITH_TAU[draw])
    assert not named & set(plain.columns) and named <= set(frame.columns)
    assert frame[PER_STEP_APART].is_not_null().all()
    one = (at := of(reference, COST)).tuned(FAMILIES["SVIP"])
    both = {"accepted_per_step": one.counts, PER_STEP_APART: outside_loops.counts(at, one)}
    masks = groups(reference.trace)
    for row in frame.filter(policy="SVIP").to_dicts():
        some = masks[row.get("task", "all")]
        for name, counts in both.items():
            want = counts["accepted"][some].sum() / counts["steps"][some].sum()
            assert row[name] == pytest.approx(want)


def test_drafts_outside_of_loops_are_those_of_the_replay(reference):
    (row,) = (
        draft_lengths(reference)
        .frame.filter(policy="SVIP, h = 0.8", task="all, outside of loops")
        .to_dicts()
    )
    counts = outside_loops.counts(at := of(reference, None), at.replay("svip(h=0.8)"))
    steps, proposed, accepted = (counts[name].sum() for name in ("steps", "proposed", "accepted"))
    assert row["draft_length"] == pytest.approx(proposed / steps)
    assert row["accepted_length"] == pytest.approx(accepted / steps)
    assert row["acceptance_rate"] == pytest.approx(accepted / proposed)
    assert row["draft_length_lo"] < row["draft_length"] < row["draft_length_hi"]


def test_passes_and_tau_outside_are_paired(reference):
    rows = forward_passes(reference, cost=COST).frame.filter(measure=APART).to_dicts()
    at = of(reference, COST)
    families = at.tuned(FAMILIES["PACER"]), at.tuned_fixed()
    mine, plain = (outside_loops.counts(at, one) for one in families)
    for row in rows:
        some = groups(reference.trace)[row["task"]]
        tau = [c["accepted"][some].sum() / c["steps"][some].sum() for c in (mine, plain)]
        assert row["ratio"] == pytest.approx(tau[0] / tau[1])
    assert len(rows) == len(groups(reference.trace))


def test_tables_show_both(reference):
    made, _ = tables(reference, COST)
    heads = {one.source: one.heads for one in made}
    for source in ("PACER Table 5", "PACER Table 7", "PACER Table 3", "Acceptance head Table 1"):
        assert APART in heads[source]
    rows = {one.source: [row[0] for row in one.rows] for one in made}
    assert "Ours, outside of loops" in rows["PEARL Table 7"]
    made, _ = tables(iid(8, 40, 0.7, max_draft=16, seed=1), COST)
    assert all(APART not in one.heads for one in made)


def test_the_page_shows_both(reference):
    page = " ".join(
        re.sub(r"<[^>]*>", " ", report(reference.trace, COST, figures=False).html()).split()
    )
    assert "accepted outside of loops [95%]" in page and "In loops: positions whose" in page
    plain = report(iid(8, 40, 0.7, max_draft=16, seed=1), COST, figures=False).html()
    assert "In loops" not in plain


LOOPED = ("length_is_predicted", "confidence_predicts", "later_positions_fall", "lengths_vary")
LOOPED += ("conditional_falls", "marginal_falls", "fixed_is_mostly_wrong", "later_is_easier")


@pytest.mark.parametrize("name", LOOPED)
def test_the_headline_of_a_claim_is_outside(name):
    one = next(one for one in claims() if one.name == name)
    (found,) = check("reference", claims=[one], placebo=None).of
    parts = {part.what: part for part in found.parts}
    assert parts["outside of loops"].expected is not None and parts["with loops"].expected is None


@pytest.mark.parametrize(
    ("trace", "verdict"),
    [
        (iid(64, 200, 0.7, max_draft=16, seed=4), Verdict.OPEN),
        (mixed(64, 200, 0.6, 0.3, max_draft=16, seed=4), Verdict.FAILS),
    ],
    ids=["independent", "prompts that differ"],
)
def test_later_positions(trace, verdict, monkeypatch):
    """Where prompts differ, those that get deep are the easy ones: the ratio rises with depth."""
    one = next(one for one in claims() if one.name == "later_positions_fall")
    monkeypatch.setattr(pard2, "parallel", lambda at: at.trace)  # as if it drafted in one pass
    (found,) = check(trace, COST, claims=[one], placebo=None).of
    assert found.verdict is verdict


def test_later_positions_are_those_of_a_parallel_drafter(monkeypatch):
    """The paper plots those: a draft model's own depths neither support nor refute it."""
    one = next(one for one in claims() if one.name == "later_positions_fall")
    alone = mixed(64, 200, 0.6, 0.3, max_draft=16, seed=4)
    (found,) = check(alone, COST, claims=[one], placebo=None).of
    assert found.verdict is Verdict.UNTESTED and "none is attached" in found.why
    monkeypatch.setattr(pard2, "SHALLOWEST", 9)
    (found,) = check("reference", claims=[one], placebo=None).of
    assert found.verdict is Verdict.UNTESTED and found.why == "Γ = 8: needs drafts of 9 tokens"
    monkeypatch.undo()
    (here,), (there,) = (
        check(traces.load("reference", drafter=name), claims=[one], placebo=None).of
        for name in (None, "pard")
    )
    assert here.parts == there.parts and here.verdict is not Verdict.UNTESTED


def test_settings_of_engines_are_told_and_not_judged():
    settings = [one for one in claims() if one.kind is ClaimKind.SETTING]
    assert {one.name for one in settings} == {"none_at_64", "shorter_in_larger_batches"}
    parts = [Part("", Estimate(2.0, 1.5, 2.5, 64), ABOVE_1)]
    for one in settings:
        found = examine(replace(one, test=lambda at: parts), None)
        assert found.verdict is Verdict.SETTING and found.why
        assert [part.expected for part in found.parts] == [None]
    both = Findings((found,), "a", ""), Findings((found,), "b", "")
    assert beside(both).together == [""] and "1 are settings of engines" in beside(both).note()
    assert "1 claim: none can be tested" in both[0].note()
