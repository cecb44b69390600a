"""`simkit tune`: a policy's arguments by cross-validation over prompts."""

from __future__ import annotations

from typing import Annotated

import typer

from simkit.cli.options import (
    MORE,
    By,
    Confidence,
    Cost,
    Drafter,
    First,
    Memory,
    PolicyRanges,
    Printed,
    Ray,
    RowsOut,
    TraceName,
    Workers,
)
from simkit.cli.output_formats import in_data
from simkit.cli.places import check_outputs, opened
from simkit.cli.progress import settings_bar
from simkit.cli.tables import conclude, say, table, tell

Deals = Annotated[
    int,
    typer.Option(
        rich_help_panel=MORE,
        help="How many times the prompts are split into folds. Times are means over the splits.",
    ),
]
Seed = Annotated[
    int, typer.Option(rich_help_panel=MORE, help="Seed of the folds and the bootstrap.")
]

Reference = Annotated[
    str | None,
    typer.Option(
        help="Policy to compare with; it is tuned, too. Default: fixed(0:20), or"
        " fixed(0:Γ) if Γ is less."
    ),
]


def tune(
    trace: TraceName,
    policy: PolicyRanges,
    cost: Cost = None,
    folds: Annotated[
        int,
        typer.Option(help="Number of cross-validation folds of the prompts, stratified by task."),
    ] = 5,
    deals: Deals = 20,
    seed: Seed = 0,
    by: Annotated[By, typer.Option(help="Tune on all prompts, or on each task.")] = "trace",
    reference: Reference = None,
    format: Printed = "table",
    out: RowsOut = None,
    drafter: Drafter = None,
    first_token: First = "draft",
    confidence: Confidence = 0.95,
    workers: Workers = None,
    memory: Memory = None,
    ray: Ray = None,
) -> None:
    """Choose policies' arguments on some prompts, judge them on others."""
    import simkit

    check_outputs([("--out", out)], [trace, cost])
    there = opened(trace, drafter, memory)
    with settings_bar("settings") as progress:
        tuned = simkit.tune(
            there,
            policy,
            cost,
            folds=folds,
            seed=seed,
            by=by,
            reference=reference,
            first_token=first_token,
            confidence=confidence,
            workers=workers,
            progress=progress,
            ray=ray,
            deals=deals,
        )
    if out is not None:
        tuned.save(out)
    if format == "table":
        say(table(*tuned.cells()))
    else:
        typer.echo(in_data(tuned, format), nl=False)
    tell(tuned.notes)
    conclude(tuned.answer(), format)
