"""Acceptance by depth in the draft."""

from __future__ import annotations

from typing import Literal

from matplotlib.axes import Axes

from analysis.figures.base import (
    COLORS,
    Drawn,
    caption,
    cells,
    figure,
    frame,
    look,
    missing,
    points,
)
from analysis.figures.legends import below
from analysis.stats import depth, drafts, iid
from analysis.study import loops_of, path_layout
from simkit.drafters.path import PathLayout
from traces.trace import Trace


@figure("PACER Fig. 6; PARD-2 Fig. 2a, one drafter", "accepted")
def position_decay(
    trace: Trace,
    ax: Axes,
    max_draft: int | None = None,
    starts: Literal["steps", "every"] = "steps",
) -> Drawn:
    """Acceptance by depth, conditional and marginal, and what independent tokens would give.

    Args:
        trace: with rows.
        ax: to draw on; None makes one.
        max_draft: γ of the drafts; None means 16, or Γ if that is less.
        starts: the drafts of the steps of `fixed(γ)` as in the papers, or those from every
            position.
    """
    layout = path_layout(trace)
    longest = max_draft or min(16, trace.max_draft)
    ends = layout.ahead, layout.offsets, trace.max_new_tokens, longest
    taken = drafts.fixed_steps(*ends) if starts == "steps" else drafts.every_start(*ends)
    found = depth.by_depth(taken, longest)
    alpha = iid.run_lengths(drafts.runs(trace.positions("accepted"), layout.offsets)).alpha
    points(ax, found.depth, found.conditional, label="conditional on all earlier", **look(0))
    points(ax, found.depth, found.marginal, label="marginal, P(a ≥ j)", **look(1))
    apart, share = _outside(trace, layout, longest, starts)
    if apart is not None:
        label = "conditional, outside of loops"
        points(ax, apart.depth, apart.conditional, label=label, **look(2))
        points(ax, apart.depth, apart.marginal, label="marginal, outside of loops", **look(3))
    rows = [
        {"series": f"{name}{end}", "depth": int(j), "at_risk": int(n)} | cells(e, "acceptance")
        for end, one in (("", found), (", outside of loops", apart))
        if one is not None
        for name in ("conditional", "marginal", "greenwood")
        for j, n, e in zip(one.depth, one.at_risk, getattr(one, name), strict=True)
    ]
    rows.append({"series": "alpha"} | cells(alpha, "acceptance"))
    if alpha.value is not None and len(found.depth):
        law = alpha.value ** found.depth.astype(float)
        ax.plot(found.depth, law, ":", color=COLORS[7], label=f"α^j, α = {alpha.value:.3f}")
        rows += [
            {"series": "independent", "depth": int(j), "acceptance": float(p)}
            for j, p in zip(found.depth, law, strict=True)
        ]
    ax.set(xlabel="depth j in the draft, tokens", ylabel="acceptance", ylim=(0, 1.02))
    below(ax, 2)
    what = (
        f"steps of fixed({longest})" if starts == "steps" else f"drafts of {longest}, every start"
    )
    said = missing([*found.conditional, *found.marginal], [*found.depth, *found.depth])
    n = f"{len(taken):,} {what}, {trace.n_sequences} prompts; at depth {len(found.depth)}"
    anew = "; outside, drafts begin anew at each stretch between loops" if apart else ""
    deepest = int(found.at_risk[-1]) if len(found.depth) else 0
    said = [f"Depth {line}" for line in said]
    caption(
        ax,
        "Acceptance by position in the draft",
        f"{n} still {deepest:,} drafts; bars: 95% over prompts. {share:.0%} of the positions repeat"
        f" a verbatim loop{anew}. PARD-2 Fig. 2a prints the conditional ratio.",
    )
    return Drawn("position_decay", frame(rows), ax, tuple(said))


def _outside(
    trace: Trace, layout: PathLayout, longest: int, starts: str
) -> tuple[depth.DepthCurve | None, float]:
    """The same outside of verbatim loops, None if nothing lies there; and the share inside."""
    found = loops_of(trace)
    left = found.outside
    if left is None:
        return None, found.share
    ends = left.cut(layout.ahead), left.offsets, trace.max_new_tokens, longest
    taken = drafts.fixed_steps(*ends) if starts == "steps" else drafts.every_start(*ends)
    return depth.by_depth(left.by_prompt(taken), longest), found.share
