"""PACER's table of settings by task."""

from __future__ import annotations

from typing import Any

import numpy as np

from analysis.figures.filled_table import Cells, FilledTable
from analysis.labelled_replays import chosen
from analysis.replays import FAMILIES, Replays, groups

PRINTED = "the paper has b of 2 to 4, t of 0.60 to 0.70 and ρ of 1.02 or 1.05, by task and pair"


def settings(at: Replays) -> FilledTable:
    """Table 10: the setting that the most deals of the folds chose for a task's prompts."""
    found = at.tuned(FAMILIES["PACER"])
    rows: list[Cells] = []
    for task, some in groups(at.trace).items():
        shares = [float(share[some].mean()) for share in found.shares]
        best = int(np.argmax(shares)) if shares else 0
        one: Any = found.choices[best] if found.choices else found.policy
        share = f"{shares[best]:.0%}" if shares else "–"
        rows.append([task, str(one.block), f"{one.threshold:g}", f"{one.growth:g}", share])
    heads = ["task", "block size b", "threshold t", "growth factor ρ", "share of the deals"]
    note = f"{chosen(at.trace).capitalize()}, the same for all tasks of a fold; {PRINTED}."
    return FilledTable("policies_by_task", "PACER Table 10", heads, rows, note)
