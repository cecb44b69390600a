"""Acceptance by depth of every drafter of a recording."""

from __future__ import annotations

from analysis.drafters import drafts, side_by_side
from analysis.figures.base import Plot, figure
from analysis.figures.drawing.marks import points
from analysis.figures.rows import cells
from analysis.series_styles import drafters_of
from analysis.stats import depth

DEEPEST = 16


@figure("PARD-2 Fig. 2a; PACER Fig. 6, several drafters", drafters=True)
def drafters_by_depth(plot: Plot, max_draft: int = DEEPEST) -> None:
    """Conditional acceptance by depth of each attached drafter.

    Over the steps of `fixed(max_draft)`, outside of verbatim loops where there are any; with them,
    and the marginal acceptance, in the frame.

    Args:
        max_draft: γ; a drafter that recorded less drafts as much as it has.
    """
    found, looks, looped = side_by_side(plot.study), drafters_of(plot.trace), plot.study.loops
    plot.gone += found.gone
    for k, (name, at) in enumerate(found.replays.items()):
        length = min(max_draft, at.trace.max_draft)
        taken = {"all": drafts(at, length)}
        if looped.outside is not None:
            taken["outside of loops"] = drafts(at, length, apart=True)
        curves = {where: depth.by_depth(some, length) for where, some in taken.items()}
        where, shown = list(curves.items())[-1]
        tau = taken[where].accepted.sum() / max(1, len(taken[where]))
        deep = [n for n, e in enumerate(shown.conditional) if e.lo is not None]
        some = [shown.conditional[n] for n in deep]
        drawn = {"label": f"{name}, τ = {tau:.2f}", **looks[name].line}
        points(plot.ax, shown.depth[deep] + (k - 2) * 0.05, some, **drawn)
        plot.missing(shown.conditional, [f"{name} at {j}" for j in shown.depth])
        for where, curve in curves.items():
            for kind in ("conditional", "marginal"):
                for j, n, e in zip(curve.depth, curve.at_risk, getattr(curve, kind), strict=True):
                    row = {"drafter": name, "spec": at.trace.manifest.spec, "positions": where}
                    row |= {"series": kind, "depth": int(j), "at_risk": int(n)}
                    plot.rows.append(row | cells(e, "acceptance"))
    plot.ax.set(xlabel="depth j in the draft, tokens", ylabel="accepted, given all earlier ones")
    plot.ax.set_ylim(0, 1.02)
    plot.below()
    apart = (
        f" that begin outside of verbatim loops ({looped.share:.0%} of the positions), cut off"
        " where one begins"
        if looped.outside is not None
        else ""
    )
    plot.caption(
        "Acceptance by position in the draft, by drafter",
        f"Steps of fixed({max_draft}){apart}; {plot.prompts}; bars: 95% CI over"
        " prompts; τ: accepted tokens a step; depths without an interval are in the frame only.",
    )
