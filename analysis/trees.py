"""What draft trees are worth on a trace: by nodes, against chains, and with exits."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from analysis.gap import parts
from analysis.labelled_replays import replays, tuned, without
from analysis.replays import FAMILIES, Replayed, of
from analysis.speeds import speed, speedup
from analysis.stats import Estimate, clusters
from analysis.study import MissingError, Study, attached
from simkit.drafters.tree import TreeLayout, where_trees
from simkit.simulator.arguments import AnyCost
from simkit.trees.growing import Growing
from traces.errors import UserError
from traces.scores import file_name
from traces.trees.shapes import Beams, BestFirst

BUDGETS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 60)
TOTALS = (4, 6, 9, 13, 17, 25, 33, 49, 60)  # of EAGLE-2's trees that are tried, the root counted
STEPS = "linear(draft_s=0, target_s=1)"
"""Passes of the target alone take time, so that a prophet's steps are the fewest that there are."""
THRESHOLDS = tuple(round(0.2 * k, 1) for k in range(2, 13))  # of SVIP
RISKS = (0.3, 0.5, 0.7, 0.8, 0.9, 0.95, 0.98, 0.995)  # h of the acceptance head
HEAD, ON_TREES = "acceptance_head", "tree_acceptance_head"
Families = dict[str, "str | tuple[str, ...]"]


def tree_study(study: Study) -> Study:
    """The study itself, if its drafts are trees; of a recording that of an attached drafter's.

    Of several the first that reads the target's features comes first, as EAGLE does.

    Raises:
        MissingError: there are none.
    """
    trace = study.trace
    if trace.manifest.kind == "tree":
        return study
    found = [one for _, one in attached(trace) if one.manifest.kind == "tree"]
    if not found:
        raise MissingError(f"needs trees: {where_trees(trace)}")
    found.sort(key=lambda one: not (one.manifest.spec or "").startswith("feature"))
    return Study(found[0], study.first_token)


def name_of(study: Study) -> str:
    """The drafter, for a caption."""
    trace = study.trace
    return trace.path.name if trace.path and trace.recording else "the trace's drafter"


def layout_of_trees(study: Study) -> TreeLayout:
    """The trees of a study; raises as `tree_study` does."""
    if not isinstance(study.layout, TreeLayout):
        raise MissingError(f"needs trees: {where_trees(study.trace)}")
    return study.layout


class Beam(NamedTuple):
    """EAGLE-2's beams as they were recorded.

    Attributes:
        widths: of which there are trees, ascending.
        depth: below the first level, of the widest one.
    """

    widths: tuple[int, ...]
    depth: int


def beams(study: Study) -> Beam | None:
    """Those that were recorded as deep as the widest; None where there are none."""
    found = [shape for shape in layout_of_trees(study).shapes if isinstance(shape, Beams)]
    if not found:
        return None
    widest = max(shape.top_k for shape in found)
    depth = max(shape.depth for shape in found if shape.top_k == widest)
    widths = {shape.top_k for shape in found if shape.depth >= depth}
    return Beam(tuple(sorted(widths)), depth)


def eagle2(top_k: int, levels: int, total: int) -> str:
    """A spec of so many levels, no more than there are nodes for."""
    return f"eagle2(top_k={top_k}, depth={min(levels, total - 1) - 1}, total={total})"


def _likeliest(study: Study) -> BestFirst | None:
    """The largest recorded tree of the likeliest nodes."""
    found = [shape for shape in layout_of_trees(study).shapes if isinstance(shape, BestFirst)]
    return max(found, key=lambda shape: shape.budget, default=None)


class TreeBudget(NamedTuple):
    """What so many nodes give.

    Attributes:
        nodes: that are verified at most.
        spec: the policy.
        verified: nodes a step.
        tokens: of the output, a step.
    """

    nodes: int
    spec: str
    verified: Estimate
    tokens: Estimate


class Budgets(NamedTuple):
    """Policies by nodes.

    Attributes:
        curves: by policy, ascending in nodes; those that the trace cannot give are left out.
        bounds: the most tokens a step that a tree of the recorded nodes gives, and a chain.
        gone: a line for each that is left out, with the reason.
    """

    curves: dict[str, list[TreeBudget]]
    bounds: dict[str, Estimate]
    gone: list[str]


