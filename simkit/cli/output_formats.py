"""What was found, in the format that was asked for."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from simkit.cli.options import PageFormat
from simkit.cli.tables import WIDE, csv

if TYPE_CHECKING:
    from rich.console import Console


def in_words(found: Any, format: PageFormat, show: Callable[[Console], None]) -> str:
    """The text of a file or a pipe.

    Args:
        found: has a `frame` of all numbers, `records()` of them and a page of `markdown()`.
        format: how.
        show: prints its tables on a console.
    """
    if format is PageFormat.json:
        import json

        return json.dumps(found.records(), indent=1, ensure_ascii=False) + "\n"
    if format is PageFormat.csv:
        return csv(found.frame)
    if format is PageFormat.markdown:
        return found.markdown()
    from rich.console import Console

    console = Console(width=WIDE, color_system=None)
    with console.capture() as text:
        show(console)
    return "\n".join(line.rstrip() for line in text.get().splitlines()) + "\n"
