"""What it costs to verify too few, or too many, tokens of a draft that one pass yields."""

from __future__ import annotations

import numpy as np

from analysis.drafters import side_by_side
from analysis.figures.base import Plot, figure
from analysis.labelled_replays import cost_name
from analysis.replays import Replays
from analysis.series_styles import LINES, drafters_of, of_name
from analysis.stats import clusters
from analysis.study import MissingError, Study
from simkit.simulator.arguments import AnyCost

DEEPEST = 16


@figure("new", drafters=True)
def parallel_stop(plot: Plot, cost: AnyCost | None = None) -> None:
    """Time lost against the prophet by verifying too few or too many tokens of a parallel draft.

    Late is what verifying tokens behind the first rejected one took; early is the rest: steps that
    longer verification would have saved. The draft's pass is paid whatever is verified. Shows a
    parallel drafter, or those that were attached to a recording.
    """
    found, looks = _parallel(plot.study, cost), drafters_of(plot.trace)
    for name, at in found.items():
        best_s = at.replay("prophet").total_s
        lengths = np.arange(1, min(DEEPEST, at.trace.max_draft) + 1)
        mine = [_lost(at, int(length), best_s) for length in lengths]
        lost = {"late": [late for late, _ in mine], "early": [early for _, early in mine]}
        lost["both"] = [late + early for late, early in mine]
        of = [f"{name}, {length}" for length in lengths]
        for k, (series, values) in enumerate(lost.items()):
            estimates = [clusters.ratio(value, best_s) for value in values]
            look = looks.get(name, of_name(name)).line | {"linestyle": LINES[k - 1]}
            facts = [{"drafter": name, "k": int(j), "series": series} for j in lengths]
            drawn = {"of": of, "label": f"{name}: {series}", **look}
            plot.series(lengths + 0.06 * (k - 1), estimates, facts, "lost", **drawn)
    plot.ax.set(xlabel="tokens verified of each draft, k", ylabel="time lost ÷ prophet's time")
    plot.ax.set_ylim(0)
    plot.below()
    first = next(iter(found.values())).study
    plot.caption(
        "Verifying too many or too few tokens of a parallel draft",
        "Late: time for verifying tokens after the first rejected one; early: the rest, for steps"
        f" that verifying more would have saved. {cost_name(first, cost)}; {plot.prompts};"
        " bars: 95% CI over prompts.",
    )


def _parallel(study: Study, cost: AnyCost | None) -> dict[str, Replays]:
    """Drafters that yield a whole draft in a pass."""
    if study.trace.manifest.draft_passes == "draft":
        at = Replays(study, cost)
        return {study.trace.manifest.spec or "draft": at}
    found = side_by_side(study, cost, timed=True)
    some = {n: at for n, at in found.replays.items() if at.trace.manifest.draft_passes == "draft"}
    if not some:
        why = "; ".join(found.gone) or "none of its drafters yields a whole draft in a pass"
        raise MissingError(why.rstrip("."))
    return some


def _lost(at: Replays, length: int, best_s: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Seconds lost late and early by fixed(length), (S,) each."""
    late = np.zeros(len(best_s))
    charge = at.charge
    for steps, seconds in at.run(f"fixed({length})").pieces():
        assert seconds is not None
        context = steps.known(charge.layout)
        needed = np.minimum(steps.accepted + 1, steps.proposed)
        wasted = charge.verify(steps.proposed + 1, context) - charge.verify(needed + 1, context)
        late += np.bincount(steps.sequence, wasted, len(late))
    total = at.replay(f"fixed({length})").total_s
    return late, total - best_s - late
