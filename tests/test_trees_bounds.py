"""What no tree can beat: Sequoia's of so many nodes, by brute force, and the prophet of trees."""

from __future__ import annotations

from collections import Counter
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from plain_trees import Path, Study
from test_trees_plain import recorded, spec_of, studies

import simkit
from simkit import policies
from simkit.costs import Linear
from simkit.drafters import layout_of
from simkit.policies import Setting
from simkit.simulator.run import run
from simkit.simulator.step_costs import Charge
from simkit.trees import TreePolicy
from simkit.trees.sequoia import acceptance_by_rank, most_taken, most_worth
from traces.trace import Trace

WIDTH, DEPTH = 3, 3


@cache
def trees(nodes: int, width: int = WIDTH, depth: int = DEPTH) -> list[frozenset[Path]]:
    """Every tree of so many nodes, the root apart."""
    if nodes == 0:
        return [frozenset()]
    found = {
        tree | {(*parent, rank)}
        for tree in trees(nodes - 1, width, depth)
        for parent in [(), *tree]
        if len(parent) < depth
        for rank in range(width)
        if (*parent, rank) not in tree
    }
    return sorted(found, key=sorted)


def taken_by(tree: frozenset[Path], ranks: np.ndarray) -> int:
    """Accepted tokens of a tree over all rows of ranks."""
    total = 0
    for row in ranks.tolist():
        node: Path = ()
        while len(node) < len(row) and (*node, row[len(node)]) in tree:
            node = (*node, row[len(node)])
        total += len(node)
    return total


def rank_table(rng: np.random.Generator, rows: int, depth: int = DEPTH) -> np.ndarray:
    """Rows of ranks, -1 from where the output's token is none of the children."""
    chances = rng.dirichlet([3, 2, 1, 2])
    found = rng.choice([0, 1, 2, -1], (rows, depth), p=chances)
    gone = np.logical_or.accumulate(found < 0, axis=1)
    return np.where(gone, -1, found).astype(np.int32)


def test_all_trees_are_counted():
    """As many as there are ternary trees: C(3n, n) / (2n + 1) of n nodes, the root among them."""
    assert [len(trees(n, WIDTH, 9)) for n in range(5)] == [1, 3, 12, 55, 273]
    assert len(trees(5)) < len(trees(5, WIDTH, 9)) == 1428


@pytest.mark.parametrize("budget", [1, 2, 3, 4, 5])
def test_no_tree_takes_more_than_sequoia(budget):
    rng = np.random.default_rng(budget)
    for trial in range(12):
        ranks = rank_table(rng, rows=int(rng.integers(0, 30)))
        found = most_taken(ranks, budget, WIDTH)
        assert len(set(found)) == budget and frozenset(found) in trees(budget)
        counts = Counter(
            tuple(row[:d]) for row in ranks.tolist() for d in (1, 2, 3) if row[d - 1] >= 0
        )
        values = [sum(counts[path] for path in tree) for tree in trees(budget)]
        assert sum(counts[path] for path in found) == max(values), trial
        assert taken_by(frozenset(found), ranks) == max(values)
        some = int(rng.integers(len(values)))
        assert taken_by(trees(budget)[some], ranks) == values[some]


def best_subtree(
    rates: tuple[float, ...], nodes: int, depth: int, first_alone: bool = False
) -> float:
    """Sequoia's recurrence: the most that so many nodes below one are worth, given it is accepted.

    The r-th child and all below it are a tree of n_r nodes, of which the child is one; its worth is
    that of the child's own tree, times the chance that it is the output's token. In the paper
    a node's children are its first ones (`first_alone`); here any.
    """

    @cache
    def below(nodes: int, depth: int) -> float:
        return spread(0, nodes, depth) if depth else 0.0

    @cache
    def spread(rank: int, nodes: int, depth: int) -> float:
        if rank == len(rates) or nodes == 0:
            return 0.0
        return max(
            (rates[rank] * (1 + below(n - 1, depth - 1)) if n else 0.0)
            + (spread(rank + 1, nodes - n, depth) if n or not first_alone else 0.0)
            for n in range(nodes + 1)
        )

    return below(nodes, depth)


@pytest.mark.parametrize("budget", [1, 2, 3, 4, 5])
def test_sequoias_programme_over_ranks_is_brute_force(budget):
    rng = np.random.default_rng(10 + budget)
    for _ in range(12):
        ranks = rank_table(rng, rows=int(rng.integers(1, 40)))
        rates = acceptance_by_rank(ranks, WIDTH)

        def worth(tree, rates=rates):
            return sum(np.prod(rates[list(path)]) for path in tree)

        found = worth(most_worth(ranks, budget, WIDTH))
        assert found == pytest.approx(max(map(worth, trees(budget))), abs=1e-12)
        assert found == pytest.approx(best_subtree(tuple(rates), budget, DEPTH), abs=1e-12)


