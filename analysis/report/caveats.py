"""What a reader of the numbers should know, and how to make them again."""

from __future__ import annotations

import platform
import shlex
from collections.abc import Sequence
from importlib.metadata import version
from typing import NamedTuple

import numpy as np

from analysis.replays import Replays, tasks
from analysis.report.timings import devices, one_each
from analysis.stats import clusters
from simkit import costs
from simkit.policies import Policy, Sequential
from simkit.simulator.charge import Charge
from traces.errors import UserError
from traces.trace import Trace

LIBRARIES = ("draft-simkit", "numpy", "scipy", "numba", "polars", "pyarrow", "matplotlib")


class Again(NamedTuple):
    """How the page can be made again.

    Attributes:
        commands: this page's own first.
        versions: of what made it, by name.
    """

    commands: list[str]
    versions: list[tuple[str, str]]


def caveats(at: Replays, used: Sequence[Policy]) -> list[str]:
    """What the seconds are, and what was not measured.

    Args:
        at: the trace under its cost.
        used: policies on the page.
    """
    lines = ["Counts (steps, drafted, accepted) are exact: what decoding with each policy does."]
    if at.timed:
        lines += [_seconds(at), *_uncharged(at.charge, used)]
        lines.append(
            "Predicted speeds were not held against the clock here: simkit fidelity does that."
        )
    return [*lines, *_trace(at.trace), *_prompts(at.trace), _multiplicity()]


def again(trace: Trace, command: Sequence[str], cost: str | None) -> Again:
    """The commands behind the page, and what ran them.

    Args:
        trace: that the page is about.
        command: of the page itself, as words.
        cost: its spec, if it is one.
    """
    name = command[2]
    under = [] if cost is None else ["--cost", cost]
    commands = [
        list(command),
        ["simkit", "figures", name, "--out", "figures", *under],
        ["simkit", "claims", name, *under],
    ]
    found = [("trace, sha256", trace.hash), ("Python", platform.python_version())]
    found += [(library, version(library)) for library in LIBRARIES]
    return Again([shlex.join(words) for words in commands], [*found, ("on", platform.platform())])


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


def _uncharged(charge: Charge, used: Sequence[Policy]) -> list[str]:
    """What takes no time under the cost, though it would."""
    lines = []
    if charge.times.overhead() == 0:
        lines.append(
            "What a decoder spends outside its passes is not charged: take speedups as upper"
            " bounds."
        )
    heads = sorted({str(policy.head) for policy in used if charge.calls_for_nothing(policy)})
    if heads:
        lines.append(f"The cost has no time for calls of these heads: {', '.join(heads)}.")
    deciding = {policy.name for policy in used if _decides(policy)}
    free = sorted(name for name in deciding if charge.times.policy(name) == 0)
    if free:
        lines.append(f"The cost has no time for decisions of these policies: {', '.join(free)}.")
    return lines


def _decides(policy: Policy) -> bool:
    """Whether decisions of it are charged: one that looks at no token makes none."""
    return isinstance(policy, Sequential) and policy.looks and not policy.needs_future


def _trace(trace: Trace) -> list[str]:
    lines = []
    if trace.manifest.kind == "lattice":
        lines.append("The trace is a lattice: what looks along the output cannot be had from it.")
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
    weak = ", ".join(names[(counts > 1) & (counts < clusters.FEWEST)].tolist())
    lines = []
    if lone:
        lines.append(f"One prompt only, so no interval: {lone}.")
    if weak:
        lines.append(
            f"Fewer than {clusters.FEWEST} prompts, so intervals may be too narrow: {weak}."
        )
    return lines


def _multiplicity() -> str:
    return (
        "Only the comparisons with the best fixed length are corrected for their number. Of the"
        " other intervals at 95%, by task, in figures and in claims, about one in twenty misses."
    )
