"""`simkit replay`: replay stopping policies on a trace."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

import typer

from simkit.cli import complete
from simkit.cli.options import First, Format, Memory, Printed, TraceName, list_costs
from simkit.cli.tables import tell

if TYPE_CHECKING:
    from simkit.simulator import ByDrafter, Result


def replay(
    trace: TraceName,
    policy: Annotated[
        list[str],
        typer.Option(
            help="Policy such as 'fixed(5)' or 'svip(h=0.4)'; simkit list policies shows all."
            " Repeat it for several. Default of max_draft: 40, or Γ if less was recorded.",
            autocompletion=complete.policies,
        ),
    ],
    cost: Annotated[
        str | None,
        typer.Option(
            metavar="NAME|FILE|list",
            help="Cost (time model): measured, linear(...), roofline(device=...), a preset or a"
            " JSON, TOML or Parquet file; list prints all. Default: the trace's own timings.",
            callback=list_costs,
            is_eager=True,
            autocompletion=complete.costs,
        ),
    ] = None,
    by: Annotated[
        Literal["trace", "task", "span", "sequence", "step"],
        typer.Option(help="One row for the whole trace, or one per task, span, sequence or step."),
    ] = "trace",
    format: Printed = "table",
    drafter: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="Drafter that was attached to the trace. Repeat it to compare several."
            " Default: own, from the recording. 'route(suffix, own, least=3)' and 'best_of(suffix,"
            " own)' use several in one decoder; the policy stops only the last one.",
            show_default=False,
        ),
    ] = None,
    first_token: First = "draft",
    memory: Memory = None,
) -> None:
    """Replay stopping policies on a trace."""
    from simkit.cli.places import opened
    from simkit.simulator.usable import replay_usable
    from traces.trace import opened as trace_of

    there = trace_of(opened(trace, None, memory))
    asked = {name: policy for name in drafter or ["own"]}
    found, notes = replay_usable(there, asked, cost, by, first_token)
    result = found if len(found.results) > 1 else next(iter(found.results.values()))
    _print(result, format)
    tell([*notes, *result.notes])


def _print(result: Result | ByDrafter, format: Format) -> None:
    if format == "table":
        from simkit.cli.tables import say_replay

        say_replay(result.table)
    elif format == "json":
        import json

        typer.echo(json.dumps(result.records(), indent=1, ensure_ascii=False))
    else:
        import csv
        import sys

        from simkit.cli.tables import csv_cell

        writer = csv.writer(sys.stdout, lineterminator="\n")
        writer.writerow(result.columns)
        for record in result.flat():
            values = record.values()
            writer.writerow(csv_cell(v) if isinstance(v, str) else v for v in values)
