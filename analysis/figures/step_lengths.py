"""How many tokens each step could have had."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.axes import Axes

from analysis.figures.base import COLORS, Drawn, caption, figure, frame, ink
from analysis.figures.captions import length
from analysis.figures.legends import below
from analysis.figures.styles import WIDTH
from analysis.replays import MissingError, of, tasks
from analysis.stats import drafts
from analysis.study import Study
from simkit.simulator.arguments import AnyCost


@figure("PACER Fig. 2a; PEARL Fig. 2b", "accepted")
def step_lengths(study: Study, ax: Axes, cost: AnyCost | None = None, steps: int = 120) -> Drawn:
    """Optimal draft length γ* step by step, and the best fixed one.

    Steps that begin in a verbatim loop of the output are told apart.

    Args:
        study: of a trace with rows.
        ax: to draw on; None makes one.
        cost: that the fixed length is best under; where there are no times it is left out.
        steps: to draw; as many of each task, from its first prompts on.
    """
    trace = study.trace
    runs, free = _runs(study)
    size = runs.accepted + runs.rejected  # every position is in one run, from its first row on
    looped = np.append(study.loops.rows, False)[np.cumsum(size) - size]
    task = tasks(trace)
    of_step = np.repeat(task, np.diff(runs.offsets))
    names = list(dict.fromkeys(task.tolist()))
    each = max(1, steps // len(names))
    rows = []
    for name in names:
        for index in np.flatnonzero(of_step == name)[:each]:
            row = {"task": name, "step": len(rows), "length": int(runs.accepted[index])}
            rows.append(row | {"cut": not runs.rejected[index], "in_loop": bool(looped[index])})
    found = frame(rows)
    _bars(ax, *(found[name].to_numpy() for name in ("length", "cut", "in_loop")))
    said = ""
    try:
        best = of(study, cost).best_length
        ax.axhline(best, color=COLORS[1], linestyle="--", label=f"best fixed γ = {best}")
        found = found.with_columns(best_fixed=best)
    except MissingError:
        said = "No times, so no best fixed length."
    whole = ax.get_figure(root=True)
    inch = 0.85 * (whole.get_figwidth() if whole else WIDTH) / max(1, len(found))
    number = {name: int((found["task"] == name).sum()) for name in names}
    tight = any(length(f"{name} ", 9) > 72 * inch * n for name, n in number.items())
    turned = 90 if tight else 0
    where: dict[str, Any] = {"xycoords": ax.get_xaxis_transform(), "va": "top"}
    for name in names:
        at = found["task"].to_list().index(name) - 0.5
        ax.axvline(at, color=ink(), linewidth=0.6)
        ax.annotate(f" {name}", (at, 0.985), rotation=turned, **where)
    below(ax)
    caption(
        ax,
        "The optimal draft length, step by step",
        f"First {each} steps of each task; {trace.n_sequences} prompts. All steps:"
        f" {_spread(runs)}.",
        f"{study.loops.share:.0%} of the positions repeat a verbatim loop"
        + (f"; outside of loops: {_spread(free)}." if free is not None else "."),
    )
    return Drawn("step_lengths", found, ax, (said,) if said else ())


def _runs(study: Study) -> tuple[drafts.Drafts, drafts.Drafts | None]:
    """Runs of accepted tokens, and those outside of loops if there are any loops."""
    accepted, left = study.trace.positions("accepted"), study.loops.outside
    whole = drafts.runs(accepted, study.path.offsets)
    if left is None:
        return whole, None
    return whole, left.by_prompt(drafts.runs(accepted[left.rows], left.offsets))


def _spread(runs: drafts.Drafts) -> str:
    """Quantiles in words."""
    half, most, longest = np.quantile(runs.accepted, [0.5, 0.9, 1.0]) if len(runs) else np.zeros(3)
    return f"{len(runs):,}, median γ* {half:.0f}, 90% ≤ {most:.0f}, longest {longest:.0f}"


def _bars(ax: Axes, y: np.ndarray, cut: np.ndarray, looped: np.ndarray) -> None:
    """Lengths as bars, on an axis that is a logarithm from 2 on."""
    x = np.arange(len(y))
    for some, color, hatch, label in (
        (~cut & ~looped, COLORS[0], "", "ended by a rejection"),
        (~cut & looped, COLORS[5], "....", "the same, begun in a loop"),
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