def by_budget(study: Study, budgets: Iterable[int] = BUDGETS) -> Budgets:
    """Output tokens a step by nodes verified. Sequoia's trees are fitted to the same prompts.

    Args:
        study: of a trace of trees.
        budgets: nodes, the root apart.

    Raises:
        MissingError: see `tree_study`.
    """
    ascending = sorted(set(budgets))
    at, beam, likely = of(study, STEPS), beams(study), _likeliest(study)
    specs: dict[str, dict[int, str]] = {"Sequoia": {n: f"sequoia({n})" for n in ascending}}
    if beam:
        widest, levels = beam.widths[-1], beam.depth + 1
        specs["EAGLE-2"] = {n: eagle2(widest, levels, n + 1) for n in ascending}
    if likely:
        more = f"least={likely.least!r}, top_k={likely.top_k}, depth={likely.depth}"
        within = [n for n in ascending if n <= likely.budget]
        specs["likeliest"] = {n: f"best_first({n}, {more})" for n in within}
    longest = min(study.trace.max_draft, ascending[-1])
    specs["chain"] = {n: f"fixed({n})" for n in range(1, longest + 1)}
    specs |= {"tree prophet": {0: "tree_prophet()"}, "chain prophet": {0: "prophet()"}}
    curves: dict[str, list[TreeBudget]] = {}
    why: dict[str, str] = {}
    for label, mine in specs.items():
        try:
            runs = {n: at.replay(spec) for n, spec in mine.items()}
        except UserError as error:
            why[label] = str(error)
            continue
        curves[label] = [
            TreeBudget(n, one.spec, _per_step(one, "proposed"), _per_step(one, "emitted"))
            for n, one in runs.items()
        ]
    bounds = {
        label: curves.pop(label)[0].tokens
        for label in ("tree prophet", "chain prophet")
        if label in curves
    }
    return Budgets(curves, bounds, without(why))


def _per_step(one: Replayed, count: str) -> Estimate:
    return clusters.ratio(one.counts[count], one.counts["steps"])


def families(study: Study) -> Families:
    """Policies that draft trees, each with the settings that are tried, as far as recorded."""
    beam, likely = beams(study), _likeliest(study)
    deepest = study.trace.max_draft
    depths = sorted({d for d in (1, 2, 3, 5, deepest) if d <= deepest})
    found: Families = {
        "Sequoia": tuple(f"sequoia({t - 1}, depth={d})" for t in TOTALS for d in depths)
    }
    if beam:
        shapes = [(k, d, t) for k, d in _sizes(beam) for t in TOTALS if t > d + 1]
        found["EAGLE-2"] = tuple(f"eagle2(top_k={k}, depth={d}, total={t})" for k, d, t in shapes)
        deep = [(k, t) for k, d, t in shapes if d == beam.depth]
        found["EAGLE-2 + SVIP"] = tuple(
            spec for k, t in deep for spec in with_svip(k, beam.depth, t, THRESHOLDS[::2])
        )
        if has_head(study):
            found["EAGLE-2 + head"] = tuple(
                spec for k, t in deep for spec in with_head(k, beam.depth, t, RISKS[::2])
            )
        found["EAGLE-2 + best rate"] = tuple(
            f"best_rate(top_k={k}, depth={beam.depth}, total={t})" for k, t in deep
        )
    if likely:
        found["likeliest"] = tuple(
            f"best_first({n}, least={likely.least!r}, top_k={likely.top_k}, depth={d})"
            for n in (t - 1 for t in TOTALS)
            for d in depths
            if n <= likely.budget and d <= likely.depth
        )
    return found


def _sizes(beam: Beam) -> list[tuple[int, int]]:
    """Widths and depths of beams that are tried."""
    widths = [k for k in beam.widths if k in (1, 2, 4, 6, beam.widths[-1])]
    depths = sorted({d for d in (1, 2, 3, 5) if d < beam.depth} | {beam.depth})
    return [(k, d) for k in widths for d in depths]


def with_svip(
    top_k: int, depth: int, total: int, thresholds: Iterable[float] = THRESHOLDS
) -> tuple[str, ...]:
    """Specs of `tree_svip` on these beams, by threshold, asked at every level and every second."""
    more = f"top_k={top_k}, depth={depth}, total={total}"
    return tuple(f"tree_svip(h={h}, every={e}, {more})" for h in thresholds for e in (1, 2))


def has_head(study: Study) -> bool:
    """Whether the trees' nodes have the acceptance head's scores."""
    return study.trace.extra(file_name(HEAD)) is not None


def with_head(
    top_k: int, depth: int, total: int, risks: Iterable[float] = RISKS
) -> tuple[str, ...]:
    """Specs of `tree_acceptance_head` on these beams, by threshold."""
    more = f"top_k={top_k}, depth={depth}, total={total}"
    return tuple(f"{ON_TREES}(h={h}, {more})" for h in risks)


