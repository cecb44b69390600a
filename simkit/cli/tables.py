"""The one style of tables that commands print, and what becomes of one where there is no room."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from traces.messages import how_many, plain, printable

if TYPE_CHECKING:
    from polars import DataFrame
    from rich.console import Console
    from rich.table import Table

WIDE = 200
"""Columns of a page where no terminal says how wide it is."""
_FORMULA = re.compile(r"[=@\t\r]|[+-](?![0-9.]+$)")  # how cells begin that are calculated
_WORD = 12  # letters of a word that may be broken, in a column that is no number's
_FITS = 130  # columns from which a replay's table has all of its parts


def page(width: int = WIDE) -> Console:
    """Standard output: as wide as its terminal, `width` where there is none."""
    from rich.console import Console

    console = Console()
    return console if console.is_terminal else Console(width=width)


def table(heads: Sequence[str], rows: Iterable[Sequence[str]], apart: bool = False) -> Table:
    """A table in the style of all: a rule below the heads, numbers to the right.

    Args:
        heads: of the columns.
        rows: of cells, shown as they are.
        apart: an empty line between rows, for cells of several lines.
    """
    from rich import box
    from rich.table import Table
    from rich.text import Text

    lines = [list(row) for row in rows]
    made = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, leading=1 if apart else 0)
    for k, head in enumerate(heads):
        right = k > 0 and all(_is_number(line[k]) for line in lines)
        how = {"justify": "right", "no_wrap": True} if right else {}
        made.add_column(Text(head), overflow="fold", **how)
    for line in lines:
        made.add_row(*(Text(printable(cell)) for cell in line))
    return made


def csv(frame: DataFrame) -> str:
    """A frame as CSV, of which no cell is a formula to a spreadsheet, or a code to a terminal."""
    import polars as pl

    texts = [name for name, kind in frame.schema.items() if kind == pl.String]
    made = [frame[name].map_elements(csv_cell, pl.String).alias(name) for name in texts]
    return frame.with_columns(made).write_csv()


def csv_cell(value: str) -> str:
    """A text as a cell of CSV: one that a spreadsheet would calculate has a quote before it."""
    return f"'{printable(value)}" if _FORMULA.match(value) else printable(value)


def tell(notes: Iterable[str]) -> None:
    """Say on stderr what a reader of the numbers should know, a line each."""
    import sys

    for note in notes:
        print(f"note: {plain(note)}", file=sys.stderr)


def conclude(answer: str, format: str) -> None:
    """End a table for people with its answer in one sentence; other formats have data alone."""
    if format == "table":
        page().print(f"\n{printable(answer)}", markup=False, highlight=False, soft_wrap=True)


def say(shown: Table, console: Console | None = None) -> None:
    """Print a table; one row below the other, a line a cell, where its numbers have no room."""
    console = console or page()
    console.print(shown if needed(shown, console) <= console.width else stacked(shown))


def say_replay(of: Callable[[bool], Table]) -> None:
    """Print the table of a replay; where parts of the time have no room, say that there are more.

    Args:
        of: gives the table with all parts (True), or without.
    """
    console = page()
    if console.width >= _FITS:
        say(of(True), console)
        return
    some = of(False)
    say(some, console)
    tell_more(of(True), some)


def tell_more(wide: Table, some: Table) -> None:
    """Say on stderr which columns a narrow terminal does not get."""
    there = [str(column.header) for column in some.columns]
    more = [str(column.header) for column in wide.columns if str(column.header) not in there]
    if more:
        names = ", ".join(name.replace("\n", "") for name in more)
        said = f"{how_many(len(more), 'column')} more ({names}): widen the terminal or use --format"
        tell([said])


def needed(shown: Table, console: Console) -> int:
    """Columns that a table takes at least if no number, and no short word, is broken."""
    from rich.measure import Measurement

    widths = []
    for column in shown.columns:
        cells = [Measurement.get(console, console.options, cell) for cell in _cells(column)]
        whole = column.no_wrap or column.justify == "right"
        least = [cell.maximum if whole else min(cell.minimum, _WORD) for cell in cells]
        widths.append(max(least, default=0))
    return sum(widths) + 3 * max(0, len(widths) - 1)


def stacked(shown: Table) -> Table:
    """The cells of a table, each on a line with its head; an empty line behind each row."""
    from rich.table import Table

    made = Table.grid(padding=(0, 2, 0, 0))
    made.add_column(style="bold", no_wrap=True)
    made.add_column(overflow="fold")
    heads = [str(column.header).replace("\n", "") for column in shown.columns]
    for row in zip(*(column.cells for column in shown.columns), strict=True):
        for head, cell in zip(heads, row, strict=True):
            if str(cell):
                made.add_row(head, cell)
        made.add_row("", "")
    return made


def _cells(column: object) -> list:
    """A column's cells, its head among them."""
    return [column.header, *column.cells]  # type: ignore[attr-defined]


def _is_number(cell: str) -> bool:
    return not cell or cell.lstrip("-–+~≈ [")[:1].isdigit()
