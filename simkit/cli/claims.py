"""`simkit claims`: the papers' claims, tested on a trace."""

from __future__ import annotations

from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from simkit.cli.options import (
    MORE,
    Cost,
    Drafter,
    First,
    FirstToken,
    PageFormat,
    PageOut,
    PrintedPage,
    Sampled,
    TraceName,
)
from simkit.cli.output_formats import give
from simkit.cli.overwrite_guard import check_apart
from simkit.cli.places import check_option, drafted, tell_times
from simkit.cli.progress import settings_bar

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from analysis.claims import Beside, Findings


class ClaimsBy(StrEnum):
    """What a claim is tested on."""

    trace = "trace"
    span = "span"


OtherTraces = Annotated[
    list[str] | None,
    typer.Option(
        metavar="TRACE",
        help="Test the claims on this trace too and show both side by side; repeat it for more."
        " --drafter and --sampled apply to the first trace only.",
        show_default=False,
    ),
]


def claims(
    trace: TraceName,
    cost: Cost = None,
    drafter: Drafter = None,
    first_token: First = FirstToken.draft,
    sampled: Sampled = None,
    beside: OtherTraces = None,
    by: Annotated[
        ClaimsBy,
        typer.Option(
            rich_help_panel=MORE,
            help="What claims are tested on. span: each span of the outputs (simkit spans).",
        ),
    ] = ClaimsBy.trace,
    format: PrintedPage = PageFormat.table,
    out: PageOut = None,
) -> None:
    """Test the papers' claims on a trace."""
    from analysis.claims import beside as side_by_side
    from analysis.claims import check, check_by_span
    from analysis.claims.beside import check_names
    from analysis.claims.table import name_of
    from analysis.study import Study

    if out is not None:
        check_option("--out", out)
        check_apart([("--out", out)], [trace, cost, sampled, *(beside or [])])
    if by is ClaimsBy.span:
        _no_other(sampled, beside)
    studies = [Study(drafted(trace, drafter), first_token.value)]
    studies += [Study(drafted(other, None), first_token.value) for other in beside or []]
    check_names([name_of(study.trace) for study in studies])
    of = []
    for study in studies:
        with settings_bar("claims") as progress:
            if by is ClaimsBy.span:
                of += check_by_span(study, cost, progress=progress).of
            else:
                of.append(check(study, cost, None if of else sampled, progress=progress))
        tell_times(study, cost)
    found = side_by_side(of) if len(of) > 1 else of[0]
    give(found, format, out, partial(_print, found))


def _no_other(sampled: str | None, beside: list[str] | None) -> None:
    from traces.errors import UserError

    for option, given in (("--sampled", sampled), ("--beside", beside)):
        if given:
            raise UserError(f"--by span is of one trace: leave out {option}")


def _print(found: Findings | Beside, console: Console) -> None:
    from simkit.cli.tables import say

    say(_table(found), console)
    console.print(found.note(), markup=False, highlight=False)


def _table(found: Findings | Beside) -> Table:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    from analysis.claims import Findings
    from analysis.claims.table import HEADS

    alone = isinstance(found, Findings)
    heads = HEADS if alone else found.heads
    shares = (4, 6, 4, 4, 6, 4, 3) if alone else (5, 4, 2, *[5] * len(found.of))
    rows = [one.row() for one in found.of] if alone else found.rows()
    table = Table(
        box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, expand=True, padding=(0, 1, 1, 0)
    )
    for head, share in zip(heads, shares, strict=True):
        table.add_column(head, ratio=share, overflow="fold")
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    return table
