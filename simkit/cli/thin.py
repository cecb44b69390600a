"""`simkit thin`: a smaller copy of a trace."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from simkit.cli.options import MORE, TraceName

Drafters = Annotated[
    str | None,
    typer.Option(
        help="Attached drafters to copy, separated by commas; '' copies none. Default: all."
    ),
]


def thin(
    trace: TraceName,
    out: Annotated[Path, typer.Option("-o", "--out", help="Folder of the copy.")],
    columns: Annotated[
        str | None, typer.Option(help="Statistics to keep, separated by commas. Default: all.")
    ] = None,
    drafter_columns: Annotated[
        str | None,
        typer.Option(
            rich_help_panel=MORE,
            help="Statistics of attached drafters to keep, separated by commas. Default:"
            " those of --columns.",
        ),
    ] = None,
    bits: Annotated[
        int,
        typer.Option(help="Significant bits of each statistic, 4 to 23. 0: no rounding."),
    ] = 0,
    drafters: Drafters = None,
    own: Annotated[
        str | None,
        typer.Option(
            rich_help_panel=MORE, help="Attached draft model to make the copy's own drafter."
        ),
    ] = None,
    drop_tokens: Annotated[
        bool,
        typer.Option(
            "--drop-tokens",
            rich_help_panel=MORE,
            help="Leave out the ids of draft tokens that no replay reads.",
        ),
    ] = False,
) -> None:
    """Write a smaller copy of a trace, with fewer statistics or rounded ones, to pass on."""
    from simkit.overwrite_guard import check_apart
    from traces.describe import size_in_words
    from traces.thin import thin as run
    from traces.trace import load

    check_apart([("--out", out)], [trace])
    there = load(trace)
    kept = _statistics("--columns", columns)
    theirs = _statistics("--drafter-columns", drafter_columns)
    copy = run(there, out, kept, bits, _names(drafters), own, drop_tokens, theirs)
    sizes = (size_in_words(_bytes(folder)) for folder in (copy, there.path or copy))
    typer.echo("{}: {} of {}".format(copy, *sizes), err=True)


def _bytes(folder: Path) -> int:
    """Of all files in a folder."""
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


def _statistics(option: str, given: str | None) -> tuple[str, ...]:
    """Those of a list with commas; empty without the option."""
    from traces.errors import TraceError

    names = _names(given)
    if names == ():
        raise TraceError(f"{option} {given!r} names no statistic: name some, or leave it out")
    return names or ()


def _names(given: str | None) -> tuple[str, ...] | None:
    """A list with commas."""
    if given is None:
        return None
    return tuple(name for name in map(str.strip, given.split(",")) if name)
