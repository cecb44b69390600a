"""What was found, in the format that was asked for."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from simkit.cli.options import PageFormat
from simkit.cli.tables import WIDE, csv, page

if TYPE_CHECKING:
    from rich.console import Console

    from analysis.advise import Advice
    from analysis.claims import Beside, Findings
    from analysis.compare import Compared
    from simkit.sweeps import Sweep, Tuned


def give(
    found: Findings | Beside | Compared | Advice,
    format: PageFormat,
    out: Path | None,
    show: Callable[[Console], None],
) -> None:
    """Write what was found to a file, or print it.

    Args:
        found: that.
        format: how.
        out: the file; None prints.
        show: prints its tables on a console.
    """
    if out is None and format == "table" and sys.stdout.isatty():
        return show(page())
    text = _in_words(found, format, show)
    if out is None:
        sys.stdout.write(text)
        return
    from traces.outputs import write_atomic

    write_atomic(out, text.encode())


def _in_words(
    found: Findings | Beside | Compared | Advice,
    format: PageFormat,
    show: Callable[[Console], None],
) -> str:
    """The text of a file or a pipe; see `give`."""
    if format in ("json", "csv"):
        return in_data(found, format)
    if format == "markdown":
        return found.markdown()
    from rich.console import Console

    console = Console(width=WIDE, color_system=None)
    with console.capture() as text:
        show(console)
    return "\n".join(line.rstrip() for line in text.get().splitlines()) + "\n"


def in_data(
    found: Findings | Beside | Compared | Advice | Sweep | Tuned, format: Literal["json", "csv"]
) -> str:
    """All rows of what was found, for programs."""
    if format == "csv":
        return csv(found.frame)
    import json

    return json.dumps(found.records(), indent=1, ensure_ascii=False) + "\n"
