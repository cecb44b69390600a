"""`simkit list`: everything that has a name."""

from __future__ import annotations

from typing import Annotated

import typer

from simkit.cli import complete
from simkit.cli.kinds import KINDS
from simkit.cli.listing import ListFormat, in_lines, show
from simkit.cli.tables import tell
from traces.bundle import other_traces
from traces.errors import UserError
from traces.registry import suggest


def list_(
    kind: Annotated[
        str | None,
        typer.Argument(help=f"Kind to list: {', '.join(KINDS)}.", autocompletion=complete.kinds),
    ] = None,
    name: Annotated[
        str | None,
        typer.Argument(help="Show all about this one.", autocompletion=complete.listed),
    ] = None,
    format: Annotated[ListFormat, typer.Option(help="Output format.")] = "table",
) -> None:
    """List policies, drafters, costs, controllers, figures, claims, engines or traces."""
    if kind is None:
        return in_lines({word: each.what for word, each in KINDS.items()})
    if kind not in KINDS:
        raise UserError(f"unknown kind {kind!r} ({suggest(kind, KINDS)})")
    show(KINDS[kind], name, format, short=True)
    if kind == "traces" and name is None:
        tell(other_traces())
