"""Every tree policy replays, step by step, what a plain decoder of trees does."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import plain_trees
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from plain_exits import BestRate
from plain_trees import PLAIN, Step, Study, Toy

import simkit
from simkit import policies
from simkit.costs import Linear
from simkit.drafters import layout_of
from simkit.policies import Setting
from simkit.simulator.step_costs import Charge
from simkit.steps.tree import FAMILY as TREES
from simkit.trees import TreePolicy
from traces.trace import Trace
from traces.validate import validate
from traces.writer import save

NAMES = [name for name in policies.names() if issubclass(policies.get(name), TreePolicy)]
FIRST = {"draft": 1, "prefill": 2}


@st.composite
def rank_paths(draw: st.DrawFn, width: int, depth: int) -> list[plain_trees.Path]:
    """A tree of up to twelve nodes, in any order."""
    found: list[plain_trees.Path] = [()]
    for _ in range(draw(st.integers(1, 12))):
        parent = draw(st.sampled_from([path for path in found if len(path) < depth]))
        child = (*parent, draw(st.integers(0, width - 1)))
        found += [child] * (child not in found)
    return draw(st.permutations(found[1:]))


def spec_of(paths) -> str:
    return f"static({[list(path) for path in paths]})"


@st.composite
def beams(draw: st.DrawFn) -> dict:
    top_k, depth = draw(st.integers(1, 4)), draw(st.integers(0, 3))
    return {"top_k": top_k, "depth": depth}


@st.composite
def shape_specs(draw: st.DrawFn) -> str:
    """A shape, which is a policy's spec too."""
    which = draw(st.sampled_from(["eagle2", "static", "best_first"]))
    if which == "eagle2":
        return "eagle2(top_k={top_k}, depth={depth})".format(**draw(beams()))
    if which == "static":
        width, depth = draw(st.integers(1, 4)), draw(st.integers(1, 4))
        return spec_of(draw(rank_paths(width, depth)))
    budget, least = draw(st.integers(1, 9)), draw(st.sampled_from([0, 0.0625, 0.1, 0.25, 0.5]))
    top_k, depth = draw(st.integers(1, 4)), draw(st.integers(1, 4))
    return f"best_first({budget}, least={least}, top_k={top_k}, depth={depth})"


def outputs_of(toy: Toy, t_max: int, many: int, follow: float, seed: int) -> tuple:
    """Outputs that take likely tokens of the draft, as often as `follow` says, else any."""
    rng, found = np.random.default_rng(seed), []
    for _ in range(many):
        output: plain_trees.Path = ()
        while len(output) < t_max and not (output and output[-1] in toy.eos):
            said = toy.said(0, output)
            rank = min(int(rng.geometric(0.6)) - 1, len(said) - 1)
            token = said[rank][0] if rng.random() < follow else int(rng.integers(toy.vocab))
            output = (*output, token)
        found.append(output)
    return tuple(found)


@st.composite
def studies(draw: st.DrawFn) -> Study:
    """A few short outputs of a made-up draft, and the shapes that were recorded."""
    toy = Toy(
        seed=draw(st.integers(0, 2**16)),
        vocab=draw(st.integers(2, 6)),
        kind=draw(st.sampled_from(["dyadic", "few", "smooth"])),
        by_start=draw(st.booleans()),
        eos=draw(st.sampled_from([(), (0,), (0, 1)])),
    )
    t_max = draw(st.integers(1, 7))
    follow, seed = draw(st.sampled_from([0.3, 0.8, 1.0])), draw(st.integers(0, 99))
    outputs = outputs_of(toy, t_max, draw(st.integers(1, 3)), follow, seed)
    shapes = tuple(dict.fromkeys(draw(st.lists(shape_specs(), min_size=1, max_size=3))))
    known = [policies.parse(spec) for spec in shapes]
    width = max(width_of(policy) for policy in known)
    depth = max(policy.levels for policy in known)
    return Study(toy, outputs, t_max, shapes, width, depth)


def with_beams(study: Study, top_k: int, depth: int) -> Study:
    """A study in which these beams were recorded, too."""
    shapes = (*study.shapes, f"eagle2(top_k={top_k}, depth={depth})")
    wide = max(study.width, top_k), max(study.depth, depth + 1)
    return Study(study.toy, study.outputs, study.t_max, shapes, *wide)


