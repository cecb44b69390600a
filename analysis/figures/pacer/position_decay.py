"""Acceptance by depth in the draft."""

from __future__ import annotations

from typing import Literal

import numpy as np

from analysis.figures.base import Plot, figure
from analysis.figures.drawing.marks import COLORS, look, points
from analysis.figures.rows import cells, missing
from analysis.stats import depth, drafts, iid
from simkit.simulator.arguments import FIRST

OUTSIDE = ", outside of loops"


@figure("PACER Fig. 6; PARD-2 Fig. 2a, one drafter", "accepted")
def position_decay(
    plot: Plot, max_draft: int | None = None, starts: Literal["steps", "every"] = "steps"
) -> None:
    """Conditional and marginal acceptance by depth, and what independent tokens would give.

    Args:
        max_draft: γ of the drafts; None means 16, or Γ if that is less.
        starts: the drafts of the steps of `fixed(γ)` as in the papers, or those from every
            position.
    """
    longest = max_draft or min(16, plot.trace.max_draft)
    taken = _drafts(plot, longest, starts)
    curves = {end: depth.by_depth(some, longest) for end, some in taken.items()}
    found = curves[""]
    said = missing([*found.conditional, *found.marginal], [*found.depth, *found.depth])
    plot.notes += [f"Depth {line}" for line in said]
    _draw(plot, curves)
    for end, one in curves.items():
        for name in ("conditional", "marginal", "greenwood"):
            for j, n, e in zip(one.depth, one.at_risk, getattr(one, name), strict=True):
                row = {"series": f"{name}{end}", "depth": int(j), "at_risk": int(n)}
                plot.rows.append(row | cells(e, "acceptance"))
    _law(plot, found)
    plot.ax.set(xlabel="depth j in the draft, tokens", ylabel="acceptance", ylim=(0, 1.02))
    plot.below(2)
    what = (
        f"steps of fixed({longest})" if starts == "steps" else f"drafts of {longest}, every start"
    )
    anew = "; outside of them, drafts begin anew behind each loop" if OUTSIDE in curves else ""
    deepest = int(found.at_risk[-1]) if len(found.depth) else 0
    plot.caption(
        "Acceptance by position in the draft",
        f"{len(taken['']):,} {what}, {plot.prompts}; {deepest:,} drafts reach"
        f" depth {len(found.depth)}; bars: 95% CI over prompts. {plot.study.loops.share:.0%} of the"
        f" positions lie in verbatim loops{anew}. PARD-2 Fig. 2a prints the conditional ratio.",
    )


def _drafts(plot: Plot, longest: int, starts: str) -> dict[str, drafts.Drafts]:
    """All drafts, and those outside of verbatim loops if there are loops."""
    layout, left = plot.study.path, plot.study.loops.outside
    limits, first = (plot.trace.max_new_tokens, longest), FIRST[plot.study.first_token]

    def make(ahead: np.ndarray, offsets: np.ndarray, first: int | np.ndarray) -> drafts.Drafts:
        if starts == "steps":
            return drafts.fixed_steps(ahead, offsets, *limits, first)
        return drafts.every_start(ahead, offsets, *limits)

    found = {"": make(layout.ahead, layout.offsets, first)}
    if left is not None:
        begins = left.first(first, layout.offsets)
        found[OUTSIDE] = left.by_prompt(make(left.cut(layout.ahead), left.offsets, begins))
    return found


def _draw(plot: Plot, curves: dict[str, depth.DepthCurve]) -> None:
    labels = {
        "": ("conditional on all earlier", "marginal, P(a ≥ j)"),
        OUTSIDE: (f"conditional{OUTSIDE}", f"marginal{OUTSIDE}"),
    }
    for k, (end, one) in enumerate(curves.items()):
        conditional, marginal = labels[end]
        points(plot.ax, one.depth, one.conditional, label=conditional, **look(2 * k))
        points(plot.ax, one.depth, one.marginal, label=marginal, **look(2 * k + 1))


def _law(plot: Plot, found: depth.DepthCurve) -> None:
    """What independent tokens of the same α would give."""
    alpha = iid.run_lengths(plot.study.runs()).alpha
    plot.rows.append({"series": "alpha"} | cells(alpha, "acceptance"))
    if alpha.value is not None and len(found.depth):
        law = alpha.value ** found.depth.astype(float)
        plot.ax.plot(found.depth, law, ":", color=COLORS[7], label=f"α^j, α = {alpha.value:.3f}")
        plot.rows += [
            {"series": "independent", "depth": int(j), "acceptance": float(p)}
            for j, p in zip(found.depth, law, strict=True)
        ]
