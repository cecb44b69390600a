"""`simkit compare`: traces, or the drafters of one, held against each other."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from simkit.cli import complete
from simkit.cli.options import Cost, First, FirstToken, PageFormat
from simkit.cli.output_formats import in_words
from simkit.cli.overwrite_guard import check_apart
from simkit.cli.places import check_option
from simkit.cli.progress import settings_bar

if TYPE_CHECKING:
    from rich.console import Console

    from analysis.compare import Compared


def compare(
    trace: Annotated[
        list[str],
        typer.Argument(
            help="Traces' folders, URLs, or bundled traces' names: each against the first.",
            autocompletion=complete.traces,
        ),
    ],
    drafter: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="A drafter that was attached to each trace; give it again to compare several. own"
            " is the one that it was recorded with, and the default.",
            show_default=False,
        ),
    ] = None,
    policy: Annotated[
        list[str] | None,
        typer.Option(
            metavar="SPEC",
            help="Give it again for more; one with ranges is tuned. Default: every policy that a"
            " drafter can follow.",
            show_default=False,
            autocompletion=complete.policies,
        ),
    ] = None,
    cost: Cost = None,
    tune: Annotated[
        bool, typer.Option("--tune", help="Tune each policy on each trace as well.")
    ] = False,
    first_token: First = FirstToken.draft,
    confidence: Annotated[float, typer.Option(help="Of the intervals over prompts.")] = 0.95,
    format: Annotated[PageFormat, typer.Option(help="How to print.")] = PageFormat.table,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", metavar="FILE", help="Write there instead.")
    ] = None,
) -> None:
    """Hold traces, or the drafters of one, against each other."""
    from analysis.compare import compare as held_against
    from traces.outputs import write_atomic

    if out is not None:
        check_option("--out", out)
        check_apart([("--out", out)], [*trace, cost])
    with settings_bar("compared") as progress:
        found = held_against(
            *trace,
            drafters=drafter or [],
            policies=policy or [],
            cost=cost,
            tune=tune,
            first_token=first_token.value,
            confidence=confidence,
            progress=progress,
        )
    if out is not None:
        write_atomic(out, in_words(found, format, partial(_print, found)).encode())
    elif format is PageFormat.table and sys.stdout.isatty():
        from simkit.cli.tables import page

        _print(found, page())
    else:
        sys.stdout.write(in_words(found, format, partial(_print, found)))
    if format in (PageFormat.json, PageFormat.csv):  # these have numbers alone
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
