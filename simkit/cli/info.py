"""`simkit info`: what is in a trace."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from simkit.cli.options import TraceName


def info(
    trace: TraceName,
    format: Annotated[Literal["table", "json"], typer.Option(help="Output format.")] = "table",
) -> None:
    """Show what is in a trace."""
    from simkit.cli.tables import tell
    from traces.bundle import more_of
    from traces.describe import describe, in_words
    from traces.messages import printable
    from traces.trace import load

    opened = load(trace)
    facts = describe(opened)
    tell(more_of(opened.path))
    if format == "json":
        import json

        typer.echo(json.dumps(facts, indent=2, ensure_ascii=False))
        return
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column(style="bold", no_wrap=True)
    table.add_column()
    for name, value in in_words(facts):
        table.add_row(name, Text(printable(value)))
    Console().print(table)
