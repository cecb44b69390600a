"""A paper's table with our numbers in it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from analysis.drafters import warned
from analysis.study import Study
from simkit.simulator.arguments import AnyCost

Cells = Sequence[str]


class FilledTable(NamedTuple):
    """A table.

    Attributes:
        name: of the figure of the same numbers.
        source: the paper's tables.
        heads: of its columns.
        rows: as many cells each.
        note: what is compared, and the settings.
    """

    name: str
    source: str
    heads: Cells
    rows: Sequence[Cells]
    note: str

    def markdown(self) -> str:
        """A heading, the table and its note."""
        lines = [self.heads, ["---"] * len(self.heads), *self.rows]
        body = "\n".join("| " + " | ".join(cells) + " |" for cells in lines)
        return f"### {self.source}\n\n{body}\n\n{self.note}\n"


def warned_of(
    tables: Sequence[FilledTable], study: Study, cost: AnyCost | None
) -> list[FilledTable]:
    """Tables whose notes begin with why their times may be wrong, if anything is known."""
    said = " ".join(warned(study, [cost]))
    return [one._replace(note=f"{said} {one.note}".strip()) for one in tables]
