"""Figures of draft trees: what they draw is what replays give, and who has no trees is told so."""

from __future__ import annotations

import shutil

import numpy as np
import polars as pl
import pytest
from commands import status
from test_figures import check

import simkit
import traces
from analysis import figures
from analysis.figures import FIGURES
from analysis.replays import of
from analysis.spelling import spelling
from analysis.study import Study
from analysis.tree_step import step_tree, verified
from analysis.trees import BUDGETS, STEPS, by_budget, exits, layout_of_trees, tree_study
from simkit import policies
from simkit.trees.growing import Growing
from traces.errors import UserError
from traces.synthetic import iid

pytestmark = pytest.mark.usefixtures("few_requests")

TREES = [name for name, one in FIGURES.items() if one.trees]
COST = "linear(draft_s=0.05, target_s=1, target_per_token_s=0.01)"
GROWN = ("eagle2()", "eagle2(top_k=3, depth=4, total=9)", "tree_svip(h=0.8, every=1)")
GROWN += ("tree_acceptance_head(h=0.9)", "tree_acceptance_head(h=0.8, variant=code)")
GROWN += ("static([[0], [1], [0, 0], [1, 2]])", "sequoia(16)", "sequoia(9, by=ranks)")


@pytest.fixture(scope="module")
def study():
    return Study(traces.load("reference-trees", "eagle-tree"))


@pytest.fixture(scope="module")
def parallel():
    return Study(traces.load("reference-trees-sampled", "pard2-tree"))


@pytest.mark.parametrize("name", TREES)
def test_draws(name, study, parallel, tmp_path):
    found = FIGURES[name].under(study if name == "tree_head" else parallel, COST)  # scores of nodes
    check(found)
    assert found.name == name and FIGURES[name].what and FIGURES[name].source
    assert all(path.stat().st_size for path in found.save(tmp_path))


@pytest.mark.parametrize("name", TREES)
def test_who_has_no_trees_is_told(name):
    for trace in (iid(6, 20, 0.7, max_draft=8, seed=1), "reference", "reference-target"):
        with pytest.raises(UserError, match="attach a drafter with --tree") as caught:
            FIGURES[name].under(Study(trace), COST)
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["tree_gap", "tree_exits"])
def test_times_are_needed(name, parallel, monkeypatch):
    monkeypatch.setattr(Study, "charge", lambda *_: None)
    with pytest.raises(UserError, match="needs times"):
        FIGURES[name].under(Study(parallel.trace), None)


def test_a_head_that_has_judged_no_node_is_asked_for(parallel):
    with pytest.raises(UserError, match="simkit score"):
        FIGURES["tree_head"].under(parallel, COST)


def test_of_a_recording_it_is_the_attached_one(study):
    found = tree_study(Study("reference-trees"))
    assert found.trace.manifest.spec == study.trace.manifest.spec
    assert tree_study(study) is study
    chain = Study(traces.load("reference-trees", "eagle"))
    with pytest.raises(UserError, match="--drafter"):
        tree_study(chain)


def test_budgets_are_those_of_replays(study):
    frame = figures.tree_budget(study, budgets=(3, 16)).frame
    for row in frame.filter(pl.col("policy").is_not_null()).iter_rows(named=True):
        known = simkit.replay(study.trace, row["policy"]).records()[0]
        assert row["emitted_per_step"] == pytest.approx(known["emitted"] / known["steps"])
        assert row["verified"] == pytest.approx(known["proposed"] / known["steps"])
        assert row["verified"] <= row["nodes"]


@pytest.mark.parametrize("which", ["study", "parallel"])
def test_nothing_is_above_its_prophet(which, request):
    found = by_budget(request.getfixturevalue(which), BUDGETS[::3])
    level = {label: e.value or 0.0 for label, e in found.bounds.items()}
    assert level["chain prophet"] <= level["tree prophet"]
    for label, curve in found.curves.items():
        bound = level["chain prophet" if label == "chain" else "tree prophet"]
        assert all(0 < (one.tokens.value or 0.0) <= bound + 1e-12 for one in curve)


def test_the_gap_is_closed_by_the_prophet_alone(parallel):
    frame = figures.tree_gap(parallel, cost=COST).frame
    share = dict(zip(frame["policy"], frame["of_gap"], strict=True))
    assert share.pop("tree prophet") == pytest.approx(1)
    assert all(value < 1 for value in share.values())
    at = of(parallel, COST)
    fixed_s, bound_s = at.tuned_fixed().total_s.sum(), at.replay("tree_prophet()").total_s.sum()
    chain_s = at.replay("prophet()").total_s.sum()
    assert share["chain prophet"] == pytest.approx((fixed_s - chain_s) / (fixed_s - bound_s))


