"""`simkit tune`: a policy's arguments by cross-validation over prompts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from simkit.cli.options import (
    MORE,
    By,
    Confidence,
    Cost,
    Drafter,
    First,
    Format,
    Memory,
    PolicyRanges,
    Printed,
    Ray,
    ReplayThreads,
    RowsOut,
    TraceName,
)
from simkit.cli.overwrite_guard import check_apart
from simkit.cli.places import check_option, opened
from simkit.cli.progress import settings_bar
from simkit.cli.tables import conclude, tell

if TYPE_CHECKING:
    from simkit.sweeps import Tuned


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
    threads: ReplayThreads = None,
    memory: Memory = None,
    ray: Ray = None,
) -> None:
    """Choose policies' arguments on some prompts, judge them on others."""
    import simkit

    if out is not None:
        check_option("--out", out)
        check_apart([("--out", out)], [trace, cost])
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
            threads=threads,
            progress=progress,
            ray=ray,
            deals=deals,
        )
    if out is not None:
        tuned.save(out)
    _print(tuned, format)
    tell(tuned.notes)
    conclude(tuned.answer(), format)


def _print(tuned: Tuned, format: Format) -> None:
    if format == "table":
        from simkit.cli.tables import say, table

        say(table(*tuned.cells()))
    elif format == "json":
        import json

        typer.echo(json.dumps(tuned.records(), indent=1, ensure_ascii=False))
    else:
        from simkit.cli.tables import csv

        typer.echo(csv(tuned.frame), nl=False)
