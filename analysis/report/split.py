"""The time between the best fixed length and the prophet, in parts: `analysis.gap` as a table."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from analysis.gap import NO_GAP, parts
from analysis.labelled_replays import choices, chosen, tuned
from analysis.replays import Replayed
from analysis.report.cells import MISSING, ReportTable, estimate, lacking, number, seconds
from analysis.stats import Estimate, clusters
from analysis.study import Study
from simkit.simulator.arguments import AnyCost
from simkit.simulator.display import Cell

MEANING = {
    "fixed": "the best fixed length",
    "prophet": "the shortest possible time, with the future known",
    "gap": "their difference",
    "reachable": "what the best policy saves",
    "overhead": "its decisions and its head",
    "unreachable": "the rest, which no policy here saves",
}


def split(
    study: Study,
    cost: AnyCost | None,
    found: Mapping[str, Replayed],
    families: Mapping[str, str | tuple[str, ...]],
    takes_time: np.ndarray,
) -> tuple[list[ReportTable], list[str]]:
    """The gap in parts, or why it cannot be told.

    Args:
        study: of a trace of any kind.
        cost: see `simkit.replay`.
        found: the families that could be replayed, `fixed` and `prophet` among them.
        families: their specs. The best policy is chosen among those that a drafter can follow one
            step after the other.
        takes_time: prompts that count, (S,) bool.
    """
    if not {"fixed", "prophet"} <= set(found):
        return [], ["The gap to the prophet is missing: this trace cannot give both of its ends."]
    union = tuple(
        spec
        for name, one in found.items()
        for spec in [families[name]]
        if isinstance(spec, str) and not one.policy.needs_future and one.policy.takes_turns
    )
    best = tuned(study, {"best": union}, cost)[0]["best"]
    fixed_s, prophet_s = found["fixed"].total_s, found["prophet"].total_s
    every = parts(fixed_s, best.total_s, best.seconds["policy_s"], prophet_s)
    rows, shares = _rows({name: values[takes_time] for name, values in every.items()})
    heads = ["part", "what", "seconds", "share of best fixed's time [95%]", "share of gap [95%]"]
    how = chosen(study.trace)
    notes = (
        f"gap = reachable + overhead + unreachable. Best policy: {choices(best)}; {how}.",
        *([] if every["gap"][takes_time].any() else [f"{NO_GAP[0].upper()}{NO_GAP[1:]}."]),
        *lacking(shares),
    )
    return [ReportTable("gap", "From the best fixed length to the prophet", heads, rows, notes)], []


def _rows(
    parts_s: Mapping[str, np.ndarray],
) -> tuple[list[list[str | Cell]], list[tuple[str, Estimate]]]:
    """A row for each part with its shares, and the estimates among them by the part's name."""
    rows, shares = [], []
    for name, values in parts_s.items():
        cells = []
        for whole in ("fixed", "gap"):
            if not parts_s[whole].any():
                cells.append(MISSING)
            elif name == whole or not values.any():  # certain: no interval is missing
                cells.append(number(float(name == whole), ".0%"))
            else:
                shares.append((name, clusters.ratio(values, parts_s[whole])))
                cells.append(estimate(shares[-1][1], ".1%"))
        rows.append([name, MEANING[name], seconds(float(values.sum())), *cells])
    return rows, shares
