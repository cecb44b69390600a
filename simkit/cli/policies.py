"""`simkit policies`: the policies there are."""

from __future__ import annotations

from typing import Annotated

import typer

from simkit.cli import complete
from simkit.cli.listing import ListEntry, ListFormat, of_class, show


def policies(
    name: Annotated[
        str | None,
        typer.Argument(help="Show this one in full.", autocompletion=complete.policies),
    ] = None,
    format: Annotated[ListFormat, typer.Option(help="How to print.")] = ListFormat.table,
) -> None:
    """List policies, with their arguments and defaults; of other packages too."""
    from simkit.policies import get, names

    def one(name: str) -> ListEntry:
        return of_class(name, get(name))

    show("policy", lambda: map(one, names()), one, name, format)
