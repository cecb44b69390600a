"""`simkit costs`: the costs there are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from simkit.cli import complete
from simkit.cli.listing import ListEntry, ListFormat, of_class, show, written

if TYPE_CHECKING:
    from simkit.costs.registry import Entry


def costs(
    name: Annotated[
        str | None, typer.Argument(help="Show this one in full.", autocompletion=complete.costs)
    ] = None,
    format: Annotated[ListFormat, typer.Option(help="How to print.")] = ListFormat.table,
) -> None:
    """List costs, devices and presets, with arguments and defaults; of other packages too."""
    from simkit.costs import catalogue
    from simkit.costs.registry import COSTS
    from simkit.errors import CostError
    from traces.registry import suggest

    def one(name: str) -> ListEntry:
        found = [entry for entry in catalogue() if entry.name == name]
        if not found:
            known = [entry.name for entry in catalogue()]
            raise CostError(f"unknown cost {name!r} ({suggest(name, known)})")
        return _listed(found[0])

    def _listed(entry: Entry) -> ListEntry:
        whole = of_class(entry.name, COSTS[entry.kind], entry.what, entry.source)
        return whole if entry.name in COSTS else _given(entry, whole)

    show("cost", lambda: map(_listed, catalogue()), one, name, format)


def _given(entry: Entry, whole: ListEntry) -> ListEntry:
    """A device or a preset: a kind of cost with numbers of its own."""
    from simkit.costs.presets import PRESETS

    preset = PRESETS.get(entry.name)
    given = preset.arguments if preset else {}
    about = "\n\n".join([f"{entry.what}. Source: {entry.source}.", whole.about])
    arguments = {name: written(given[name]) for name in given}
    return whole._replace(arguments=arguments, about=about)
