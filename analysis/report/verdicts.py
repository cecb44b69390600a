"""The papers' claims as a table of the page."""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

from analysis.claims import Findings, Verdict
from analysis.claims.table import HEADS, Finding
from analysis.report.cells import ReportTable
from simkit.simulator.display import Cell
from traces.messages import how_many

# A mark and a class for each verdict: colour is never all that tells them apart.
LOOKS = {
    Verdict.HOLDS: ("✓", "holds"),
    Verdict.FAILS: ("✗", "fails"),
    Verdict.OPEN: ("≈", "open"),
    Verdict.NO_EXAMPLE: ("∅", "open"),
    Verdict.THEOREM: ("=", "untested"),
    Verdict.SETTING: ("⚙", "untested"),
    Verdict.UNTESTED: ("–", "untested"),
}
SHOWN = (5, 6, 1, 4, 3, 0)  # of the columns, the verdict first; statistics stand below the table


class Filter(NamedTuple):
    """A choice above the table.

    Attributes:
        name: of the column.
        column: its index.
        values: to choose from, with what the page calls each.
    """

    name: str
    column: int
    values: list[tuple[str, str]]


class Verdicts(NamedTuple):
    """What the trace says of the claims.

    Attributes:
        short: how many hold.
        note: the same, and what it means.
        table: one row a claim.
        filters: above it.
        statistics: name and words of each claim, and the definition of its statistic.
    """

    short: str
    note: str
    table: ReportTable
    filters: list[Filter]
    statistics: list[tuple[str, str, str]]


def verdicts(found: Findings) -> Verdicts:
    """The findings as a table, its statistics apart."""
    heads = [HEADS[k] for k in SHOWN]
    papers = dict.fromkeys(one.claim.paper for one in found.of)
    seen = Counter(one.verdict for one in found.of)
    count = ", ".join(f"{LOOKS[v][0]} {v}: {seen[v]}" for v in Verdict if v in seen)
    filters = [
        Filter("paper", 5, [(paper, paper) for paper in papers]),
        Filter("verdict", 0, [(str(v), f"{LOOKS[v][0]} {v}") for v in Verdict if v in seen]),
    ]
    return Verdicts(
        f"{how_many(len(found.of), 'claim')} of papers and engines on this trace: {count}.",
        found.note(),
        ReportTable("claims-table", "", heads, [_row(one) for one in found.of]),
        filters,
        [(one.claim.name, one.claim.says, one.claim.statistic) for one in found.of],
    )


def _row(one: Finding) -> list[str | Cell]:
    verdict, null, says, ours, printed, paper = (one.row()[k] for k in SHOWN)
    mark, look = LOOKS[one.verdict]
    return [
        Cell(f"{mark} {verdict}", str(one.verdict), look),
        Cell(null, str(one.placebo or ""), "says"),
        Cell(says, None, "says"),
        Cell(ours, None, "says"),
        printed,
        Cell(paper, one.claim.paper),
    ]
