"""How many tokens each step could have had."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes

from analysis.figures.arms import below
from analysis.figures.base import COLORS, Drawn, caption, figure, frame
from analysis.replays import MissingError, of, tasks
from analysis.stats import drafts
from analysis.study import Study
from simkit.simulator.arguments import AnyCost


@figure("PACER Fig. 2a; PEARL Fig. 2b", "accepted")
def step_lengths(study: Study, ax: Axes, cost: AnyCost | None = None, steps: int = 120) -> Drawn:
    """Optimal draft length γ* step by step, and the best fixed one.

    Args:
        study: of a trace with rows.
        ax: to draw on; None makes one.
        cost: that the fixed length is best under; where there are no times it is left out.
        steps: to draw; as many of each task, from its first prompts on.
    """
    trace = study.trace
    layout = study.path
    runs = drafts.runs(trace.positions("accepted"), layout.offsets)
    task = tasks(trace)
    of_step = np.repeat(task, np.diff(runs.offsets))
    names = list(dict.fromkeys(task.tolist()))
    each = max(1, steps // len(names))
    rows = []
    for name in names:
        for index in np.flatnonzero(of_step == name)[:each]:
            row = {"task": name, "step": len(rows), "length": int(runs.accepted[index])}
            rows.append(row | {"cut": not runs.rejected[index]})
    found = frame(rows)
    y, cut = (found[name].to_numpy() for name in ("length", "cut"))
    _bars(ax, y, cut)
    said = ""
    try:
        length = of(study, cost).best_length
        ax.axhline(length, color=COLORS[1], linestyle="--", label=f"best fixed γ = {length}")
        found = found.with_columns(best_fixed=length)
    except MissingError:
        said = "No times, so no best fixed length."
    for name in names:
        at = found["task"].to_list().index(name) - 0.5
        ax.axvline(at, color="black", linewidth=0.6)
        ax.annotate(f" {name}", (at, 0.985), xycoords=ax.get_xaxis_transform(), va="top")
    below(ax)
    spread = np.quantile(runs.accepted, [0.5, 0.9, 1.0]) if len(runs) else np.zeros(3)
    caption(
        ax,
        "The optimal draft length, step by step",
        f"First {each} steps of each task. All {len(runs):,} steps of {trace.n_sequences} prompts:"
        f" median {spread[0]:.0f}, 90% ≤ {spread[1]:.0f}, longest {spread[2]:.0f}.",
        said,
    )
    return Drawn("step_lengths", found, ax, (said,) if said else ())


def _bars(ax: Axes, y: np.ndarray, cut: np.ndarray) -> None:
    """Lengths as bars, on an axis that is a logarithm from 2 on."""
    x = np.arange(len(y))
    for some, color, hatch, label in (
        (~cut, COLORS[0], "", "ended by a rejection"),
        (cut, COLORS[4], "////", "cut off by the end of the text"),
    ):
        if some.any():
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
