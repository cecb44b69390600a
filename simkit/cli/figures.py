"""`simkit figures`: the papers' figures from a trace."""

from __future__ import annotations

import time
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from simkit.cli import complete
from simkit.cli.options import MORE, Beside, Cost, Drafter, First, FirstToken
from simkit.cli.places import check_option, drafted, tell_times
from simkit.overwrite_guard import check_apart
from traces.messages import how_many

if TYPE_CHECKING:
    from analysis.figures import FigureEntry
    from analysis.study import Study


class PictureFormat(StrEnum):
    """A picture's file."""

    png = "png"
    svg = "svg"
    pdf = "pdf"


LOOK = "How pictures look"
Formats = Annotated[
    list[PictureFormat] | None,
    typer.Option(
        "--format",
        help="Format of pictures. Repeat it for several. Default: png and svg.",
        rich_help_panel=LOOK,
        show_default=False,
    ),
]
Width = Annotated[
    str | None,
    typer.Option(
        metavar="INCHES",
        help="Width of pictures in inches, or column (3.3), text (5.5) or page (6.75). Default:"
        " 6.4.",
        rich_help_panel=LOOK,
        show_default=False,
    ),
]
Dpi = Annotated[float, typer.Option(help="Dots per inch of PNG files.", rich_help_panel=MORE)]
Style = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="A matplotlib style or a .mplstyle file, applied on top of simkit's own style.",
        rich_help_panel=MORE,
        show_default=False,
    ),
]


SideBySide = Annotated[
    Beside,
    typer.Option(
        help="Show tasks side by side, or spans of the outputs (see simkit spans). With span,"
        " only figures that can show spans are drawn.",
        rich_help_panel=MORE,
    ),
]
Only = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME",
        help="Draw only this figure. Repeat it for several.",
        autocompletion=complete.figures,
    ),
]
FigurePolicies = Annotated[
    list[str] | None,
    typer.Option(
        metavar="SPEC",
        help="Also compare this policy; one with ranges is tuned. Repeat it for several. Only"
        " figures that compare policies are then drawn.",
        show_default=False,
        autocompletion=complete.policies,
    ),
]


class _Look(NamedTuple):
    """What pictures are written as."""

    formats: tuple[str, ...]
    width: float
    dpi: float
    style: str | None


class _Shown(NamedTuple):
    """What is shown side by side, and the policies that are shown too."""

    by: Beside
    policies: tuple[str, ...]


