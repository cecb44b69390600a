"""`simkit compare`: traces, or the drafters of one, compared with each other."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from simkit.cli import complete
from simkit.cli.options import (
    Confidence,
    Cost,
    First,
    PageOut,
    PrintedPage,
)
from simkit.cli.output_formats import give
from simkit.cli.places import check_outputs
from simkit.cli.progress import settings_bar

if TYPE_CHECKING:
    from rich.console import Console

    from analysis.compare import Compared


Traces = Annotated[
    list[str],
    typer.Argument(
        help="Traces: folders, URLs or bundled traces' names. Each is compared with the first.",
        autocompletion=complete.traces,
    ),
]
Drafters = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME",
        help="Drafter that was attached to each trace. Repeat it to compare several. Default:"
        " own, the one that a trace was recorded with.",
        show_default=False,
    ),
]
Policies = Annotated[
    list[str] | None,
    typer.Option(
        metavar="SPEC",
        help="Policy to compare; one with ranges is tuned. Repeat it for several. Default:"
        " every policy that works with the drafter.",
        show_default=False,
        autocompletion=complete.policies,
    ),
]


def compare(
    trace: Traces,
    drafter: Drafters = None,
    policy: Policies = None,
    cost: Cost = None,
    tune: Annotated[
        bool, typer.Option("--tune", help="Also tune each policy on each trace.")
    ] = False,
    first_token: First = "draft",
    confidence: Confidence = 0.95,
    format: PrintedPage = "table",
    out: PageOut = None,
) -> None:
    """Compare traces, or the drafters of one trace."""
    from analysis.compare import compare as held_against

    check_outputs([("--out", out)], [*trace, cost])
    with settings_bar("compared") as progress:
        found = held_against(
            *trace,
            drafters=drafter or [],
            policies=policy or [],
            cost=cost,
            tune=tune,
            first_token=first_token,
            confidence=confidence,
            progress=progress,
        )
    give(found, format, out, partial(_print, found))
    if format in ("json", "csv"):  # these have numbers alone
        for note in dict.fromkeys(note for pair in found.pairs for note in pair.notes):
            typer.echo(f"note: {note}", err=True)


def _print(found: Compared, console: Console) -> None:
    from simkit.cli import tables

    def say(line: str) -> None:
        console.print(line, markup=False, highlight=False)

    for title, some, notes in found.sections():
        if title:
            say(f"{title}\n")
        for one in some:
            say(one.title)
            tables.say(tables.table(one.heads, one.rows), console)
            say(f"{one.note}\n" if one.note else "")
        for note in notes:
            say(f"note: {note}")
    for pair in found.pairs:
        say(f"\n{pair.answer()}")
