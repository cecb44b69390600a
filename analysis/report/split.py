"""The time between the best fixed length and the prophet, in parts: `analysis.gap` as a table."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from analysis.gap import NO_GAP, parts
from analysis.labelled_replays import choices, chosen, tuned
from analysis.replays import Replayed
from analysis.report.cells import MISSING, ReportTable, estimate, lacking, number, seconds
from analysis.stats import clusters
from analysis.study import Study
from simkit.simulator.arguments import AnyCost

MEANING = {
    "fixed": "the best fixed length",
    "prophet": "the shortest time there could be, with the future known",
    "gap": "between these two",
    "reachable": "what the best policy saves",
    "overhead": "its decisions and its head",
    "unreachable": "the rest: no policy here saves it",
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
        return [], ["The gap to the prophet: this trace cannot give both of its ends."]
    union = tuple(
        spec
        for name, one in found.items()
        for spec in [families[name]]
        if isinstance(spec, str) and not one.policy.needs_future and one.policy.takes_turns
    )
    best = tuned(study, {"best": union}, cost)[0]["best"]
    seconds_of = parts(
        found["fixed"].total_s,
        best.total_s,
        best.seconds["policy_s"],
        found["prophet"].total_s,
    )
    seconds_of = {name: values[takes_time] for name, values in seconds_of.items()}
    rows, shares = [], []
    for name, values in seconds_of.items():
        cells = []
        for whole in ("fixed", "gap"):
            if not seconds_of[whole].any():
                cells.append(MISSING)
                continue
            if name == whole or not values.any():  # certain: no interval is missing
                cells.append(number(float(name == whole), ".0%"))
                continue
            share = clusters.ratio(values, seconds_of[whole])
            shares.append((name, share))
            cells.append(estimate(share, ".1%"))
        rows.append([name, MEANING[name], seconds(float(values.sum())), *cells])
    heads = ["part", "what", "seconds", "of best fixed's time [95%]", "of the gap [95%]"]
    how = chosen(study.trace)
    notes = (
        f"gap = reachable + overhead + unreachable. Best policy: {choices(best)}; {how}.",
        *([] if seconds_of["gap"].any() else [f"{NO_GAP[0].upper()}{NO_GAP[1:]}."]),
        *lacking(shares),
    )
    return [ReportTable("gap", "From the best fixed length to the prophet", heads, rows, notes)], []
