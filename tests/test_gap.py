"""The gap between the tuned `fixed` and the prophet, against sums done by hand."""

import subprocess
import sys
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from replay_traces import build

import analysis
import simkit
from analysis.gap import NO_GAP, _frame, gap, parts
from simkit.costs import Linear
from simkit.errors import PolicyError, ReplayError
from simkit.sweeps.folds import dealt
from traces.synthetic import iid

COST = Linear(draft_s=1.0, target_s=8.0, target_per_token_s=0.1, overhead_s=0.2, policy_s=0.02)
FIXED = [f"fixed({k})" for k in range(13)]
SVIP = [f"svip(h={h / 10:g})" for h in range(2, 11)]


def seconds(trace, specs):
    """Seconds of each policy on each prompt, and those of its decisions."""
    frames = [simkit.replay(trace, spec, COST, by="sequence").frame for spec in specs]
    return tuple(np.array([f[name] for f in frames]) for name in ("total_s", "policy_s"))


def test_parts_by_hand():
    """Two folds of six prompts, each setting chosen by the other fold."""
    trace = iid(6, 120, 0.8, max_draft=12, seed=3)
    found = gap(trace, "svip(h=0.2:1.0:0.1, max_draft=12)", COST, folds=2, seed=5, deals=1)
    specs = FIXED + [s.replace(")", ", max_draft=12)") for s in SVIP]
    total_s, policy_s = seconds(trace, specs)
    prophet_s = seconds(trace, ["prophet(max_draft=12)"])[0][0]
    fold = dealt(np.zeros(6, int), 2, seed=5, deals=1).fold[0]
    chosen = {"fixed": [], "best": []}
    expected = dict.fromkeys(("fixed", "reachable", "overhead", "unreachable"), 0.0)
    for f in (0, 1):
        inside, outside = fold == f, fold != f
        fixed = min(range(13), key=lambda k: total_s[k, outside].sum())
        best = min(range(len(specs)), key=lambda k: total_s[k, outside].sum())
        chosen["fixed"].append(specs[fixed])
        chosen["best"].append(specs[best])
        assert specs[best].startswith("svip")
        here = [x[inside].sum() for x in (total_s[fixed], total_s[best], policy_s[best], prophet_s)]
        expected["fixed"] += here[0]
        expected["reachable"] += here[0] - here[1]
        expected["overhead"] += here[2]
        expected["unreachable"] += here[1] - here[2] - here[3]
    assert found.fixed == Counter(chosen["fixed"])
    assert found.best == Counter(chosen["best"])
    rows = {row["part"]: row for row in found.frame.to_dicts()}
    for name, value in expected.items():
        assert rows[name]["seconds"] == pytest.approx(value)
        assert rows[name]["of_fixed"] == pytest.approx(value / expected["fixed"])
        assert rows[name]["of_fixed_lo"] < rows[name]["of_fixed"] < rows[name]["of_fixed_hi"] or (
            name == "fixed"
        )
    assert rows["prophet"]["seconds"] == pytest.approx(prophet_s.sum())
    assert rows["gap"]["of_gap"] == rows["gap"]["of_gap_lo"] == rows["gap"]["of_gap_hi"] == 1.0
    shares = [rows[name]["of_gap"] for name in ("reachable", "overhead", "unreachable")]
    assert sum(shares) == pytest.approx(1)
    assert min(shares) > 0


def test_what_some_prompts_lose_is_no_logarithm():
    """`reachable` is signed: its interval is that of a loss of as much, turned; and bounded."""
    saved, whole = np.array([0.3, -0.25, 0.2, -0.15, 0.1, 0.05]), np.ones(6)
    signed = {"fixed": whole, "gap": whole / 2, "reachable": saved, "lost": -saved}
    rows = {row["part"]: row for row in _frame(signed, 0.95, 0).to_dicts()}
    for share in ("of_fixed", "of_gap"):
        gains, losses = (
            [rows[p][f"{share}{end}"] for end in ("_lo", "", "_hi")] for p in ("reachable", "lost")
        )
        assert gains == pytest.approx([-x for x in reversed(losses)])
        assert gains[0] < 0 < gains[1] < gains[2] < 1


@given(
    values=st.lists(st.tuples(*[st.floats(0, 1e3)] * 4), min_size=1, max_size=9).map(
        lambda rows: np.array(rows).T
    )
)
def test_the_parts_sum_to_the_gap(values):
    found = parts(*values)
    total_s = found["reachable"] + found["overhead"] + found["unreachable"]
    least = 1e-9 * 1e3  # of the seconds, so much is rounding; of their sum once, of parts thrice
    np.testing.assert_allclose(found["gap"], found["fixed"] - found["prophet"], rtol=0, atol=least)
    np.testing.assert_allclose(total_s, found["gap"], rtol=0, atol=5 * least)


