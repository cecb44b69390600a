"""`simkit drafters`: the drafters that can be attached to a recording."""

from __future__ import annotations

from typing import Annotated

import typer

from simkit.cli import complete
from simkit.cli.kinds import KINDS
from simkit.cli.listing import ListFormat, show


def drafters(
    name: Annotated[
        str | None,
        typer.Argument(help="Show all about this one.", autocompletion=complete.drafters),
    ] = None,
    format: Annotated[ListFormat, typer.Option(help="Output format.")] = "table",
) -> None:
    """List drafters that can be attached, with their arguments; of other packages too."""
    show(KINDS["drafters"], name, format)
