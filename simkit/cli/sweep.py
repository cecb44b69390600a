"""`simkit sweep`: all settings of policies on a trace."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from simkit.cli.options import (
    GIVEN,
    Confidence,
    Cost,
    Drafter,
    First,
    Format,
    Memory,
    PolicyRanges,
    Printed,
    Ray,
    RowsBy,
    RowsOut,
    TraceName,
    Workers,
)
from simkit.cli.output_formats import in_data
from simkit.cli.places import check_outputs, opened
from simkit.cli.progress import settings_bar
from simkit.cli.tables import conclude, tell
from traces.errors import UserError
from traces.messages import how_many

if TYPE_CHECKING:
    from simkit.sweeps import Sweep


def sweep(
    ctx: typer.Context,
    trace: TraceName,
    policy: PolicyRanges,
    cost: Cost = None,
    by: RowsBy = "trace",
    out: RowsOut = None,
    format: Printed = "table",
    drafter: Drafter = None,
    first_token: First = "draft",
    intervals: Annotated[
        bool,
        typer.Option(
            "--intervals", help="Also compute bootstrap intervals of the speedups (slow)."
        ),
    ] = False,
    confidence: Confidence = 0.95,
    workers: Workers = None,
    memory: Memory = None,
    ray: Ray = None,
) -> None:
    """Replay every setting of policies on a trace."""
    import simkit

    source = ctx.get_parameter_source("confidence")
    if source and source.name == GIVEN[0] and not intervals:
        raise UserError("--confidence needs --intervals: without it there are none")
    check_outputs([("--out", out)], [trace, cost])
    there = opened(trace, drafter, memory)
    with settings_bar("settings") as progress:
        result = simkit.sweep(
            there,
            policy,
            cost,
            by=by,
            first_token=first_token,
            workers=workers,
            intervals=intervals,
            confidence=confidence,
            progress=progress,
            ray=ray,
        )
    if out is not None:
        result.save(out)
    _print(result, format)
    tell(result.notes)
    conclude(result.answer(), format)


def _print(result: Sweep, format: Format) -> None:
    if format == "table":
        from simkit.cli.tables import say_replay
        from simkit.simulator.display import rich
        from simkit.sweeps.grid import FASTEST, SHOWN

        records = result.records()
        if len(records) > SHOWN and result.timed:
            records = result.best(FASTEST).to_dicts()
            note = f"{how_many(len(result.policies), 'setting')}; these are the fastest"
            typer.echo(f"{note}. All of them: --format csv, or --out FILE.parquet", err=True)
        say_replay(lambda wide: rich(records, wide))
    else:
        typer.echo(in_data(result, format), nl=False)
