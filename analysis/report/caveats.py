"""What a reader of the numbers should know, and how to make them again."""

from __future__ import annotations

import platform
import shlex
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import NamedTuple

import numpy as np

from analysis.replays import FOLDS, Replays, folds, tasks
from analysis.report.timings import devices, one_each
from analysis.study import FirstToken
from simkit import costs
from simkit.policies import Policy
from simkit.simulator.arguments import AnyCost, AnyTrace
from simkit.simulator.beyond import Beyond, together
from simkit.simulator.binding import known_rule
from simkit.simulator.rule_time import said
from simkit.simulator.step_costs import free_heads
from simkit.statistics.enough import FOR_INTERVAL
from traces.errors import UserError
from traces.trace import Trace

LIBRARIES = ("draft-simkit", "numpy", "scipy", "numba", "polars", "pyarrow", "matplotlib")


class Again(NamedTuple):
    """How the page can be made again.

    Attributes:
        commands: of a shell, or a line of Python; this page's own first.
        versions: of what made it, by name.
    """

    commands: list[str]
    versions: list[tuple[str, str]]


def caveats(at: Replays, used: Sequence[Policy], beyond: Sequence[Beyond] = ()) -> list[str]:
    """What the seconds are, and what was not measured.

    Args:
        at: the trace under its cost.
        used: policies on the page.
        beyond: what of their steps lies beyond what was timed.
    """
    lines = ["Counts (steps, drafted, accepted) are exact: decoding with each policy has the same."]
    if at.study.first_token == "prefill":
        lines.append("The prompt's pass emits the first token; steps start at the second.")
    if at.timed:
        known = [*at.charge.remarks, *together(beyond)]
        lines += [f"{line[0].upper()}{line[1:]}." for line in known]
        if at.charge.drawn_anew:
            lines.append(
                "Intervals of speeds hold the spread of the timing samples as well as that of"
                " prompts; p-values and shares of time do not."
            )
        lines += [_seconds(at), *_uncharged(at, used)]
        lines.append(
            "Predicted speeds were not compared with live runs here: simkit fidelity does that."
        )
        if used and folds(at.trace) is None:
            lines.append(
                f"Fewer than {FOLDS} prompts: arguments could not be chosen on other prompts than"
                " those that policies are judged by, so tuned speeds are too good."
            )
    return [*lines, *_trace(at.trace), *_prompts(at.trace), _multiplicity()]


def again(at: Replays, name: str | None, made_by: str, sampled: str | None = None) -> Again:
    """The commands behind the page, and what ran them.

    Args:
        at: the trace under its cost.
        name: of the trace, for a shell; None if it has none.
        made_by: what made the page.
        sampled: name of the other trace; None if there is none, or it has none.
    """
    trace, cost, commands = at.trace, at.cost, [made_by]
    first = at.study.first_token
    if name is not None and (cost is None or isinstance(cost, str)):
        under = [] if cost is None else ["--cost", cost]
        under += [] if first == "draft" else ["--first-token", first]
        beside = [] if sampled is None else ["--sampled", sampled]
        commands += [
            shlex.join(["simkit", "figures", name, "--out", "figures", *under]),
            shlex.join(["simkit", "claims", name, *under, *beside]),
        ]
    found = [("trace, sha256", trace.hash), ("Python", platform.python_version())]
    found += [(library, version(library)) for library in LIBRARIES]
    return Again(commands, [*found, ("on", platform.platform())])


def call(
    name: str | None,
    cost: AnyCost | None,
    policies: Sequence[str],
    sampled: AnyTrace | None,
    figures: bool,
    first_token: FirstToken = "draft",
) -> str:
    """The line of Python that makes a page, see `report`; what has no name goes by its argument's.

    Args:
        name: of the trace; None if it is in memory.
        cost: see `report`, as for the rest.
        policies: specs.
        sampled: another trace.
        figures: whether they are drawn.
        first_token: see `simkit.replay`.
    """
    words = ["trace" if name is None else repr(name)]
    if cost is not None:
        words.append(repr(cost) if isinstance(cost, str) else "cost")
    if policies:
        words.append(f"policies={list(policies)}")
    if sampled is not None:
        there = isinstance(sampled, str | Path)
        words.append(f"sampled={str(sampled)!r}" if there else "sampled=sampled")
    if not figures:
        words.append("figures=False")
    if first_token != "draft":
        words.append(f"first_token={first_token!r}")
    made = f"report({', '.join(words)}).save('report.html')"
    return f"from analysis.report import report; {made}"


def _seconds(at: Replays) -> str:
    model = costs.parse(at.cost) if isinstance(at.cost, str) else at.cost or costs.Measured()
    table = at.trace.latency()
    if model == costs.Measured() and table is not None:
        said = "Seconds are medians of this pair's passes, each timed alone"
        if one_each(table):
            said = (
                "Seconds are means of this pair's passes as they are in running decoders (the"
                " central 90% of each shape)"
            )
        said += f", timed on {devices(table)}"
    else:
        said = f"Seconds are those of the cost {at.cost} ({model.what or model.name})"
    try:
        said += f"; c = T_target(1) ÷ T_draft(1) = {at.cost_ratio():.2f}"
    except UserError:  # drafting takes no time
        pass
    return f"{said}."


def _uncharged(at: Replays, used: Sequence[Policy]) -> list[str]:
    """What takes no time under the cost, though it would, and how rules were timed."""
    lines, charge = [], at.charge
    if charge.times.overhead() == 0:
        lines.append(
            "What a decoder spends outside its passes is not charged: take speedups as upper"
            " bounds."
        )
    timed = ((policy, known_rule(policy, at.where)) for policy in used)
    rules = said((policy, taken) for policy, taken in timed if taken)
    more = [*free_heads((charge, policy) for policy in used), *rules]
    return [*lines, *(f"{line[0].upper()}{line[1:]}." for line in more)]


def _trace(trace: Trace) -> list[str]:
    lines = []
    if not trace.manifest.drafter.can("path"):
        lines.append(
            "The trace is a lattice: statistics along the output cannot be computed from it."
        )
    if trace.sampler.greedy:
        lines.append("Recorded greedily: speeds are those of greedy decoding.")
    else:
        lines.append(
            "Sampled: the output depends on the draft, so policies are paired on this trace, but"
            " not with a recording of another draft."
        )
    return lines


def _prompts(trace: Trace) -> list[str]:
    """Tasks with too few prompts for an interval, or for a good one."""
    names, counts = np.unique(tasks(trace), return_counts=True)
    lone = ", ".join(names[counts == 1].tolist())
    two = ", ".join(names[counts == 2].tolist())
    weak = ", ".join(names[(counts > 2) & (counts < FOR_INTERVAL)].tolist())
    lines = []
    if lone:
        lines.append(f"One prompt only, so no interval: {lone}.")
    if two:
        lines.append(f"Two prompts only, so no usable interval: {two}.")
    if weak:
        lines.append(f"Fewer than {FOR_INTERVAL} prompts, so intervals may be too narrow: {weak}.")
    return lines


def _multiplicity() -> str:
    return (
        "Only the comparisons with the best fixed length are corrected for their number. Of the"
        " other intervals at 95%, by task, in figures and in claims, about one in twenty misses the"
        " truth."
    )