def test_exits_are_tuned_on_other_prompts(parallel):
    found = exits(parallel, COST)
    (own, tuned) = found.plain
    assert own == "top_k=10, depth=7, total=60" and tuned == "tuned"
    known = simkit.replay(parallel.trace, "eagle2()", COST).records()[0]
    assert found.plain[own].total_s.sum() == pytest.approx(known["total_s"])
    assert all(policy.name == "tree_svip" for policy in found.stopped[own].choices)
    assert "charged no time" in " ".join(found.gone)


@pytest.mark.parametrize("spec", GROWN)
def test_a_step_is_grown_as_it_is_replayed(spec, study):
    """Nodes counted one by one are those of the replay, at every start."""
    layout, at = layout_of_trees(study), of(study, STEPS)
    bound = policies.parse(spec).bind(at.where)
    assert isinstance(bound, Growing)
    outcomes = bound.outcomes(layout)
    rows = np.arange(0, len(layout.trees.room), 7)
    work = outcomes.work(rows)
    for k, row in enumerate(rows):
        nodes = verified(bound, layout, int(row))
        own = layout.trees.path[layout.trees.begin[row] + nodes]
        assert own.sum() == outcomes.accepted[row]
        assert bound.whole or len(nodes) == work.verified[k]


def test_the_step_that_is_drawn(study):
    found = step_tree(study)
    run = of(study, STEPS).run(found.spec)
    assert found.accepted.sum() - 1 == max(s.accepted.max() for s, _ in run.pieces())
    assert found.verified == 16 == len(found.token) - 1 and not found.accepted.all()
    output = study.trace.sequences["output_tokens"][found.sequence].as_py()
    own = found.token[1:][found.accepted[1:]].tolist()
    assert own == output[found.start - 1 : found.start - 1 + len(own)]
    assert (found.parent[1:] >= 0).all() and (np.diff(found.depth) >= 0).all()


def test_of_many_nodes_some_are_drawn(study):
    found = figures.tree_step(study, policy="eagle2()", sequence=3, start=5)
    assert len(found.frame) == 1 + 24 and found.frame["start"].unique().to_list() == [5]
    assert "59 verified, 24 of these drawn" in found.ax.texts[-1].get_text().replace("\n", " ")
    for at, why in (((99, None), "no sequence 99"), ((0, 999), "no position 999")):
        with pytest.raises(UserError, match=why):
            step_tree(study, sequence=at[0], start=at[1])
    with pytest.raises(UserError):
        step_tree(study, "tree_prophet()")


def test_tokens_are_text_where_there_is_a_tokenizer(study):
    tokenizer = pytest.importorskip("tokenizers").Tokenizer
    known = tokenizer.from_file("traces/reference/models/target/tokenizer.json")
    spell = spelling(study.trace)
    for token in (17, 200, 517, 827, 2682):
        assert spell(token) == known.decode([token])
    assert spelling(iid(2, 8, 0.5, max_draft=4, seed=0))(17) == "[17]"


def test_what_a_lookups_trees_cannot_give_is_left_out(tmp_path):
    """No beams, no chain that goes on to the end, and no fixed tree: nodes are drafted as one."""
    shutil.copytree(traces.load("reference-trees").path or "", tmp_path / "trace")
    assert status("attach", tmp_path / "trace", "--drafter", "suffix(tree=true)") == 0
    found = figures.tree_budget(Study(traces.load(tmp_path / "trace", "suffix")), budgets=(2, 8))
    check(found)
    series = set(found.frame["series"])
    assert "likeliest" in series and "Sequoia" not in series
    with pytest.raises(UserError, match="EAGLE-2's beams"):
        exits(Study(traces.load(tmp_path / "trace", "suffix")), COST)


def test_the_map_holds_the_best_tree_against_the_best_chain(parallel):
    found = figures.tree_map(parallel, sizes=(1, 8), nodes=(4, 16), seeds=2)
    assert "cceptance and times are of different pairs" in " ".join(found.notes)
    frame = found.frame
    assert frame["nodes"].to_list() == [4, 16, 4, 16]
    assert frame["concurrency"].to_list() == [1, 1, 8, 8]
    for row in frame.iter_rows(named=True):
        assert row["over_chain_lo"] <= row["over_chain"] <= row["over_chain_hi"]
        policy = simkit.policies.parse(row["tree"])
        assert getattr(policy, "nodes", getattr(policy, "budget", 0)) == row["nodes"]
