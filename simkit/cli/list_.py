"""`simkit list`: everything that has a name; `policies`, `drafters` and `costs`: kinds in full."""

from __future__ import annotations

from typing import Annotated

import typer

from simkit.cli import complete
from simkit.cli.kinds import KINDS
from simkit.cli.listing import ListFormat, show, show_kinds
from simkit.cli.tables import tell
from traces.bundle import other_traces
from traces.errors import UserError
from traces.registry import suggest

_ALL = "Show all about this one."
Printed = Annotated[ListFormat, typer.Option(help="Output format.")]


def list_(
    kind: Annotated[
        str | None,
        typer.Argument(help=f"Kind to list: {', '.join(KINDS)}.", autocompletion=complete.kinds),
    ] = None,
    name: Annotated[str | None, typer.Argument(help=_ALL, autocompletion=complete.listed)] = None,
    format: Printed = "table",
) -> None:
    """List policies, drafters, costs, controllers, figures, claims, engines or traces."""
    if kind is None:
        return show_kinds({word: each.what for word, each in KINDS.items()}, format)
    if kind not in KINDS:
        raise UserError(f"unknown kind {kind!r} ({suggest(kind, KINDS)})")
    show(KINDS[kind], name, format, short=True)
    if kind == "traces" and name is None:
        tell(other_traces())


def policies(
    name: Annotated[str | None, typer.Argument(help=_ALL, autocompletion=complete.policies)] = None,
    format: Printed = "table",
) -> None:
    """List policies, with their arguments and defaults; of other packages too."""
    show(KINDS["policies"], name, format)


def drafters(
    name: Annotated[str | None, typer.Argument(help=_ALL, autocompletion=complete.drafters)] = None,
    format: Printed = "table",
) -> None:
    """List drafters that can be attached, with their arguments; of other packages too."""
    show(KINDS["drafters"], name, format)


def costs(
    name: Annotated[str | None, typer.Argument(help=_ALL, autocompletion=complete.costs)] = None,
    format: Printed = "table",
) -> None:
    """List costs, devices and presets, with arguments and defaults; of other packages too."""
    show(KINDS["costs"], name, format)