def width_of(policy) -> int:
    return policy.shape.width if policy.name == "static" else policy.top_k


def recorded(study: Study, **more) -> Trace:
    return plain_trees.record(study, [policies.parse(spec) for spec in study.shapes], **more)


def replayed(spec: str, trace: Trace, first: int, cost: Linear | None = None) -> list[Step]:
    layout = layout_of(trace)
    charge = Charge(cost.times(trace), layout, first) if cost else None
    return visited(spec, Setting(layout, charge, first))


def visited(spec: str, setting: Setting, span: tuple[int, int] | None = None) -> list[Step]:
    """The steps of a policy on a layout that others may have been replayed on."""
    policy = policies.parse(spec).bind(setting)
    assert isinstance(policy, TreePolicy)
    found = TREES.walk(policy, setting.layout, setting.first, span)
    counts = (found.sequence, found.start, found.drafted, found.proposed, found.accepted)
    rows = zip(*(c.tolist() for c in (*counts, found.emitted)), strict=True)
    widths = [tuple(width for width in row if width) for row in found.widths.tolist()]
    assert all(0 not in row[: len(w)] for row, w in zip(found.widths.tolist(), widths, strict=True))
    assert found.draft_passes.tolist() == [len(width) for width in widths]
    assert found.asked.tolist() == found.drafted.tolist()
    calls = found.work.calls.tolist()
    return [Step(*row, w, c) for row, w, c in zip(rows, widths, calls, strict=True)]


def check(spec: str, study: Study, trace: Trace, first: int) -> None:
    assert replayed(spec, trace, first) == plain_trees.steps(policies.parse(spec), study, first)


firsts = st.sampled_from(list(FIRST.values()))
runs = settings(max_examples=60, deadline=None)


def test_every_policy_has_a_plain_version():
    """`test_trees_bounds` has the prophet's."""
    assert {*PLAIN, "best_rate", "tree_prophet"} == set(NAMES)


@runs
@given(study=studies(), first=firsts)
def test_what_was_recorded_is_replayed(study, first):
    trace = recorded(study)
    for spec in study.shapes:
        check(spec, study, trace, first)


@runs
@given(study=studies(), first=firsts, data=st.data())
def test_eagle2_of_any_budget_and_depth(study, first, data):
    given_ = data.draw(beams())
    study = with_beams(study, **given_)
    trace = recorded(study)
    for depth in range(given_["depth"] + 1):
        total = data.draw(st.integers(depth + 2, 30))
        check(f"eagle2(top_k={given_['top_k']}, depth={depth}, total={total})", study, trace, first)


@runs
@given(study=studies(), first=firsts, data=st.data())
def test_beams_that_exit(study, first, data):
    given_ = data.draw(beams())
    study = with_beams(study, **given_)
    trace = recorded(study)
    for depth in range(given_["depth"] + 1):
        total, every = data.draw(st.integers(depth + 2, 30)), data.draw(st.integers(1, 3))
        h = data.draw(st.sampled_from([0, 0.5, 0.75, 0.9, 1.0, 1.1, 9]))
        spec = f"tree_svip({h}, every={every}, top_k={given_['top_k']}, depth={depth}"
        check(f"{spec}, total={total})", study, trace, first)


@runs
@given(study=studies(), first=firsts, data=st.data())
def test_beams_that_a_head_stops(study, first, data):
    given_ = data.draw(beams())
    study = with_beams(study, **given_)
    trace = plain_trees.with_scores(recorded(study), study)
    for depth in range(given_["depth"] + 1):
        total = data.draw(st.integers(depth + 2, 30))
        h = data.draw(st.sampled_from([0, 0.05, 0.1, 0.5, 0.75, 0.95, 0.9921875, 1]))
        for variant in ("paper", "code"):
            spec = f"tree_acceptance_head({h}, variant={variant}, top_k={given_['top_k']}"
            check(f"{spec}, depth={depth}, total={total})", study, trace, first)


@runs
@given(study=studies(), first=firsts, h=st.sampled_from([0, 0.1, 0.5, 0.75, 0.95, 1]))
def test_a_head_on_a_beam_of_one_is_that_of_chains(study, first, h):
    """To the last count: the chain of best children, and its rule with a lag."""
    study = of_beams(study, 1, (3,))
    trace = plain_trees.with_scores(recorded(study), study)
    tree = f"tree_acceptance_head({h}, top_k=1, depth=3, total=9)"
    names = ("steps", "proposed", "accepted", "emitted", "draft_passes")
    one, other = (
        simkit.replay(trace, spec, first_token=list(FIRST)[first - 1], by="sequence").records()
        for spec in (tree, f"acceptance_head({h}, max_draft=4)")
    )
    assert [[r[n] for n in names] for r in one] == [[r[n] for n in names] for r in other]


