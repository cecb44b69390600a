"""How many tokens each step could have had."""

from __future__ import annotations

import numpy as np
import polars as pl
from matplotlib.axes import Axes

from analysis.figures.base import Plot, figure
from analysis.figures.drawing.axes import width_of
from analysis.figures.drawing.captions import length
from analysis.figures.drawing.marks import COLORS
from analysis.figures.drawing.styles import ink
from analysis.replays import tasks
from analysis.stats import drafts
from analysis.study import MissingError, Study
from simkit.simulator.arguments import FIRST, AnyCost
from traces.messages import how_many


@figure("PACER Fig. 2a; PEARL Fig. 2b", "accepted")
def step_lengths(plot: Plot, cost: AnyCost | None = None, steps: int = 120) -> pl.DataFrame:
    """Optimal draft length γ* of each step, and the best fixed length.

    Steps that begin in a verbatim loop of the output are told apart.

    Args:
        cost: that the fixed length is best under; where there are no times it is left out.
        steps: to draw; as many of each task, from its first prompts on.
    """
    ax, study = plot.ax, plot.study
    runs, free = _runs(study)
    task = tasks(study.trace)
    each = max(1, steps // len(set(task.tolist())))
    _choose(plot, runs, task, each)
    found = plot.frame
    _bars(ax, *(found[name].to_numpy() for name in ("length", "cut", "in_loop")))
    try:
        best = plot.under(cost).best_length
        ax.axhline(best, color=COLORS[1], linestyle="--", label=f"best fixed γ = {best}")
        found = found.with_columns(best_fixed=best)
        if best <= 1 and np.median(runs.accepted) == 0:
            plot.nothing = (
                f"the best fixed length is {how_many(best, 'token')}, and most steps can use none"
            )
    except MissingError:
        plot.notes.append("No best fixed length, because there are no times.")
    _name_tasks(ax, found["task"].to_list())
    plot.below()
    plot.caption(
        "The optimal draft length, step by step",
        f"Up to {how_many(each, 'step')} of each task; {plot.prompts}. All: {_spread(runs)}.",
        f"{study.loops.share:.0%} of the positions lie in verbatim loops"
        + (f"; outside of loops: {_spread(free)}." if free is not None else "."),
    )
    return found


def _runs(study: Study) -> tuple[drafts.Drafts, drafts.Drafts | None]:
    """Runs of accepted tokens, and those outside of loops if there are any loops."""
    left = study.loops.outside
    return study.runs(), None if left is None else study.runs(left)


def _choose(plot: Plot, runs: drafts.Drafts, task: np.ndarray, each: int) -> None:
    """Rows of the first steps of each task."""
    study, steps = plot.study, np.diff(runs.offsets)
    size = runs.accepted + runs.rejected  # every position is in one run, from the first step on
    before = np.append(0, np.cumsum(size))
    skipped = study.path.offsets[:-1] + FIRST[study.first_token] - 1 - before[runs.offsets[:-1]]
    begins = before[:-1] + np.repeat(skipped, steps)
    looped = np.append(study.loops.rows, False)[begins]
    of_step = np.repeat(task, steps)
    for name in dict.fromkeys(task.tolist()):
        for index in np.flatnonzero(of_step == name)[:each]:
            row = {"task": name, "step": len(plot.rows), "length": int(runs.accepted[index])}
            cut, in_loop = not runs.rejected[index], bool(looped[index])
            plot.rows.append(row | {"cut": cut, "in_loop": in_loop})


def _name_tasks(ax: Axes, task: list[str]) -> None:
    """Write each task where its steps begin; upright where one has little room."""
    inch = 0.85 * width_of(ax) / max(1, len(task))
    names = list(dict.fromkeys(task))
    tight = any(length(f"{name} ", 9) > 72 * inch * task.count(name) for name in names)
    for name in names:
        at = task.index(name) - 0.5
        ax.axvline(at, color=ink(), linewidth=0.6)
        where = {"xycoords": ax.get_xaxis_transform(), "va": "top"}
        ax.annotate(f" {name}", (at, 0.985), rotation=90 if tight else 0, **where)


def _spread(runs: drafts.Drafts) -> str:
    """Quantiles in words."""
    half, most, longest = np.quantile(runs.accepted, [0.5, 0.9, 1.0]) if len(runs) else np.zeros(3)
    said = f"median γ* {half:.0f}, 90% ≤ {most:.0f}, longest {longest:.0f}"
    return f"{how_many(len(runs), 'step')}, {said}"


def _bars(ax: Axes, y: np.ndarray, cut: np.ndarray, looped: np.ndarray) -> None:
    """Lengths as bars, on an axis that is a logarithm from 2 on."""
    x = np.arange(len(y))
    for some, color, hatch, label in (
        (~cut & ~looped, COLORS[0], "", "ended by a rejection"),
        (~cut & looped, COLORS[5], "....", "ended by a rejection, begun in a loop"),
        (cut, COLORS[4], "////", "cut off by the end of the text"),
    ):
        if y[some].any():
            ax.bar(x[some], y[some], 0.9, color=color, hatch=hatch, label=label)
    ax.set(
        xlabel="step of a decoder that drafts γ* tokens",
        ylabel="γ* = accepted tokens (log scale from 2 on)",
    )
    ax.set_xlim(-0.5, len(y) - 0.5)
    ax.set_yscale("symlog", base=2, linthresh=2)
    top = 1 << max(2, int(y.max(initial=0)).bit_length())
    ticks = [0, 1, *(1 << k for k in range(1, top.bit_length()))]
    ax.set_yticks(ticks, [str(tick) for tick in ticks])
    ax.set_ylim(0, 1.6 * top)
    ax.grid(axis="x", visible=False)
