"""`simkit costs`: the costs there are."""

from __future__ import annotations

from typing import Annotated

import typer

from simkit.cli import complete
from simkit.cli.kinds import KINDS
from simkit.cli.listing import ListFormat, show


def costs(
    name: Annotated[
        str | None,
        typer.Argument(help="Show all about this one.", autocompletion=complete.costs),
    ] = None,
    format: Annotated[ListFormat, typer.Option(help="Output format.")] = "table",
) -> None:
    """List costs, devices and presets, with arguments and defaults; of other packages too."""
    show(KINDS["costs"], name, format)
