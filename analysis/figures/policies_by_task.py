"""Speedups of policies, task by task."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from matplotlib.axes import Axes

from analysis import outside_loops, token_drafters
from analysis.figures.base import Drawn, caption, cells, figure, frame, ink, missing, points
from analysis.figures.legends import below
from analysis.figures.measures import PER_STEP_APART as APART
from analysis.figures.measures import tau
from analysis.figures.tasks import mark_size, tasks_on
from analysis.labelled_replays import chosen, cost_name, tuned
from analysis.replays import FAMILIES, Replayed, Replays, groups, of
from analysis.series_styles import SeriesStyle, drafters_of, of_policy
from analysis.speeds import speedup
from analysis.study import Study
from simkit.simulator.arguments import AnyCost

SHOWN = ("fixed", "heuristic", "SVIP", "AdaEDL", "SpecDec++", "acceptance head", "PACER")


@figure("SVIP Tables 1, 5; PACER Tables 1, 2, 4, Fig. 3; acceptance head Table 1")
def policies_by_task(study: Study, ax: Axes, cost: AnyCost | None = None) -> Drawn:
    """Speedup over the target alone of the papers' policies, by task.

    Where a drafter from tokens alone is attached, also its own, and that of the model under PACER's
    policy behind it. τ is in the frame: of all steps, and of those outside of verbatim loops of the
    output.

    Args:
        study: of a trace of any kind.
        ax: to draw on; None makes one.
        cost: see `simkit.replay`.
    """
    trace = study.trace
    found, gone = tuned(study, {name: FAMILIES[name] for name in SHOWN}, cost)
    at = of(study, cost)
    found |= _looked_up(at, found)
    masks, free = groups(trace), outside_loops.if_any(at, found)
    looks = _looks(at, found)
    rows, said, size = [], [], mark_size(ax, len(masks), len(found))
    for k, (name, one) in enumerate(found.items()):
        some_speeds = [speedup(one, m) for m in masks.values()]
        x = np.arange(len(masks)) + (k - (len(found) - 1) / 2) * 0.8 / max(7, len(found))
        points(ax, x, some_speeds, label=name, markersize=size, **looks[name].dots)
        said += missing(some_speeds, masks)
        for (task, some), e in zip(masks.items(), some_speeds, strict=True):
            rate = float(one.counts["emitted"][some].sum() / one.total_s[some].sum())
            row = {"policy": name, "task": task, "setting": one.spec, "tokens_per_s": rate}
            row |= cells(e, "speedup") | cells(tau(one.counts, some), "accepted_per_step")
            rows.append(row | (cells(tau(free[name], some), APART) if free else {}))
    tasks_on(ax, masks)
    ax.axhline(1, color=ink(), linewidth=0.8)
    ax.set(ylabel="speedup over the target alone")
    below(ax, 4)
    caption(
        ax,
        "Policies by task",
        f"n: prompts, {chosen(trace, by_task=True)}; {cost_name(study, cost)}; bars: 95% over"
        " prompts (of each policy: policies of one task share prompts).",
    )
    return Drawn("policies_by_task", frame(rows), ax, tuple(said + gone))


def _looked_up(at: Replays, found: Mapping[str, Replayed]) -> dict[str, Replayed]:
    """A lookup alone, and before the model under PACER's policy; none where none is attached."""
    if not token_drafters.names(at) or "PACER" not in found:
        return {}
    name = token_drafters.first_of(at)
    both = token_drafters.before(at, name, found["PACER"].spec)
    return {name: token_drafters.alone(at, name), f"{name}, then PACER": both.replayed}


def _looks(at: Replays, found: Mapping[str, Replayed]) -> dict[str, SeriesStyle]:
    """Of policies their own; of a lookup that of the drafter, before a model that of a route."""
    drafters = drafters_of(at.trace)
    return {
        name: drafters.get(name)
        or of_policy("route" if name.endswith(", then PACER") else one.spec)
        for name, one in found.items()
    }
