"""A result as a table for people."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import TYPE_CHECKING, Any, NamedTuple

from simkit.format_ratio import ratio, short
from simkit.statistics.interval import ROUNDING
from traces.messages import printable

if TYPE_CHECKING:
    from rich.table import Table


LONGEST = 24  # letters of a number with its interval


class Cell(NamedTuple):
    """A cell of a table for people.

    Attributes:
        text: what it shows.
        value: what a page sorts its column by; None for the text.
        look: classes, in HTML.
    """

    text: str
    value: float | str | None = None
    look: str = ""


class TextTable(NamedTuple):
    """A table of words for people.

    Attributes:
        title: what it is.
        heads: of the columns.
        rows: as many cells each.
        note: what must be said below it.
    """

    title: str
    heads: Sequence[str]
    rows: Sequence[Sequence[str]]
    note: str = ""

    def markdown(self) -> str:
        """Title, table and note."""
        body = markdown(self.heads, self.rows)
        return "\n".join([f"**{self.title}**", "", *body, "", *([self.note, ""] * bool(self.note))])

    def html(self) -> str:
        """The same, for a notebook."""
        note = f"<p>{escape(self.note)}</p>" if self.note else ""
        return f"<p>{escape(self.title)}</p>{grid(self.heads, self.rows)}{note}"

    def text(self) -> str:
        """The same, as `print` shows it."""
        below = [self.note] if self.note else []
        return "\n".join([self.title, in_text(written(self.heads, self.rows), ()), *below, ""])


def rich(records: list[dict[str, Any]], wide: bool) -> Table:
    """Rows of a result, for the terminal; `wide` adds the parts of the time."""
    return written(*cells(records, wide))


def written(heads: Sequence[str], rows: Iterable[Sequence[str]], break_heads: bool = True) -> Table:
    """Cells as a table for the terminal: the first column is words, the others are numbers.

    Args:
        heads: of the columns.
        rows: as many cells each.
        break_heads: behind a slash.
    """
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for k, head in enumerate(heads):
        head = head.replace("/", "/\n") if break_heads else head
        table.add_column(head, justify="right" if k else "left", no_wrap=k > 0, overflow="fold")
    for row in rows:
        table.add_row(*(Text(printable(cell)) for cell in row))
    return table


def in_text(table: Table, notes: Iterable[str]) -> str:
    """A table and what a reader of it should know, as `print` shows it."""
    from rich.console import Console

    console = Console(width=160, color_system=None)
    with console.capture() as text:
        console.print(table)
    return "\n".join([text.get().rstrip(), *(f"note: {printable(note)}" for note in notes)])


def html(records: list[dict[str, Any]]) -> str:
    """Rows of a result, for a notebook."""
    return grid(*cells(records, wide=True))


def markdown(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Lines of a table in Markdown."""
    lines = [heads, ["---"] * len(heads), *rows]
    return ["| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines]


def noted(notes: Iterable[str]) -> str:
    """Lines below a table, for a notebook."""
    return "".join(f"<p>Note: {escape(note)}.</p>" for note in notes)


def idle(speedups: Iterable[tuple[str, bool, float]]) -> list[str]:
    """What to say of policies that draft nothing and are slower than the target alone.

    Args:
        speedups: of each row of a table: its policy, whether it drafts anything, and its speedup.
    """
    names = [name for name, drafts, speedup in speedups if not drafts and speedup < 1 - ROUNDING]
    if not names:
        return []
    return [
        f"{', '.join(dict.fromkeys(names))}: the speedup is below 1 although nothing is drafted,"
        " because a step of speculative decoding takes longer than one of the target alone"
    ]


def grid(heads: Sequence[str | Cell], rows: Iterable[Sequence[str | Cell]], look: str = "") -> str:
    """A table in HTML, everything in it escaped: all results show themselves through it.

    Args:
        heads: one for each column.
        rows: as many cells each.
        look: classes of the table. One without is for a notebook, whose own style sets words to
            the right and breaks intervals: its cells have styles against that.
    """
    top, *lines = (
        [cell if isinstance(cell, Cell) else Cell(cell) for cell in row] for row in (heads, *rows)
    )
    styles = ["" if look else _style(column) for column in zip(*lines, strict=True)]
    styles = styles or [""] * len(heads)
    head = "".join(_html('th scope="col"', *cell) for cell in zip(top, styles, strict=True))
    body = "".join(
        f"<tr>{''.join(_html('td', *cell) for cell in zip(line, styles, strict=True))}</tr>"
        for line in lines
    )
    start = f'<table class="{escape(look)}">' if look else "<table>"
    return f"{start}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _html(tag: str, cell: Cell, style: str) -> str:
    text, value, look = cell
    start = f' class="{escape(look)}"' if look else ""
    start += "" if value is None else f' data-value="{escape(str(value))}"'
    return f"<{tag}{start}{style}>{escape(text)}</{tag[:2]}>"


def _style(column: Iterable[Cell]) -> str:
    """Words, and what is too long for a number, start at the left; numbers do not break."""
    if any(cell.text[:1].isalpha() or len(cell.text) > LONGEST for cell in column):
        return ' style="text-align: left"'
    return ' style="white-space: nowrap"'


def cells(records: list[dict[str, Any]], wide: bool) -> tuple[list[str], list[list[str]]]:
    """Column heads, and the cells of each row; times only if there are any."""
    rows = [_row(record, wide) for record in records]
    empty = {head for head in rows[0] if all(row[head] == "" for row in rows)} if rows else set()
    heads = [head for head in (rows[0] if rows else {}) if head not in empty]
    return heads, [[row[head] for head in heads] for row in rows]


def _row(record: dict[str, Any], wide: bool) -> dict[str, str]:
    """One row's cells by head; empty where there is nothing to say."""
    keys = [key for key in ("task", "span", "sequence", "step", "start") if key in record]
    tokens, drafted = record["tokens_per_step"], record["drafted"]
    parts = ("prefill_s", "draft_s", "verify_s", "policy_s", "overhead_s") if wide else ()
    return {
        "policy": record["policy"],
        **{key: "" if record[key] is None else str(record[key]) for key in keys},
        "speedup": ratio(*(record[key] for key in ("speedup", "speedup_lo", "speedup_hi"))),
        "tokens/step": "" if tokens is None else f"{tokens:.3f}",
        **({"steps": f"{record['steps']:,}"} if wide else {}),
        "drafted": f"{drafted:,}",
        "accepted": f"{record['accepted'] / drafted:.1%}" if drafted else "",
        **({"experts": f"{record['experts']:,}"} if "experts" in record else {}),
        **{part.replace("_s", " s"): short(record[part]) for part in parts},
        "total s": short(record["total_s"]),
    }
