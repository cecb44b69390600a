"""`simkit drafters`: the drafters that can be attached to a recording."""

from __future__ import annotations

from typing import Annotated

import typer

from simkit.cli import complete
from simkit.cli.listing import ListEntry, ListFormat, of_class, of_source, show

_NETWORKS = "traces.record."  # of modules that import torch


def drafters(
    name: Annotated[
        str | None,
        typer.Argument(help="Show this one in full.", autocompletion=complete.drafters),
    ] = None,
    format: Annotated[ListFormat, typer.Option(help="How to print.")] = ListFormat.table,
) -> None:
    """List drafters that can be attached, with their arguments; of other packages too."""
    from traces.attach import registry

    def one(name: str) -> ListEntry:
        place = registry.BUILT_IN.get(name, "")
        if place.startswith(_NETWORKS):
            return of_source(name, place)
        return of_class(name, registry.get(name))

    show("drafter", lambda: map(one, registry.names()), one, name, format)
