"""How long draft and target wait for each other."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes

from analysis.figures.base import (
    Drawn,
    caption,
    cells,
    figure,
    frame,
    ink,
    look,
    missing,
    points,
    reach,
)
from analysis.figures.legends import below
from analysis.labelled_replays import cost_name, replays, without
from analysis.replays import of
from analysis.stats import clusters
from analysis.study import Study
from simkit.simulator.arguments import AnyCost


@figure("PEARL Fig. 2a", draft_model=True)
def mutual_waiting(
    study: Study, ax: Axes, cost: AnyCost | None = None, longest: int | None = None
) -> Drawn:
    """Time of the drafting phase and of the verification phase of a step, by draft length.

    Args:
        study: of a trace of any kind.
        ax: to draw on; None makes one.
        cost: see `simkit.replay`.
        longest: γ; None means 10, or two beyond c, and at most Γ.
    """
    trace = study.trace
    c = of(study, cost).cost_ratio()
    gammas = np.arange(1, (longest or min(max(10, round(c) + 2), trace.max_draft)) + 1)
    runs, why = replays(study, {str(k): f"fixed({k})" for k in gammas}, cost)
    gone = without(why)
    gammas = np.array([int(k) for k in runs])
    parts = {"drafting, target waits": "draft_s", "verification, draft waits": "verify_s"}
    rows, said, arms = [], [], []
    for k, (label, part) in enumerate(parts.items()):
        found = []
        for one in runs.values():
            found.append(clusters.ratio(1e3 * one.seconds[part], one.counts["steps"]))
        points(ax, gammas, found, label=label, **look(k))
        said += missing(found)
        arms += [max(reach(e)) / e.value for e in found if e.value and e.lo is not None]
        for gamma, e in zip(gammas, found, strict=True):
            rows.append({"phase": part, "gamma": int(gamma)} | cells(e, "ms_per_step"))
    ax.axvline(c, color=ink(), linestyle="--", linewidth=1, label=f"c = {c:.2f}")
    rows.append({"phase": "c", "gamma": None, "ms_per_step": c})
    ax.set(xlabel="draft length γ, tokens", ylabel="time of a step, ms")
    ax.set_ylim(0)
    below(ax)
    size = f", at most ±{max(arms):.1%} of the value" if arms else ""
    caption(
        ax,
        "Drafting and verification phases of a step",
        f"{trace.n_sequences} prompts; {cost_name(study, cost)}; bars: 95% over prompts{size}.",
    )
    return Drawn("mutual_waiting", frame(rows), ax, tuple(said + gone))
