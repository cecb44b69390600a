"""`simkit figures`: the papers' figures from a trace."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from simkit.cli import complete
from simkit.cli.apart import check_apart
from simkit.cli.options import Cost, Drafter, First, FirstToken
from simkit.cli.places import check_option, drafted, tell_times

if TYPE_CHECKING:
    from analysis.figures import FigureEntry
    from traces.registry import Registry


def figures(
    trace: Annotated[
        str | None,
        typer.Argument(
            help="A trace's folder, or a bundled trace's name.", autocompletion=complete.traces
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", metavar="DIR", help="Where files are written.")
    ] = None,
    only: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="This one; give it again for more.",
            autocompletion=complete.figures,
        ),
    ] = None,
    cost: Cost = None,
    drafter: Drafter = None,
    first_token: First = FirstToken.draft,
    list_: Annotated[bool, typer.Option("--list", help="Name the figures, and stop.")] = False,
) -> None:
    """Draw the papers' figures from a trace: PNG, SVG, and the frame as Parquet."""
    from analysis.figures import FIGURES
    from traces.errors import UserError

    chosen = _chosen(FIGURES, only or [])
    if list_:
        width = max(len(entry.name) for entry in chosen)
        for entry in chosen:
            typer.echo(f"{entry.name:{width}}  {entry.what} [{entry.source}]")
        return
    if trace is None or out is None:
        raise UserError("figures needs a TRACE and --out DIR (or --list)")
    if out.exists() and not out.is_dir():
        raise UserError(f"--out {out}: is a file; give a folder's name")
    files = [out / f"{entry.name}.{end}" for entry in chosen for end in ("png", "svg", "parquet")]
    check_apart([("--out", file) for file in files], [trace, cost])
    if out.is_dir():
        check_option("--out", files[0])
    _draw(chosen, drafted(trace, drafter), out, cost, first_token)


def _draw(
    chosen: list[FigureEntry], name: str, out: Path, cost: str | None, first_token: FirstToken
) -> None:
    """Draw and write all that the trace can give, one line each; what it cannot give comes last."""
    from analysis.study import Study
    from simkit import costs
    from traces.errors import UserError
    from traces.validate import check_schemas

    study, skipped = Study(name, first_token.value), {}
    # What a trace may lack skips a figure, what it must have ends them all.
    check_schemas(study.trace)
    if cost is not None:
        costs.parse(cost)  # refused here, though no chosen figure may take one
    for entry in chosen:
        begun = time.perf_counter()
        try:
            found = entry.under(study, cost)
        except UserError as error:
            skipped[entry.name] = str(error)
            continue
        found.save(out)
        typer.echo(f"{entry.name}: {time.perf_counter() - begun:.1f} s")
    if len(skipped) == len(chosen):
        why = "; ".join(dict.fromkeys(skipped.values()))
        raise UserError(f"nothing can be drawn from {name}: {why}")
    tell_times(study, cost)
    for left, why in skipped.items():
        typer.echo(f"{left}: skipped: {why}")
    typer.echo(f"{len(chosen) - len(skipped)} of {len(chosen)} figures in {out}")


def _chosen(figures: Registry[FigureEntry], only: list[str]) -> list[FigureEntry]:
    return [figures[name] for name in dict.fromkeys(only)] or figures.values()