costs = st.builds(
    Linear,
    draft_s=st.sampled_from([0.0, 0.1, 0.7, 3.0]),
    target_s=st.sampled_from([0.3, 1.1, 4.3]),
    draft_per_token_s=st.sampled_from([0.0, 0.05]),
    target_per_token_s=st.sampled_from([0.0, 0.07]),
    overhead_s=st.sampled_from([0.0, 0.2]),
)


def of_beams(study: Study, top_k: int, depths: tuple[int, ...]) -> Study:
    """The same outputs with nothing but beams of one width recorded."""
    shapes = tuple(f"eagle2(top_k={top_k}, depth={depth})" for depth in sorted(set(depths)))
    return replace(study, shapes=shapes, width=top_k, depth=max(depths) + 1)


@runs
@given(
    study=studies(),
    first=firsts,
    cost=costs,
    given_=beams(),
    folds=st.integers(2, 4),
    further=st.integers(0, 2),
)
def test_the_best_rate_is_a_fixed_point(study, first, cost, given_, folds, further):
    """Also where deeper trees were recorded, which it does not look at."""
    assume(len(set(study.outputs)) == len(study.outputs))
    top_k, depth = given_["top_k"], given_["depth"]
    study = of_beams(study, top_k, (depth, depth + further))
    spec = f"best_rate({folds}, top_k={top_k}, depth={depth}, total={depth + 4})"
    expected = BestRate(policies.parse(spec), study, cost, first).fixed_point()
    assert replayed(spec, recorded(study), first, cost) == expected


def test_the_best_rate_bites():
    """It stops some drafts, and differs from the beams that it stops, on most of many studies."""
    cost, differ = Linear(draft_s=0.3, target_s=2.0, target_per_token_s=0.02), 0
    for seed in range(12):
        toy = Toy(seed, kind=("dyadic", "few", "smooth")[seed % 3])
        study = Study(toy, outputs_of(toy, 7, 6, 0.9, seed), 7, (), 1, 1)
        trace = recorded(of_beams(study, 3, (3,)))
        rule = replayed("best_rate(2, top_k=3, depth=3, total=12)", trace, 1, cost)
        whole = replayed("eagle2(top_k=3, depth=3, total=12)", trace, 1)
        differ += [step[:6] for step in rule] != [step[:6] for step in whole]
    assert differ > 4


@runs
@given(study=studies(), first=firsts, data=st.data())
def test_smaller_best_first_trees_nest(study, first, data):
    spec = "best_first(8, least=0.05, top_k=3, depth=4)"
    wide = max(study.width, 3), max(study.depth, 4)
    study = Study(study.toy, study.outputs, study.t_max, (*study.shapes, spec), *wide)
    trace = recorded(study)
    for _ in range(3):
        budget, depth = data.draw(st.integers(1, 8)), data.draw(st.integers(1, 4))
        least = data.draw(st.sampled_from([0.05, 0.0625, 0.125, 0.3, 1]))
        smaller = f"best_first({budget}, least={least}, top_k=3, depth={depth})"
        check(smaller, study, trace, first)


@runs
@given(study=studies(), first=firsts, data=st.data())
def test_any_rank_paths_within_depth_and_width(study, first, data):
    paths = data.draw(rank_paths(study.width, study.depth))
    check(spec_of(paths), study, recorded(study), first)


@runs
@given(
    study=studies(),
    first=firsts,
    budget=st.integers(1, 12),
    by=st.sampled_from(["paths", "ranks"]),
    depth=st.integers(0, 3),
)
def test_sequoia_is_fitted_to_all_starts(study, first, budget, by, depth):
    check(f"sequoia({budget}, by={by}, depth={depth})", study, recorded(study), first)