class ClosedGap(NamedTuple):
    """What a policy closes of the gap between the tuned fixed chain and the prophet of trees.

    Attributes:
        spec: that most folds chose.
        of_gap: the share of the gap's seconds that it saves; below 0 where it takes longer.
        speedup: over the target alone.
        against: over the tuned fixed chain.
    """

    spec: str
    of_gap: Estimate
    speedup: Estimate
    against: Estimate


class TreeGap(NamedTuple):
    """The gap, and who closes how much of it.

    Attributes:
        fixed: the tuned fixed chain.
        policies: by label; the prophets of chains and of trees come last.
        gone: a line for each that is left out, with the reason.
    """

    fixed: Replayed
    policies: dict[str, ClosedGap]
    gone: list[str]


def tree_gap(study: Study, cost: AnyCost | None = None) -> TreeGap:
    """Split the time between the tuned fixed chain and the prophet of trees, policy by policy.

    Arguments are tuned on other prompts, see `Replays.tuned`; Sequoia's trees and the rates of
    `best_rate` are fitted to all of them.

    Raises:
        MissingError: there are no times, or no trees.
    """
    wanted: Families = {"fixed": FAMILIES["fixed"], "chain + SVIP": FAMILIES["SVIP"]}
    wanted |= families(study)
    wanted |= {"chain prophet": "prophet()", "tree prophet": "tree_prophet()"}
    found, gone = tuned(study, wanted, cost)
    if not {"fixed", "tree prophet"} <= found.keys():
        raise MissingError("; ".join(gone))
    fixed, bound = found["fixed"], found["tree prophet"]
    policies = {}
    for label, one in found.items():
        if label == "fixed":
            continue
        split = parts(fixed.total_s, one.total_s, one.seconds["policy_s"], bound.total_s)
        share = clusters.ratio(split["reachable"], split["gap"])
        policies[label] = ClosedGap(one.spec, share, speedup(one), speed(one, fixed))
    return TreeGap(fixed, policies, gone + untimed(study, found, cost))


@dataclass(frozen=True, eq=False)
class Exits:
    """EAGLE-2 with and without an exit.

    Attributes:
        plain: by shape, the trees without it.
        stopped: by shape, with it, the threshold tuned on other prompts.
        gone: what is left out, and why.
    """

    plain: Mapping[str, Replayed]
    stopped: Mapping[str, Replayed]
    gone: list[str]


def own_beam(study: Study) -> tuple[int, int, int]:
    """The widest recorded beams and EAGLE-2's own number of nodes: `top_k`, `depth`, `total`.

    Raises:
        MissingError: there are none.
    """
    beam = beams(study)
    if beam is None:
        raise MissingError("needs EAGLE-2's beams: attach with --tree 'eagle2(…)'")
    return beam.widths[-1], beam.depth, max(60, beam.depth + 2)


def exits(study: Study, cost: AnyCost | None = None, rule: str = "SVIP") -> Exits:
    """An exit on trees of EAGLE-2's own settings, and on those that are fastest on other prompts.

    Args:
        study: of a trace of trees.
        cost: see `simkit.replay`.
        rule: SVIP, or head.

    Raises:
        MissingError: there are no times, no beams, or no scores of the head.
    """
    own = own_beam(study)
    if rule == "head" and not has_head(study):
        raise MissingError("needs a head's scores of the nodes: simkit score")
    label = "top_k={}, depth={}, total={}".format(*own)
    plain, gone = replays(study, {label: "eagle2(top_k={}, depth={}, total={})".format(*own)}, cost)
    mine = families(study)
    found, why = tuned(
        study,
        {
            "own": (with_head if rule == "head" else with_svip)(*own),
            "plain": mine["EAGLE-2"],
            "exit": mine[f"EAGLE-2 + {rule}"],
        },
        cost,
    )
    return Exits(
        {label: plain[label], "tuned": found["plain"]},
        {label: found["own"], "tuned": found["exit"]},
        [*gone.values(), *why, *untimed(study, {f"{rule} on trees": found["own"]}, cost)],
    )


def untimed(study: Study, found: Mapping[str, Replayed], cost: AnyCost | None) -> list[str]:
    """What to say of rules that look at trees and whose decisions are charged nothing."""
    charge = of(study, cost).charge
    rules = {label: one.policy for label, one in found.items() if isinstance(one.policy, Growing)}
    free = [label for label, rule in rules.items() if rule.looks and not charge.call_s(rule)]
    return [f"Decisions of {', '.join(free)} are charged no time."] if free else []
