"""Cells of the page's tables: numbers with their intervals, sorted by value, never NaN."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from analysis.stats import Estimate
from simkit.simulator.display import Cell, grid

MISSING = Cell("–", "", "number")
ALONE = "†"  # marks a value without an interval; a note below the table says why


@dataclass(frozen=True)
class ReportTable:
    """A table of the page.

    Attributes:
        name: an HTML id.
        title: what it is.
        heads: of the columns.
        rows: as many cells each.
        notes: what must be said below it.
        folded: whether the page shows it only when asked.
    """

    name: str
    title: str
    heads: Sequence[str]
    rows: Sequence[Sequence[str | Cell]]
    notes: tuple[str, ...] = ()
    folded: bool = False

    def __html__(self) -> str:
        """What a template shows of it."""
        first = [cell.look if isinstance(cell, Cell) else "" for cell in next(iter(self.rows), ())]
        looks = ["number" if look.startswith("number") else "" for look in first]
        heads = [Cell(head, None, look) for head, look in zip(self.heads, looks, strict=False)]
        return Markup(grid(heads or self.heads, self.rows, "sortable"))


def number(value: float | int | None, form: str = ",", look: str = "") -> Cell:
    """A number as a cell."""
    if value is None or value != value:  # noqa: PLR0124
        return MISSING
    return Cell(f"{value:{form}}", value, f"number {look}".strip())


def seconds(value: float | None) -> Cell:
    """Seconds, to three digits."""
    return number(value, ".3g" if value is not None and value < 100 else ",.0f")


def estimate(found: Estimate, form: str = ".3f", look: str = "") -> Cell:
    """A value with its interval; marked if it has none."""
    if found.value is None:
        return MISSING
    return Cell(found.text(form, f" {ALONE}"), found.value, f"number {look}".strip())


def lacking(found: Iterable[tuple[str, Estimate]]) -> tuple[str, ...]:
    """Why values of a table have no interval, or a weak one, each reason once.

    Args:
        found: the values, each with the name of its row or column. Those that a reason holds for
            are named, unless it holds for all.
    """
    reasons: dict[str, dict[str, None]] = {}
    every = set()
    for name, one in found:
        every.add(name)
        if one.note:
            mark = f"{ALONE} " if one.lo is None else ""
            said = f"{mark}{one.note[0].upper()}{one.note[1:]}"
            reasons.setdefault(said, {})[name] = None
    return tuple(
        f"{said}." if len(names) == len(every) else f"{said} ({'; '.join(names)})."
        for said, names in reasons.items()
    )
