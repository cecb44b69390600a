"""What a policy's time is made of."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.patheffects import Normal, Stroke

from analysis.figures.base import Plot, figure
from analysis.figures.drawing.axes import bars_high
from analysis.figures.drawing.marks import COLORS
from analysis.figures.drawing.styles import ink, paper, small
from analysis.figures.rows import cells
from analysis.papers.pacer import DEEPSEEK, TABLE_15
from analysis.series_styles import HATCHES, Look
from analysis.stats import Estimate, clusters
from analysis.study import MissingError
from simkit.simulator.arguments import AnyCost
from simkit.simulator.step_costs import PARTS

DEFAULTS = {
    "SVIP": "svip(h=0.8)",
    "SpecDec++": "specdecpp",
    "acceptance head": "acceptance_head",
    "PACER": "pacer",
}
LEAST = 1e-3  # of the time, that a bar shows
NAMES = ("prefill", "draft model", "target model", "decisions and heads", "other")


@figure("PACER Table 15")
def runtime_breakdown(plot: Plot, cost: AnyCost = DEEPSEEK) -> None:
    """Shares of time spent on drafting, verification and decisions, by policy.

    Args:
        cost: see `simkit.replay`; the default is the paper's pair, whose head was timed.

    Raises:
        MissingError: drafts take no pass of a model, and the cost has no time for them.
    """
    ax, times = plot.ax, plot.under(cost)
    if not times.charge.times_drafts:
        raise MissingError(
            "its drafts come from no draft model, and the cost has no time for a proposal"
        )
    length = f"fixed({times.best_length})"
    runs = plot.replays({length: length, **DEFAULTS, "oracle": "oracle"}, cost)
    if not DEFAULTS.keys() & runs.keys():
        plot.nothing = "no rule that looks at the drafts can be replayed, whose decisions take time"
    bars_high(ax, len(runs))
    at = np.arange(len(runs))[::-1]
    until_s = {label: np.zeros(plot.trace.n_sequences) for label in runs}
    for k, (part, name) in enumerate(zip(PARTS, NAMES, strict=True)):
        until_s = {label: until_s[label] + one.seconds[part] for label, one in runs.items()}
        found = [clusters.ratio(one.seconds[part], one.total_s) for one in runs.values()]
        ends = [clusters.ratio(until_s[label], one.total_s) for label, one in runs.items()]
        _part(ax, at, found, ends, k)
        for (label, one), e, end in zip(runs.items(), found, ends, strict=True):
            row = {"policy": label, "part": name, "seconds": float(one.seconds[part].sum())}
            plot.rows.append(row | cells(e, "share") | cells(end, "until"))
    totals = [f"{label}\n{one.total_s.sum():,.0f} s" for label, one in runs.items()]
    ax.set_yticks(at, totals)
    ax.set(xlabel="share of the time", xlim=(0, 1))
    ax.grid(axis="y", visible=False)
    plot.below(3)
    defaults = ", ".join(one.spec for label, one in runs.items() if label in DEFAULTS)
    default = " (the default)" if cost == DEEPSEEK else ""
    plot.caption(
        "What the time goes into",
        f"{plot.prompts}; times: {cost or 'measured'}{default}. PACER Table 15, DeepSeek,"
        f" HumanEval: {_printed()}. Lines: 95% CI of a part's end, over prompts.",
        f"{length} is the fastest on these prompts.",
        f"Not tuned: {defaults}." if defaults else "",
    )


def _part(
    ax: Axes, at: np.ndarray, found: Sequence[Estimate], ends: Sequence[Estimate], k: int
) -> None:
    """The k-th part of each bar, its share where that is wide, and the interval of its end."""
    width, right = (np.array([e.value or 0.0 for e in some]) for some in (found, ends))
    how: Look = {"color": COLORS[k], "hatch": HATCHES[k], "edgecolor": paper()}
    label = NAMES[k] if (width > LEAST).any() else None
    ax.barh(at, width, 0.65, right - width, label=label, **how)
    box = {"facecolor": paper(), "edgecolor": "none", "pad": 1, "alpha": 0.85}
    for y, x, w, end in zip(at, right, width, ends, strict=True):
        if w > 0.04:
            place = {"ha": "center", "va": "center", "fontsize": small()}
            ax.text(x - w / 2, y, f"{w:.0%}", bbox=box, **place)
        if end.lo is not None and end.hi is not None:
            line = ax.hlines(y - 0.2, end.lo, end.hi, colors=ink(), linewidths=1, zorder=3)
            line.set_path_effects([Stroke(linewidth=3.5, foreground=paper()), Normal()])


def _printed() -> str:
    """The paper's shares in words."""
    found = TABLE_15[DEEPSEEK]
    parts = {"head": found.head_s, "draft": found.draft_s, "target": found.target_s}
    return ", ".join(f"{name} {found.share(part_s):.1%}" for name, part_s in parts.items())
