"""Acceptance by depth of every drafter of a recording."""

from __future__ import annotations

from matplotlib.axes import Axes

from analysis.drafters import drafts, side_by_side
from analysis.figures.base import Drawn, caption, cells, figure, frame, missing, points
from analysis.figures.legends import below
from analysis.series_styles import drafters_of
from analysis.stats import depth
from analysis.study import Study

DEEPEST = 16


@figure("PARD-2 Fig. 2a; PACER Fig. 6, several drafters", drafters=True)
def drafters_by_depth(study: Study, ax: Axes, max_draft: int = DEEPEST) -> Drawn:
    """Conditional acceptance by depth of each drafter: PARD, PARD-2, chains, rules, a draft model.

    Over the steps of `fixed(max_draft)`, outside of verbatim loops where there are any; with them,
    and the marginal acceptance, in the frame.

    Args:
        study: of a recording that drafters were attached to.
        ax: to draw on; None makes one.
        max_draft: γ; a drafter that recorded less drafts as much as it has.
    """
    found, looks = side_by_side(study), drafters_of(study.trace)
    rows, said, gone = [], [], list(found.gone)
    loops = study.loops.outside is not None
    for k, (name, at) in enumerate(found.replays.items()):
        length = min(max_draft, at.trace.max_draft)
        taken = {"all": drafts(at, length)}
        if loops:
            taken["outside of loops"] = drafts(at, length, apart=True)
        curves = {where: depth.by_depth(some, length) for where, some in taken.items()}
        where, shown = list(curves.items())[-1]
        tau = taken[where].accepted.sum() / max(1, len(taken[where]))
        deep = [n for n, e in enumerate(shown.conditional) if e.lo is not None]
        label = f"{name}, τ = {tau:.2f}"
        some = [shown.conditional[n] for n in deep]
        points(ax, shown.depth[deep] + (k - 2) * 0.05, some, label=label, **looks[name].line)
        said += missing(shown.conditional, [f"{name} at {j}" for j in shown.depth])
        for where, curve in curves.items():
            for kind in ("conditional", "marginal"):
                for j, n, e in zip(curve.depth, curve.at_risk, getattr(curve, kind), strict=True):
                    row = {"drafter": name, "spec": at.trace.manifest.spec, "positions": where}
                    row |= {"series": kind, "depth": int(j), "at_risk": int(n)}
                    rows.append(row | cells(e, "acceptance"))
    ax.set(xlabel="depth j in the draft, tokens", ylabel="accepted, given all earlier ones")
    ax.set_ylim(0, 1.02)
    below(ax)
    apart = (
        f" outside of verbatim loops ({study.loops.share:.0%} of the positions), where drafts begin"
        " anew at each stretch"
        if loops
        else ""
    )
    caption(
        ax,
        "Acceptance by position in the draft, by drafter",
        f"Steps of fixed({max_draft}){apart}, {study.trace.n_sequences} prompts; bars: 95% over"
        " prompts; τ: accepted tokens a step; depths without an interval are in the frame.",
    )
    return Drawn("drafters_by_depth", frame(rows), ax, tuple(said + gone))
