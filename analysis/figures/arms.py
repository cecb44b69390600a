"""What the figures in the form of papers' tables share: arms, compared with one of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from textwrap import fill
from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes

from analysis.figures.base import Plot
from analysis.figures.drawing.axes import bars_high
from analysis.figures.drawing.captions import points_of, room_of, wrapped
from analysis.figures.drawing.legends import below
from analysis.figures.drawing.marks import look, points
from analysis.figures.drawing.styles import FigureError, ink
from analysis.figures.drawing.tasks import few
from analysis.figures.measures import tau
from analysis.figures.rows import Row, cells, missing
from analysis.labelled_replays import replays, without
from analysis.papers import PaperTable, TableRow
from analysis.speeds import speed
from analysis.stats import Estimate, clusters
from analysis.study import Study
from simkit.simulator.arguments import AnyCost
from traces.errors import UserError

MEASURED = "trace's own times"
_WIDE = 48  # of a legend's line: a cost can be a long spec
_RATIO: dict[int, Callable[..., Estimate]] = {2: clusters.ratio, 4: clusters.ratio_of_ratios}


class ComparedArms(NamedTuple):
    """Arms against one of them.

    Attributes:
        rows: for the frame.
        speeds: by cost, how many times faster each arm is than the one; None where it is missing.
        printed: the paper's ratios.
        notes: what is missing.
    """

    rows: list[Row]
    speeds: dict[str, list[Estimate | None]]
    printed: list[float | None]
    notes: list[str]


def sweep(table: PaperTable, spec: Callable[[str], str]) -> tuple[TableRow, ...]:
    """A table's rows as arms, whose policies follow from the value that is varied."""
    return tuple(TableRow(value, spec(value), row) for value, row in table.rows.items())


def both(cost: AnyCost | None, paper: str) -> dict[str, AnyCost | None]:
    """The trace's own times beside those of the paper's pair; or the one that is asked for."""
    return {MEASURED: None, f"times {paper}": paper} if cost is None else {str(cost): cost}


def compare(
    study: Study, arms: Sequence[TableRow], against: str, costs: Mapping[str, AnyCost | None]
) -> ComparedArms:
    """Replay arms under several costs, and compare each with the arm `against`.

    Raises:
        FigureError: that arm, or all times, are missing.
    """
    rows, speeds, notes, why = [], {}, [], {}
    base = next(arm for arm in arms if arm.label == against)
    whole = base.printed.speed
    speed_of = [arm.printed.speed for arm in arms]
    printed = [mine / whole if mine and whole else None for mine in speed_of]
    for name, cost in costs.items():
        try:
            runs, gone = replays(study, {arm.label: arm.spec for arm in arms}, cost)
        except UserError as error:
            why[name] = str(error)
            continue
        notes += without(gone)
        if against in gone:
            raise FigureError(f"{gone[against]}, so there is nothing to compare with")
        speeds[name] = [None] * len(arms)
        for i, arm in enumerate(arms):
            if arm.label in gone:
                continue
            one, other = runs[arm.label], runs[against]
            alone = Estimate(1.0, None, None, len(one.total_s))
            found = alone if arm is base else speed(one, other)
            speeds[name][i] = found
            row = {"arm": arm.label, "policy": one.spec, "cost": name, "against": against}
            row |= {"paper": printed[i], "paper_tau": arm.printed.tau}
            rows.append(row | cells(found, "speed") | cells(tau(one.counts), "accepted_per_step"))
            notes += [note for note in missing([found]) if arm is not base]
    if not speeds:
        raise FigureError("; ".join(dict.fromkeys(why.values())))
    notes += [f"Not under {name}: {error}" for name, error in why.items()]
    return ComparedArms(rows, speeds, printed, list(dict.fromkeys(notes)))