def test_the_papers_programme_is_worth_less_where_a_later_rank_is_taken_more_often():
    """Of one node: the second child, 2 of 4, which the paper reaches by the first, 1 of 4."""
    ranks = np.array([[0], [1], [1], [-1]], np.int32)
    rates = tuple(acceptance_by_rank(ranks, 2).tolist())
    assert rates == (0.25, 0.5) and most_worth(ranks, 1, 2) == ((1,),)
    assert (best_subtree(rates, 1, 1), best_subtree(rates, 1, 1, first_alone=True)) == (0.5, 0.25)


@pytest.mark.parametrize("budget", [1, 2, 3, 5, 8])
def test_the_papers_programme_is_worth_as_much_where_rates_fall_with_rank(budget):
    rng = np.random.default_rng(20 + budget)
    for _ in range(12):
        rates = tuple(acceptance_by_rank(rank_table(rng, rows=int(rng.integers(1, 40))), WIDTH))
        papers = best_subtree(rates, budget, DEPTH, first_alone=True)
        assert papers <= best_subtree(rates, budget, DEPTH) + 1e-12
        falling = tuple(sorted(rates, reverse=True))
        same = best_subtree(falling, budget, DEPTH, first_alone=True)
        assert same == pytest.approx(best_subtree(falling, budget, DEPTH), abs=1e-12)


@pytest.mark.parametrize(("budget", "depth"), [(8, 8), (16, 5), (24, 8)])
def test_larger_trees_are_worth_what_the_programme_says(budget, depth):
    ranks = rank_table(np.random.default_rng(budget), 60, depth)
    rates = acceptance_by_rank(ranks, WIDTH)
    found = most_worth(ranks, budget, WIDTH)
    assert sum(np.prod(rates[list(path)]) for path in found) == pytest.approx(
        best_subtree(tuple(rates), budget, depth), abs=1e-12
    )


def everywhere(spec: str, layout) -> int:
    """Accepted tokens of a policy over all starts of a trace."""
    policy = policies.parse(spec).bind(Setting(layout, None, 1))
    assert isinstance(policy, TreePolicy)
    return int(policy.outcomes(layout).accepted.sum())


@settings(max_examples=25, deadline=None)
@given(study=studies(), budget=st.integers(1, 4))
def test_no_fixed_tree_takes_more_on_a_trace(study, budget):
    layout = layout_of(recorded(study))
    width, depth = min(study.width, 3), min(study.depth, 3)
    best = everywhere(f"sequoia({budget})", layout)
    assert everywhere(f"sequoia({budget}, by=ranks)", layout) <= best
    some = trees(budget, width, depth)
    rng = np.random.default_rng(budget)
    for k in rng.choice(len(some), min(30, len(some)), replace=False):
        assert everywhere(spec_of(sorted(some[k])), layout) <= best


@settings(max_examples=25, deadline=None)
@given(study=studies())
def test_more_nodes_take_no_less(study):
    layout = layout_of(recorded(study))
    values = [everywhere(f"sequoia({budget})", layout) for budget in range(1, 8)]
    assert values == sorted(values)
    assert everywhere("sequoia(4096)", layout) >= values[-1]


seconds = st.sampled_from([0.0, 0.1, 0.5, 1.0, 3.0, 20.0])
costs = st.builds(
    Linear,
    draft_s=seconds,
    target_s=seconds,
    draft_per_token_s=st.sampled_from([0.0, 0.2]),
    target_per_token_s=st.sampled_from([0.0, 0.05, 0.3, 2.0]),
    draft_per_kv_token_s=st.sampled_from([0.0, 0.2]),
    target_per_kv_token_s=st.sampled_from([0.0, 0.1]),
    overhead_s=seconds,
    policy_s=st.sampled_from([0.0, 0.01]),
    draft_per_step=st.booleans(),
)
FITTED = ("sequoia(3)", "sequoia(5, by=ranks)")
PROPHET = "tree_prophet()"


def others(study: Study) -> tuple[str, ...]:
    """Policies that can be replayed on a study's trace, chains of best children among them."""
    deep = study.depth
    exits = []
    for spec in study.shapes:
        if spec.startswith("eagle2("):
            arguments = spec.removeprefix("eagle2(")
            exits += [f"tree_svip(0.9, {arguments}", f"best_rate(2, {arguments}"]
    chains = "autoregressive()", "fixed(1)", f"fixed({deep})", f"oracle(max_draft={deep})"
    return (*study.shapes, *FITTED, *exits, *chains)


