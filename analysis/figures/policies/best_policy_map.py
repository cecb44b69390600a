"""Which policy is best, by cost ratio and by overlap."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import Patch

from analysis.figures.base import Plot, figure
from analysis.figures.drawing.captions import length, room_of
from analysis.figures.drawing.legends import below
from analysis.figures.drawing.styles import paper, small
from analysis.figures.rows import cells
from analysis.labelled_replays import chosen
from analysis.series_styles import Look, of_policy
from analysis.stats import clusters, optimal
from simkit.costs import Linear
from traces.messages import how_many
from traces.trace import Trace

RATIOS = (1.5, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 16.0, 24.0)
FAMILIES = {
    "target alone": "autoregressive",
    "fixed": "fixed(1:16)",
    "heuristic": "heuristic(initial=1:19:3)",
    "confidence": "confidence(threshold=0.1:0.9:0.1)",
    "SVIP": "svip(h=0.2:2.0:0.2)",
    "cumulative confidence": "cumulative_confidence(threshold=0.1:0.9:0.1)",
}
SURE = 0.95  # share of resamples that a cell's winner must win


@figure("new", "overlap", draft_model=True)
def best_policy_map(plot: Plot, groups: int = 6) -> None:
    """Fastest policy by cost ratio c and by the prompts' mean overlap β.

    Args:
        groups: of prompts, of about equal size, by their mean β.
    """
    mean, names = _mean_overlap(plot.trace), list(FAMILIES)
    order = np.argsort(mean, kind="stable")
    parts = [part for part in np.array_split(order, groups) if len(part)]
    rows: list[dict[str, Any]] = []
    for x, c in enumerate(RATIOS):
        found = plot.tuned(FAMILIES, Linear(draft_s=1.0, target_s=c))
        names = [name for name in names if name in found]
        seconds = np.array([found[name].total_s for name in names])
        base = found[names[0]].seconds["baseline_s"]
        for y, part in enumerate(parts):
            label = [str(y)] * len(part)
            (best,) = optimal.best_lengths(seconds[:, part], base[part], label)
            k = int(best.setting or 0)
            share = None if best.chosen is None else float(best.chosen[k])
            row = {"c": c, "group": y, "prompts": len(part), "beta": float(mean[part].mean())}
            row |= {"policy": names[k], "chosen": share, "x": x}
            rows.append(row | cells(best.speedup, "speedup"))
    _draw(plot.ax, rows, names)
    if not any(row["chosen"] is not None and row["chosen"] >= SURE for row in rows):
        plot.nothing = f"no policy is the only fastest in {SURE:.0%} of resamples in any cell"
    plot.rows += rows
    plot.caption(
        "Which policy is fastest",
        f"{plot.prompts} in {how_many(len(parts), 'group')} by mean β; {chosen(plot.trace)};"
        " costs: 1 for a draft pass, c for a target pass of any size, no overheads.",
        f"Numbers: speedup over the target alone; *: the only fastest in {SURE:.0%} of resamples"
        " of prompts; of equal policies the first is drawn. Intervals are in the frame.",
    )


def _mean_overlap(trace: Trace) -> np.ndarray:
    """β of each prompt, (S,)."""
    offsets, beta = trace.position_offsets, trace.positions("overlap")
    return clusters.by_prompt(offsets, lambda r: [beta[r]])[:, 0] / np.maximum(1, np.diff(offsets))


def _draw(ax: Axes, rows: list[dict[str, Any]], names: list[str]) -> None:
    won = [name for name in names if any(row["policy"] == name for row in rows)]
    digits = 2 if length("8.88*", small()) < 0.85 * room_of(ax) / len(RATIOS) else 1
    for row in rows:
        ax.bar(row["x"], 1, 1, row["group"], linewidth=0.8, **_look(row["policy"]))
        star = "*" if row["chosen"] is not None and row["chosen"] >= SURE else ""
        shown = "" if row["speedup"] is None else f"{row['speedup']:.{digits}f}{star}"
        box = {"facecolor": paper(), "edgecolor": "none", "pad": 0.8, "alpha": 0.85}
        spot = (row["x"], row["group"] + 0.5)
        ax.text(*spot, shown, ha="center", va="center", fontsize=small(), bbox=box)
    betas = {row["group"]: row["beta"] for row in rows}
    ax.set_xticks(range(len(RATIOS)), [f"{c:g}" for c in RATIOS])
    ax.set_yticks([g + 0.5 for g in betas], [f"{b:.2f}" for b in betas.values()])
    ax.set(xlabel="cost ratio c = T_target ÷ T_draft", ylabel="mean overlap β of the prompts")
    ax.set(xlim=(-0.5, len(RATIOS) - 0.5), ylim=(0, len(betas)))
    ax.grid(visible=False)
    below(ax, 3, [Patch(label=name, **_look(name)) for name in won])


def _look(name: str) -> Look:
    return of_policy(FAMILIES[name]).bar | {"edgecolor": paper(), "alpha": 0.75}