def ranked(
    ax: Axes, arms: Sequence[TableRow], found: ComparedArms, against: str, paper: str
) -> None:
    """Arms from top to bottom, each with its τ; the paper's ratios as stars."""
    n = len(arms)
    bars_high(ax, n, 0.5)
    for k, (name, values) in enumerate(found.speeds.items()):
        here = [(n - 1 - i, e) for i, e in enumerate(values) if e is not None]
        at = np.array([y for y, _ in here]) + 0.12 - 0.24 * k
        how = {**look(k), "linestyle": ""}
        points(ax, at, [e for _, e in here], sideways=True, label=fill(name, _WIDE), **how)
    stars = [(x, n - 1 - i) for i, x in enumerate(found.printed) if x is not None]
    stars_at(ax, stars, paper)
    taus: dict[str, dict[str, None]] = {}  # by arm; a tuned one may differ from cost to cost
    for row in found.rows:
        if row["accepted_per_step"]:
            taus.setdefault(str(row["arm"]), {})[f"{row['accepted_per_step']:.2f}"] = None
    shown = [a.label + (f"\nτ {', '.join(taus[a.label])}" if a.label in taus else "") for a in arms]
    ax.set_yticks(range(n - 1, -1, -1), shown)
    ax.axvline(1, color=ink(), linewidth=0.8)
    ax.set(xlabel=f"speed ÷ speed of {against}", ylim=(-0.6, n - 0.4))
    below(ax)


def stars_at(ax: Axes, where: Sequence[tuple[float, float]], label: str) -> None:
    """A paper's values as hollow stars, at (x, y) each."""
    if where:
        x, y = zip(*where, strict=True)
        ax.scatter(x, y, s=70, marker="*", facecolors="none", edgecolors=ink(), label=label)


def swept(
    ax: Axes, arms: Sequence[TableRow], found: ComparedArms, against: str, xlabel: str, paper: str
) -> None:
    """Arms along the value that they vary; the paper's ratios as a grey line of stars."""
    x = np.array([float(arm.label) for arm in arms])
    step = float(np.min(np.diff(np.sort(x)))) if len(x) > 1 else 1.0
    for k, (name, values) in enumerate(found.speeds.items()):
        here = [i for i, e in enumerate(values) if e is not None]
        at = x[here] + (k - 0.5) * 0.1 * step
        points(ax, at, [e for e in values if e is not None], label=fill(name, _WIDE), **look(k))
    stars = [(a, r) for a, r in zip(x, found.printed, strict=True) if r is not None]
    if stars:
        line = ax.plot(*zip(*stars, strict=True), ":*", color=ink(), linewidth=0.8, label=paper)
        line[0].set(markersize=9, markerfacecolor="none")
    ax.axhline(1, color=ink(), linewidth=0.8)
    ax.set(xlabel=xlabel, ylabel=f"speed ÷ speed at {against}")
    below(ax)


def passes(
    plot: Plot,
    masks: Mapping[str, np.ndarray],
    measures: Mapping[str, tuple[np.ndarray, ...]],
    printed: Mapping[str, float],
    paper: str,
) -> None:
    """Ratios of several measures, each task a series; the paper's as black lines.

    Of many tasks some are drawn (`few`, by the last measure); the rows have all.

    Args:
        plot: to draw on.
        masks: prompts of each task.
        measures: by name, what is divided by what, (S,) each; of a ratio of ratios both pairs.
        printed: the paper's ratios by measure.
        paper: what the lines are called.
    """
    ax, wide = plot.ax, len(measures)
    found = {
        task: [_RATIO[len(sums)](*(x[some] for x in sums)) for sums in measures.values()]
        for task, some in masks.items()
    }
    drawn, which = few(ax, {task: each[-1].value for task, each in found.items()}, plot.by)
    plot.notes += [which] if which else []
    for task, each in found.items():
        if task in drawn:
            t = drawn.index(task)
            at = np.arange(wide) + (t - (len(drawn) - 1) / 2) * min(0.14, 0.8 / len(drawn))
            plot.points(at, each, [task] * wide, label=task, **{**look(t), "linestyle": ""})
        plot.keep([{plot.by: task, "measure": name} for name in measures], each, "ratio")
    for at, name in enumerate(measures):
        if name in printed:
            ax.hlines(printed[name], at - 0.4, at + 0.4, colors=ink(), linestyles="--", lw=1)
            plot.rows.append({plot.by: "paper", "measure": name, "ratio": printed[name]})
    if printed:
        ax.plot([], [], "--", color=ink(), linewidth=1, label=paper)
    plot.line_at_1()
    slot, size = 0.9 * room_of(ax) / wide, points_of("xtick.labelsize")
    ax.set_xticks(range(wide), ["\n".join(wrapped(m, slot, size)) for m in measures])
    ax.grid(axis="x", visible=False)
    ax.set_xlim(-0.6, wide - 0.4)
    plot.below()
