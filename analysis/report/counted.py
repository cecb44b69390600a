"""Counts of replays: what can be said without times."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from analysis.labelled_replays import replays, without
from analysis.report.cells import ReportTable, estimate, lacking, number
from analysis.stats import clusters
from analysis.study import Study
from simkit.simulator.display import Cell
from simkit.sweeps.grid import settings

COUNTS = ("tokens/step", "drafted", "accepted")
SPECS = ("autoregressive", "fixed(1)", "fixed(3)", "fixed(5)", "heuristic(initial=5)")
SPECS += ("svip(h=0.8)", "confidence(threshold=0.4)", "oracle")


def counted(study: Study, given: Sequence[str]) -> tuple[ReportTable, list[str]]:
    """Counts of a few policies and of the given ones, each with these very arguments.

    Returns:
        The table, and a line for each policy that this trace cannot give.

    Raises:
        UserError: it can give none.
    """
    specs = dict.fromkeys(map(str, settings([*SPECS, *given])))
    found, why = replays(study, {spec: spec for spec in specs}, timed=False)
    rows, steps = [], []
    for name, run in found.items():
        one = clusters.ratio(run.counts["tokens"], run.counts["steps"])
        steps.append((name, one))
        rows.append([Cell(name, None, "code"), estimate(one), *counts(run.counts)[1:]])
    heads = ["policy", "tokens/step [95%]", *COUNTS[1:]]
    notes = (
        "Accepted: share of the drafted tokens. Arguments are as given, not tuned: without times"
        " there is nothing to tune for. Intervals are over prompts.",
        *lacking(steps),
    )
    return ReportTable("policies", "Policies, counted", heads, rows, notes), without(why)


def counts(of: Mapping[str, np.ndarray]) -> list[Cell]:
    """The cells under `COUNTS`."""
    total = {name: int(values.sum()) for name, values in of.items()}
    steps, drafted = total["steps"], total["drafted"]
    return [
        number(total["tokens"] / steps if steps else None, ".3f"),
        number(drafted),
        number(total["accepted"] / drafted if drafted else None, ".1%"),
    ]