def test_no_candidate_is_worse_than_none():
    """What is slower than every fixed length is never chosen: nothing is reached."""
    trace = iid(5, 60, 0.8, max_draft=12, seed=3)
    found = gap(trace, "fixed(12)", COST, folds=5)
    rows = {row["part"]: row for row in found.frame.to_dicts()}
    assert found.best == found.fixed
    assert rows["reachable"]["seconds"] == rows["overhead"]["seconds"] == 0
    assert rows["unreachable"]["of_gap"] == 1


def test_prompts_that_leave_no_gap_leave_no_interval_of_it():
    trace = build([[(1, 2)] * 3] * 4, t_max=3, max_draft=3)
    found = gap(trace, "fixed(1)", COST, folds=2)
    rows = {row["part"]: row for row in found.frame.to_dicts()}
    assert rows["gap"]["seconds"] == 0
    assert rows["gap"]["of_gap"] is rows["gap"]["of_gap_lo"] is None
    assert rows["prophet"]["of_fixed"] == 1
    few = "only 4 prompts: the interval may be too narrow"
    assert found.notes == (NO_GAP, few)
    assert found._repr_html_().endswith(f"<p>Note: {NO_GAP}.</p><p>Note: {few}.</p>")


@pytest.mark.parametrize("candidate", ["svip(h=2)", "fixed(3)", "oracle_like", "heuristic"])
def test_no_draft_is_longer_than_the_trace_holds(candidate):
    """All is accepted, so Γ = 16 is the best length; what is left is rounding, and so no gap."""
    trace = iid(24, 64, 1.0, max_draft=16, seed=1, tasks=("a", "b"))
    candidate = (lambda depth, row: False) if candidate == "oracle_like" else candidate
    found = gap(trace, iter([candidate]), "pacer:deepseek-1.3b-33b")
    rows = {row["part"]: row for row in found.frame.to_dicts()}
    assert rows["gap"]["seconds"] == 0 and rows["prophet"]["of_fixed"] == pytest.approx(1)
    assert {row["of_gap"] for row in rows.values()} == {None}
    assert found.notes[-1] == NO_GAP
    same = gap(trace, candidate, "pacer:deepseek-1.3b-33b")
    assert (same.fixed, same.best) == (found.fixed, found.best)


@pytest.mark.parametrize("candidate", ["fixed(18)", "llamacpp(n_max=20)"])
def test_a_candidate_that_asks_for_longer_drafts_is_refused(candidate):
    trace = iid(24, 64, 1.0, max_draft=16, seed=1)
    with pytest.raises(ReplayError, match=r"asks for longer drafts than max_draft \(Γ\) = 16"):
        gap(trace, candidate, "pacer:deepseek-1.3b-33b")


@settings(max_examples=15, deadline=None)
@given(accept_prob=st.floats(0.3, 1), deepest=st.integers(1, 8), seed=st.integers(0, 99))
def test_the_prophet_bounds_whatever_was_recorded(accept_prob, deepest, seed):
    trace = iid(6, 30, accept_prob, max_draft=deepest, seed=seed)
    found = gap(trace, ["svip(h=0.5:2:0.5)", "heuristic(initial=5)"], COST, folds=3)
    rows = {row["part"]: row["seconds"] for row in found.frame.to_dicts()}
    assert rows["gap"] >= 0 and rows["unreachable"] >= 0
    prophet_s = seconds(trace, [f"prophet(max_draft={deepest})"])[0][0]
    assert rows["prophet"] == pytest.approx(prophet_s.sum())


def test_analysis_reads_its_modules_when_they_are_asked_for():
    """`import analysis` brings no matplotlib; its function `gap` is never taken for the module."""
    code = (
        "import sys, analysis; assert 'matplotlib' not in sys.modules;"
        "analysis.claims.check, analysis.stats.waste, analysis.stats.accepted_runs;"
        "assert 'matplotlib' not in sys.modules;"
        "analysis.figures.FIGURES; assert callable(analysis.gap)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
    with pytest.raises(AttributeError, match="has no attribute 'figure'"):
        _ = analysis.figure


def test_what_cannot_be_split():
    trace = iid(4, 20, 0.5, max_draft=40, seed=0)
    for candidate in ("oracle", "prophet"):
        with pytest.raises(PolicyError, match="needs the future"):
            gap(trace, [candidate], COST, folds=2)
    with pytest.raises(ReplayError, match="runs both models at once: the prophet does not bound"):
        gap(trace, ["pearl(3)"], COST, folds=2)
    with pytest.raises(ReplayError, match="give a cost"):
        gap(trace, ["svip"])
    with pytest.raises(ReplayError, match="4 prompts cannot be cut into 5 folds"):
        gap(trace, ["svip"], COST)
