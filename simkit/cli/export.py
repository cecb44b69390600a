"""`simkit export`: a setting as an engine's own configuration."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from simkit.cli.apart import check_apart
from simkit.cli.options import Cost, Drafter, First, FirstToken
from simkit.cli.places import check_option

if TYPE_CHECKING:
    from simkit.engines.synthetic import Measure


def export(
    trace: Annotated[str, typer.Argument(help="A trace's folder, or a bundled trace's name.")],
    engine: Annotated[
        str, typer.Option(help="vllm, sglang, tensorrt-llm, llama.cpp or transformers.")
    ],
    out: Annotated[Path, typer.Option("--out", "-o", help="The configuration.")],
    policy: Annotated[
        str | None,
        typer.Option(
            help="A spec such as 'fixed(5)'; with ranges, 'fixed(1:8)', it is tuned on the trace."
            " Default: the fastest fixed length.",
            show_default=False,
        ),
    ] = None,
    controller: Annotated[
        str | None,
        typer.Option(
            help="In the place of a policy, as in serving: 'by_batch([[1, 4, 5], [5, 16, 2]])'.",
            show_default=False,
        ),
    ] = None,
    drafter: Drafter = None,
    draft: Annotated[
        str | None,
        typer.Option(
            help="What the engine loads as the draft. Default: what the trace names.",
            show_default=False,
        ),
    ] = None,
    cost: Cost = None,
    synthetic: Annotated[
        bool,
        typer.Option(
            "--synthetic", help="vllm: with acceptance rates of the trace in the place of verdicts."
        ),
    ] = False,
    concurrency: Annotated[
        int | None,
        typer.Option(
            help="Requests in flight, under which what replaces a controller is chosen.",
            show_default=False,
        ),
    ] = None,
    first_token: First = FirstToken.draft,
) -> None:
    """Write a setting as an engine's own configuration."""
    from simkit import engines
    from traces.outputs import write_atomic
    from traces.trace import load

    check_apart([("--out", out)], [trace, cost])
    check_option("--out", out)
    chosen = None
    if controller is not None:
        from simkit.serving import parse

        chosen = parse(controller)
    found = engines.export(
        load(trace, drafter),
        engine,
        policy,
        chosen,
        cost,
        first_token.value,
        draft,
        synthetic,
        concurrency,
    )
    files = {out.with_name(f"{out.name}{name}"): text for name, text in found.beside.items()}
    check_apart([("--out", file) for file in files], [trace, cost])
    for file, text in {out: found.text, **files}.items():
        write_atomic(file, text.replace("{OUT}", str(out)).encode())
        typer.echo(f"written to {file}")
    if found.errors:
        _print(found.errors)
    for note in found.notes:
        typer.echo(f"note: {note}", err=True)


def _print(errors: list[Measure]) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table

    table = Table(
        "outcomes", "of the trace", "drawn from the rates", box=box.SIMPLE_HEAD, show_edge=False
    )
    for name, true, mean, low, high in errors:
        table.add_row(name, f"{true:.4g}", f"{mean:.4g} [{low:.4g}, {high:.4g}]")
    console = Console()
    (console if console.is_terminal else Console(width=120)).print(table)
