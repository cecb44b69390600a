"""PEARL's window where the cost ratio is greater than the trace lets be replayed."""

from itertools import product

import pytest

import simkit
from analysis.claims import Evidence, Verdict, check, claims
from analysis.claims.table import examine
from analysis.figures import FIGURES
from simkit.costs import Linear
from simkit.policies import PEARL
from traces.synthetic import iid

CLAIMS = {one.name: one for one in claims() if one.paper == "PEARL"}
COST = Linear(draft_s=1.0, target_s=6.0, target_per_token_s=0.1)


@pytest.mark.parametrize("c, window", [(6, 6), (20.4, 20), (21, 20), (50, 20)])
@pytest.mark.parametrize("ablation", [*product([True, False], repeat=2)])
def test_the_window_is_one_that_the_trace_can_replay(c, window, ablation):
    """Γ = 40 holds drafts that run on over two windows of 20; where it was cut, a note says so."""
    trace = iid(12, 120, 0.8, max_draft=40, seed=0)
    result = simkit.replay(trace, PEARL(None, *ablation), Linear(1.0, float(c)))
    assert result.runs[0].bound == PEARL(window, *ablation)
    why = f"window 20, as c = {c}, but the trace's Γ = 40 lets windows go to 20"
    assert [note.split(": ")[1] for note in result.notes] == ([why] if round(c) > 20 else [])
    given = simkit.replay(trace, PEARL(window, *ablation), Linear(1.0, float(c)))
    assert given.records()[0]["total_s"] == result.records()[0]["total_s"] and not given.notes


def test_claims_under_a_cost_ratio_beyond_the_trace():
    """c = 50, Γ = 40: windows of 20, and the one claim about round(c) is left open."""
    trace = iid(30, 120, 0.7, max_draft=40, seed=3)
    found = check(trace, Linear(1.0, 50.0), claims=CLAIMS.values())
    why = {one.claim.name: one.why for one in found.of if one.verdict is Verdict.UNTESTED}
    said = "c = 50, but the trace's Γ = 40 lets windows go to 20"
    assert why.pop("window_is_ratio") == said and said in found.note()
    assert set(why) == {"strategies_complement"}  # there is no other recording


def test_pearl_runs_more_than_drafts_of_its_window():
    at = Evidence(iid(14, 60, 0.7, max_draft=40, seed=3), COST)
    mine, plain = at.replay("pearl(6)").counts, at.replay("fixed(6)").counts
    parts = examine(CLAIMS["pearl_runs_more"], at).parts
    for part, count in zip(parts, ("drafted", "steps"), strict=True):
        assert part.found.value == pytest.approx(mine[count].sum() / plain[count].sum())


DRAWN = ("pearl_strategies", "pearl_accepted", "pearl_runs", "pearl_window", "timeline")


@pytest.mark.parametrize("name", DRAWN)
def test_captions_under_a_cost_ratio_beyond_the_trace(name):
    """c = 50, Γ = 40: windows of 20, and the caption says why; at c = 12 it is round(c)."""
    trace = iid(6, 120, 0.7, max_draft=40, seed=1)
    for c, wide in ((50, True), (12, False)):
        said = FIGURES[name].draw(trace, cost=f"linear(draft_s=1, target_s={c})").ax.texts
        text = " ".join(" ".join(one.get_text() for one in said).split())
        assert ("c = 50, but the trace's Γ = 40 lets windows go to 20" in text) == wide
        assert ("round(c) = 12" in text) == (not wide and name != "pearl_window")
        assert "round(c) = 20" not in text
    found = FIGURES["pearl_window"].draw(trace, cost="linear(draft_s=1, target_s=12)")
    assert found.frame["gamma"].max() == 14