@settings(max_examples=60, deadline=None)
@given(study=studies(), first=st.sampled_from(list(FIRST)))
def test_the_table_of_steps_says_the_same(study, first):
    trace = recorded(study)
    table = simkit.replay(trace, list(study.shapes), first_token=first, by="step")
    for spec in study.shapes:
        policy = policies.parse(spec)
        rows = table.steps(policy).select("drafted", "proposed", "accepted", "emitted").rows()
        expected = plain_trees.steps(policy, study, FIRST[first])
        assert rows == [(s.drafted, s.verified, s.accepted, s.emitted) for s in expected]
        assert sum(s.emitted for s in expected) == sum(
            max(0, len(y) + 1 - FIRST[first]) for y in study.outputs
        )


@settings(max_examples=60, deadline=None)
@given(study=studies(), other=shape_specs())
def test_what_else_was_recorded_changes_nothing(study, other):
    policy = policies.parse(other)
    wide = max(study.width, width_of(policy)), max(study.depth, policy.levels)
    more = Study(study.toy, study.outputs, study.t_max, (*study.shapes, other), *wide)
    narrow, wider = recorded(study), recorded(more)
    for spec in study.shapes:
        assert replayed(spec, narrow, 1) == replayed(spec, wider, 1)


@settings(max_examples=60, deadline=None)
@given(study=studies(), data=st.data())
def test_neither_order_nor_span_changes_anything(study, data):
    """What was found of some starts is kept; a replay of other depths and sequences finds more."""
    top_k, n = data.draw(st.integers(1, 3)), len(study.outputs)
    study = of_beams(study, top_k, (3,))
    trace, first = recorded(study), data.draw(firsts)
    setting = Setting(layout_of(trace), None, first)
    depths = data.draw(st.permutations([0, 1, 2, 3, 3]))
    for depth in depths:
        total = data.draw(st.integers(depth + 2, 12))
        name = data.draw(st.sampled_from(["eagle2(", "tree_svip(0.9, "]))
        spec = f"{name}top_k={top_k}, depth={depth}, total={total})"
        low = data.draw(st.integers(0, n - 1))
        span = low, data.draw(st.integers(low, n))
        whole = plain_trees.steps(policies.parse(spec), study, first)
        assert visited(spec, setting, span) == [s for s in whole if span[0] <= s.sequence < span[1]]
    assert visited(spec, setting) == whole


@pytest.mark.parametrize(("word", "passes"), [("draft", 1), ("block", 1), ("none", 0)])
def test_a_drafter_of_one_pass_or_none(word, passes):
    toy = Toy(3, vocab=4)
    outputs = outputs_of(toy, 6, 3, 0.9, 1)
    study = Study(toy, outputs, 6, ("eagle2(top_k=2, depth=2)",), 2, 3)
    layout = layout_of(recorded(study, draft_passes=word))
    found = TREES.walk(policies.parse(study.shapes[0]), layout, 1)
    plain = plain_trees.steps(policies.parse(study.shapes[0]), study, 1)
    assert found.draft_passes.tolist() == [min(passes, len(s.widths)) for s in plain]
    assert found.accepted.tolist() == [s.accepted for s in plain]


@settings(max_examples=10, deadline=None)
@given(study=studies())
def test_such_a_trace_is_valid(tmp_path_factory, study):
    trace = recorded(study)
    folder = tmp_path_factory.mktemp("trees") / "t"
    save(trace, folder, batch_size=2)
    assert validate(folder) == []
    again = simkit.replay(folder, list(study.shapes), by="sequence").records()
    assert again == simkit.replay(trace, list(study.shapes), by="sequence").records()


def test_equal_nodes_go_to_the_lower_level_then_to_the_earlier_path():
    """Two tokens of 1/2 each: every node of a level is as likely as every other one."""
    toy = Toy(0, vocab=2, eos=())
    start = plain_trees.Start(toy, (0, 0, 0), 1, 3)
    done = plain_trees.beams(start, 2, 2, 4)
    assert done.verified == {(0,), (1,), (0, 0), (0, 1)}


def test_the_plain_draft_is_a_distribution_with_ties():
    for kind in ("dyadic", "few", "smooth"):
        said = Toy(5, vocab=5, kind=kind).said(1, (2, 3))
        assert sum(np.exp(log_prob) for _, log_prob in said) == pytest.approx(1, abs=1e-6)
        assert [log_prob for _, log_prob in said] == sorted((x for _, x in said), reverse=True)
    equal = [x for _, x in Toy(5, vocab=5).said(1, (2, 3))]
    assert len(set(equal)) < len(equal)