def total_s(spec: str, trace: Trace, cost: Linear, first: int) -> tuple[float, int]:
    """Seconds of all steps and of what comes before them, and how many steps there are."""
    layout = layout_of(trace)
    charge = Charge(cost.times(trace), layout, first)
    found = run(policies.parse(spec), layout, charge, first)
    return float(found.total_s.sum()), int(found.counts["steps"].sum())


@settings(max_examples=60, deadline=None)
@given(
    study=studies(),
    cost=costs,
    first=st.sampled_from([1, 2]),
    paid=st.sampled_from(["token", "chain", "draft", "block", "none"]),
)
def test_nothing_is_faster_than_the_prophet_of_trees(study, cost, first, paid):
    trace = recorded(study, draft_passes=paid)
    bound, _ = total_s(PROPHET, trace, cost, first)
    for spec in others(study):
        if paid == "none" and spec.startswith(("static", "sequoia")):
            continue  # refused: a lookup proposes what it finds
        spent, _ = total_s(spec, trace, cost, first)
        assert bound <= spent * (1 + 1e-9) + 1e-9, spec


@settings(max_examples=40, deadline=None)
@given(study=studies(), first=st.sampled_from([1, 2]))
def test_where_drafts_are_free_none_has_more_tokens_a_step(study, first):
    trace = recorded(study)
    free = Linear(draft_s=0.0, target_s=1.0)
    _, fewest = total_s(PROPHET, trace, free, first)
    for spec in others(study):
        assert total_s(spec, trace, free, first)[1] >= fewest, spec


def searched(study: Study, trace: Trace, cost: Linear, first: int, deepest: int) -> float:
    """Seconds of the fastest plan of steps along the outputs, by search; drafts have a pass each
    level, and the draft's prefill is paid if there is any.
    """
    times, spent = cost.times(trace), 0.0
    at = lambda value: float(np.asarray(value).ravel()[0])  # noqa: E731
    for sequence, output in enumerate(study.outputs):
        known = len(trace.sequences["prompt_tokens"][sequence])

        @cache
        def behind(i: int, most: int, output=output, known=known) -> float:
            if i > len(output):
                return 0.0
            context = np.array([known + i - 1])
            levels = min(most, len(study.start(output, i).own(study.width, study.depth)))
            found = []
            for level in range(levels + 1):
                draft = sum(at(times.draft(context + d)) for d in range(level))
                verify = at(times.verify(np.array([level + 1]), context))
                end = min(i + level + 1, len(output) + 1)
                found.append(draft + verify + cost.overhead_s + behind(end, most))
            return min(found)

        prompt = np.array([known])
        drafted = behind(first, deepest) + at(times.prefill("draft", prompt))
        spent += at(times.prefill("target", prompt))
        spent += min(drafted, behind(first, 0)) if trace.manifest.draft_passes != "none" else 0.0
    return spent


@settings(max_examples=60, deadline=None)
@given(study=studies(), cost=costs, first=st.sampled_from([1, 2]), deepest=st.integers(0, 4))
def test_the_prophet_is_the_fastest_plan_there_is(study, cost, first, deepest):
    cost = Linear(**{**vars(cost), "draft_per_step": False})
    trace = recorded(study)
    found, _ = total_s(f"tree_prophet({deepest})", trace, cost, first)
    assert found == pytest.approx(searched(study, trace, cost, first, deepest), rel=1e-9, abs=1e-9)


@settings(max_examples=60, deadline=None)
@given(
    study=studies(),
    cost=costs,
    first=st.sampled_from([1, 2]),
    paid=st.sampled_from(["token", "chain", "draft", "block", "none"]),
    length=st.integers(1, 5),
)
def test_a_tree_of_one_child_each_is_a_chain(study, cost, first, paid, length):
    """In its steps and in its seconds, however drafts are paid."""
    one = f"eagle2(top_k=1, depth={length - 1})"
    shapes, deep = (*study.shapes, one), max(study.depth, length)
    study = Study(study.toy, study.outputs, study.t_max, shapes, study.width, deep)
    trace = recorded(study, draft_passes=paid)
    chain = f"fixed({length})"
    same = [one.replace(")", f", total={length + 1})")]
    # Behind an EOS token a fixed tree goes on, a chain does not; of lookups there is none.
    if not study.toy.eos and paid != "none":
        same.append(spec_of([(0,) * level for level in range(1, length + 1)]))
    first_token = {1: "draft", 2: "prefill"}[first]
    found = simkit.replay(trace, [chain, *same], cost, by="sequence", first_token=first_token)
    rows = {str(run.policy): [] for run in found.runs}
    for row in found.records():
        rows[row.pop("policy")].append(row)
    expected, *others = rows.values()
    assert len(others) == len(same)
    for other in others:
        for mine, theirs in zip(other, expected, strict=True):
            assert mine == pytest.approx(theirs)
