"""What a policy's time is made of."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.axes import Axes

from analysis.figures.arms import DEEPSEEK, below
from analysis.figures.base import COLORS, HATCHES, Drawn, caption, cells, figure, frame
from analysis.figures.replayed import replays
from analysis.replays import of
from analysis.stats import clusters
from simkit.simulator.charge import PARTS
from simkit.simulator.given import AnyCost
from traces.trace import Trace

NAMES = ("prefill", "draft model", "target model", "decisions and heads", "other")


@figure("PACER Table 15")
def runtime_breakdown(trace: Trace, ax: Axes, cost: AnyCost = DEEPSEEK) -> Drawn:
    """Shares of the time in drafting, verification and decisions, by policy.

    Args:
        trace: of any kind.
        ax: to draw on; None makes one.
        cost: see `simkit.replay`; the default is the paper's pair, whose head was timed.
    """
    length = of(trace, cost).best_length
    arms = {
        f"fixed({length})": f"fixed({length})",
        "SVIP": "svip(h=0.8)",
        "SpecDec++": "specdecpp",
        "acceptance head": "acceptance_head",
        "PACER": "pacer",
        "oracle": "oracle",
    }
    runs, gone = replays(trace, arms, cost)
    rows, at = [], np.arange(len(runs))[::-1]
    left = np.zeros(len(runs))
    for k, (part, name) in enumerate(zip(PARTS, NAMES, strict=True)):
        found = [clusters.ratio(r.seconds[part], r.total_s) for r in runs.values()]
        width = np.array([e.value or 0.0 for e in found])
        how: dict[str, Any] = {"color": COLORS[k], "hatch": HATCHES[k], "edgecolor": "white"}
        ax.barh(at, width, 0.65, left, label=name, **how)
        for y, x, w in zip(at, left, width, strict=True):
            if w > 0.04:
                box: dict[str, Any] = {
                    "facecolor": "white",
                    "edgecolor": "none",
                    "pad": 1,
                    "alpha": 0.85,
                }
                place: dict[str, Any] = {"ha": "center", "va": "center", "fontsize": 7}
                ax.text(x + w / 2, y, f"{w:.0%}", bbox=box, **place)
        left += width
        for label, one, e in zip(runs, runs.values(), found, strict=True):
            sums = {"seconds": float(one.seconds[part].sum())}
            rows.append({"policy": label, "part": name} | sums | cells(e, "share"))
    totals = [f"{one.total_s.sum():,.0f} s" for one in runs.values()]
    ax.set_yticks(at, [f"{label}\n{s}" for label, s in zip(runs, totals, strict=True)])
    ax.set(xlabel="share of the time", xlim=(0, 1))
    ax.grid(axis="y", visible=False)
    below(ax, 3)
    caption(
        ax,
        "What the time goes into",
        f"{trace.n_sequences} prompts; times: {cost}. PACER Table 15, DeepSeek, HumanEval: head"
        " 2.1%, draft 71.2%, target 26.7%. Intervals are in the frame.",
        *gone,
    )
    return Drawn("runtime_breakdown", frame(rows), ax, tuple(gone))
