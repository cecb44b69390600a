"""`simkit claims`: the papers' claims, tested on a trace."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from simkit.cli.options import (
    MORE,
    Cost,
    Drafter,
    First,
    PageOut,
    PrintedPage,
    Sampled,
    TraceName,
)
from simkit.cli.output_formats import give
from simkit.cli.places import check_outputs, drafted, tell_times
from simkit.cli.progress import settings_bar

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from analysis.claims import Beside, Findings
    from analysis.study import Study


ClaimsBy = Literal["trace", "span", "acceptance"]


OtherTraces = Annotated[
    list[str] | None,
    typer.Option(
        metavar="TRACE",
        help="Also test the claims on this trace and show both side by side. Repeat it for"
        " several. --drafter and --sampled apply to the first trace only.",
        show_default=False,
    ),
]

Plot = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE.svg",
        rich_help_panel=MORE,
        help="Draw the verdicts of --by acceptance into this file (.png, .svg or .pdf).",
    ),
]
Panels = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE.svg",
        rich_help_panel=MORE,
        help="Draw the statistics of --by acceptance into this file (.png, .svg or .pdf), a panel"
        " for each claim.",
    ),
]


def claims(
    trace: TraceName,
    cost: Cost = None,
    drafter: Drafter = None,
    first_token: First = "draft",
    sampled: Sampled = None,
    beside: OtherTraces = None,
    by: Annotated[
        ClaimsBy,
        typer.Option(
            rich_help_panel=MORE,
            help="What each claim is tested on. trace: the whole trace. span: each kind of"
            " span (see simkit spans). acceptance: each drafter of the trace, or with"
            " --beside each trace, ordered by acceptance rate; this shows at which acceptance"
            " the claim holds.",
        ),
    ] = "trace",
    plot: Plot = None,
    panels: Panels = None,
    format: PrintedPage = "table",
    out: PageOut = None,
) -> None:
    """Test the papers' claims on a trace."""
    from analysis.claims.beside import check_names
    from analysis.claims.table import name_of
    from analysis.study import Study

    pictures = {"--plot": plot, "--panels": panels}
    check_outputs([("--out", out), *pictures.items()], [trace, cost, sampled, *(beside or [])])
    _check(by, {"--sampled": sampled, "--beside": beside, **pictures})
    studies = [Study(drafted(trace, drafter), first_token)]
    studies += [Study(drafted(other, None), first_token) for other in beside or []]
    check_names([name_of(study.trace) for study in studies])
    if by == "acceptance":
        found: Findings | Beside = _by_acceptance(studies, cost, plot, panels)
    else:
        found = _tested(studies, cost, by, sampled)
    give(found, format, out, partial(_print, found))


def _tested(
    studies: list[Study], cost: str | None, by: ClaimsBy, sampled: str | None
) -> Findings | Beside:
    """What each trace says, or each span of one, side by side if there are several."""
    from analysis.claims import beside as side_by_side
    from analysis.claims import check, check_by_span

    of: list[Findings] = []
    for study in studies:
        with settings_bar("claims") as progress:
            if by == "span":
                of += check_by_span(study, cost, progress=progress).of
            else:
                of.append(check(study, cost, None if of else sampled, progress=progress))
        tell_times(study, cost)
    return side_by_side(of) if len(of) > 1 else of[0]


def _by_acceptance(
    studies: list[Study], cost: str | None, plot: Path | None, panels: Path | None
) -> Beside:
    from analysis.claims import by_acceptance

    _check_form("--plot", plot)
    _check_form("--panels", panels)
    with settings_bar("claims") as progress:
        found = by_acceptance(studies, cost, progress=progress)
    for study in studies:
        tell_times(study, cost)
    for picture in (plot, panels):
        if picture is not None:
            found.save(picture, panels=picture is panels)
    return found


def _check_form(option: str, picture: Path | None) -> None:
    from analysis.figures.drawing.styles import FORMATS
    from traces.errors import UserError

    if picture is not None and picture.suffix[1:] not in FORMATS:
        ends = ", ".join(f".{form}" for form in FORMATS)
        raise UserError(f"{option} {picture}: must end in one of {ends}")


_WAYS: dict[str, tuple[ClaimsBy, ...]] = {
    "--sampled": ("trace",),
    "--beside": ("trace", "acceptance"),
    "--plot": ("acceptance",),
    "--panels": ("acceptance",),
}
"""With which --by an option can be used."""


def _check(by: ClaimsBy, given: dict[str, object]) -> None:
    """Refuse options that do not go together."""
    from traces.errors import UserError

    for option, value in given.items():
        if value and by not in _WAYS[option]:
            needs = f"needs --by {_WAYS[option][0]}" if len(_WAYS[option]) == 1 else ""
            raise UserError(f"{option} {needs or f'cannot be used with --by {by}'}")


def _print(found: Findings | Beside, console: Console) -> None:
    from simkit.cli.tables import say

    say(_table(found), console)
    console.print(found.note(), markup=False, highlight=False)


def _table(found: Findings | Beside) -> Table:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    from analysis.claims import Findings
    from analysis.claims.table import HEADS

    alone = isinstance(found, Findings)
    heads = HEADS if alone else found.heads
    shares = (4, 6, 4, 4, 6, 4, 3) if alone else (5, 4, 2, *[5] * len(found.of))
    rows = [one.row() for one in found.of] if alone else found.rows()
    table = Table(
        box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, expand=True, padding=(0, 1, 1, 0)
    )
    for head, share in zip(heads, shares, strict=True):
        table.add_column(head, ratio=share, overflow="fold")
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    return table