def figures(
    trace: Annotated[
        str | None,
        typer.Argument(
            help="Trace: its folder, its URL in an object store, or a bundled trace's name.",
            autocompletion=complete.traces,
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", metavar="DIR", help="Folder for pictures and data."),
    ] = None,
    only: Only = None,
    cost: Cost = None,
    policy: FigurePolicies = None,
    drafter: Drafter = None,
    first_token: First = "draft",
    by: SideBySide = "task",
    formats: Formats = None,
    width: Width = None,
    dpi: Dpi = 110,
    style: Style = None,
    list_: Annotated[bool, typer.Option("--list", help="List the figures and exit.")] = False,
) -> None:
    """Draw the papers' figures from a trace; the frame of each is a Parquet file beside it."""
    from analysis.labelled_replays import labelled
    from simkit import costs
    from traces.errors import UserError

    shown = _Shown(by, tuple(labelled(policy).values()))
    chosen = _chosen(only or [], shown)
    look = _look(formats, width, dpi, style)
    if cost is not None:
        costs.parse(cost)  # refused here, though no chosen figure may take one
    if out is not None:
        _check_folder(out)
    study = None if trace is None else _study(drafted(trace, drafter), first_token, by)
    if list_:
        return _list(chosen)
    if study is None or out is None:
        raise UserError("figures needs a TRACE and --out DIR (or --list)")
    ends = (*look.formats, "parquet")
    files = [out / f"{entry.called(by)}.{end}" for entry in chosen for end in ends]
    check_apart([("--out", file) for file in files], [trace, cost])
    if out.is_dir():
        check_option("--out", files[0])
    shown = shown._replace(policies=_replayed(study, cost, shown.policies))
    _draw(chosen, study, out, cost, look, shown, asked=bool(only))


def _check_folder(out: Path) -> None:
    from traces.errors import UserError
    from traces.urls import refuse_url

    refuse_url(out)
    if out.exists() and not out.is_dir():
        raise UserError(f"--out {out} is a file: name a folder")


def _look(
    formats: list[PictureFormat] | None, width: str | None, dpi: float, style: str | None
) -> _Look:
    """The options of pictures, refused before anything is replayed."""
    from analysis.figures.drawing.styles import DEFAULT_FORMATS, check_dpi, inches, settings_of

    settings_of(style)
    kinds = tuple(dict.fromkeys(one.value for one in formats)) if formats else DEFAULT_FORMATS
    return _Look(kinds, inches(width), check_dpi(dpi), style)


def _study(name: str, first_token: FirstToken, by: Beside) -> Study:
    """What a trace may lack skips a figure, what it must have ends them all."""
    from analysis.groups import Groups
    from analysis.study import Study
    from traces.validate import check_schemas

    study = Study(name, first_token)
    check_schemas(study.trace)
    Groups(study.trace, by)
    return study


def _replayed(study: Study, cost: str | None, policies: tuple[str, ...]) -> tuple[str, ...]:
    """Those that the trace can give, which figures find kept; a line for each other."""
    from analysis.labelled_replays import labelled, tuned
    from analysis.study import MissingError

    if not policies:
        return ()
    wanted = labelled(policies)
    try:
        found, why = tuned(study, wanted, cost)
    except MissingError as error:
        raise MissingError(f"--policy: {error}") from None
    for line in why:
        if line.startswith("Without"):
            typer.echo(f"{line[0].lower()}{line[1:]}")
    return tuple(wanted[label] for label in found)


def _draw(
    chosen: list[FigureEntry],
    study: Study,
    out: Path,
    cost: str | None,
    look: _Look,
    shown: _Shown,
    asked: bool,
) -> None:
    """Draw and write all that the trace can give, one line each; what it cannot give comes last.

    Figures that say nothing of the trace, or under prices that nobody gave, are left out, unless
    they were asked for by name.
    """
    from traces.errors import UserError

    skipped, noted = {}, 0
    for entry in chosen:
        begun = time.perf_counter()
        try:
            draw = entry.under if asked else entry.unasked
            found = draw(study, cost, look.width, look.style, *shown)
        except UserError as error:
            skipped[entry.name] = str(error)
            continue
        found.save(out, look.formats, look.dpi)
        noted += len(found.notes)
        notes = f", notes: {len(found.notes)}" if found.notes else ""
        typer.echo(f"{entry.called(shown.by)}: {time.perf_counter() - begun:.1f} s{notes}")
    if len(skipped) == len(chosen):
        why = "; ".join(dict.fromkeys(skipped.values()))
        raise UserError(f"nothing can be drawn from {study.trace.place}: {why}")
    tell_times(study, cost)
    for why in dict.fromkeys(skipped.values()):
        left = ", ".join(name for name, reason in skipped.items() if reason == why)
        typer.echo(f"{left}: skipped: {why}")
    if noted:
        typer.echo("notes say what pictures do not: see the key simkit in the Parquet's metadata")
    typer.echo(f"{len(chosen) - len(skipped)} of {how_many(len(chosen), 'figure')} in {out}")


def _list(chosen: list[FigureEntry]) -> None:
    width = max(len(entry.name) for entry in chosen)
    for entry in chosen:
        typer.echo(f"{entry.name:{width}}  {entry.what} [{entry.source}]")


def _chosen(only: list[str], shown: _Shown) -> list[FigureEntry]:
    from analysis.figures import FIGURES
    from traces.errors import UserError

    chosen = [FIGURES[name] for name in dict.fromkeys(only)] or list(FIGURES.values())
    for wanted, can, what in (
        (shown.by != "task", "grouped", f"--by {shown.by}: these figures cannot show spans"),
        (bool(shown.policies), "compares", "--policy: these figures do not compare policies"),
    ):
        left = [entry.name for entry in chosen if wanted and not getattr(entry, can)]
        if only and left:
            raise UserError(f"{what}: {', '.join(left)}")
        chosen = [entry for entry in chosen if entry.name not in left]
    return chosen
