"""What tree policies close of the gap between chains and the prophet of trees."""

from __future__ import annotations

from typing import Any

from matplotlib.axes import Axes

from analysis.figures.base import (
    Drawn,
    bars_high,
    caption,
    cells,
    figure,
    frame,
    ink,
    missing,
    paper,
    points,
    small,
)
from analysis.labelled_replays import choices, chosen, cost_name
from analysis.series_styles import of_policy
from analysis.study import Study
from analysis.trees import name_of
from analysis.trees import tree_gap as split
from simkit.simulator.arguments import AnyCost


@figure("new", trees=True)
def tree_gap(study: Study, ax: Axes, cost: AnyCost | None = None) -> Drawn:
    """Share of the time between the tuned fixed chain and the prophet of trees that is closed.

    Args:
        study: of a trace of trees, or of a recording that has some attached.
        ax: to draw on; None makes one.
        cost: see `simkit.replay`.
    """
    found = split(study, cost)
    rows, said, names = [], [], []
    bars_high(ax, len(found.policies))
    for k, (label, one) in enumerate(found.policies.items()):
        at = len(found.policies) - 1 - k
        how: dict[str, Any] = of_policy(one.spec).bar | {"edgecolor": paper(), "alpha": 0.8}
        ax.barh(at, one.of_gap.value or 0.0, 0.6, **how)
        points(ax, [at], [one.of_gap], sideways=True, color=ink(), marker="|")
        said += missing([one.of_gap], [label]) if label != "tree prophet" else []
        names.append(f"{label}: {_text(one.speedup.value)}\n{_short(one.spec)}")
        row = {"policy": label, "setting": one.spec} | cells(one.of_gap, "of_gap")
        rows.append(row | cells(one.speedup, "speedup") | cells(one.against, "against_fixed"))
    ax.set_yticks(range(len(names) - 1, -1, -1), names, fontsize=small())
    ax.axvline(0, color=ink(), linewidth=0.8)
    ax.set(xlabel="share of the gap that is closed; 0: the best fixed chain")
    ax.grid(axis="y", visible=False)
    caption(
        ax,
        "From the best chain to the prophet of trees",
        f"{name_of(study)}; best fixed chain: {choices(found.fixed)}; beside each policy its"
        f" speedup; {chosen(study.trace)}; bars: 95% over {study.trace.n_sequences} prompts,"
        f" paired; {cost_name(study, cost)}.",
    )
    return Drawn("tree_gap", frame(rows), ax, tuple(said + found.gone))


def _text(speedup: float | None) -> str:
    return "–" if speedup is None else f"{speedup:.2f}"


def _short(spec: str) -> str:
    """The arguments alone."""
    inside = spec.partition("(")[2].removesuffix(")").replace("folds=5, ", "")
    return inside if len(inside) <= 44 else f"{inside[:43]}…"
