"""`simkit advise`: which drafter, which rule, at which load."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from simkit.cli.options import (
    Cost,
    First,
    Memory,
    PageOut,
    PrintedPage,
    TraceName,
)
from simkit.cli.output_formats import give
from simkit.cli.places import check_outputs, opened
from simkit.cli.progress import settings_bar
from simkit.cli.tables import tell

if TYPE_CHECKING:
    from rich.console import Console

    from analysis.advise import Advice

InFlight = Annotated[
    list[int] | None,
    typer.Option(
        min=1,
        help="Also answer for this many requests in flight. Repeat it for several. Default:"
        " 1, 4, 16 and 64, if the cost has times of batches.",
        show_default=False,
    ),
]
OfThese = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME",
        help="Try only this drafter; own is the one that the trace was recorded with. Repeat"
        " it for several. Default: all.",
        show_default=False,
    ),
]
ForEngine = Annotated[
    str | None,
    typer.Option(
        help="Recommend only what this engine can run, and print its configuration: vllm,"
        " sglang, tensorrt-llm, llama.cpp, openvino or transformers.",
        show_default=False,
    ),
]


def advise(
    trace: TraceName,
    drafter: OfThese = None,
    cost: Cost = None,
    concurrency: InFlight = None,
    engine: ForEngine = None,
    first_token: First = "draft",
    format: PrintedPage = "table",
    out: PageOut = None,
    memory: Memory = None,
) -> None:
    """Recommend a drafter and a stopping rule for a trace."""
    from analysis.advise import advise as advised

    check_outputs([("--out", out)], [trace, cost])
    there = opened(trace, None, memory)
    with settings_bar("rules") as progress:
        found = advised(
            there,
            cost,
            concurrency=concurrency or (),
            engine=engine,
            first_token=first_token,
            progress=progress,
            drafters=drafter or (),
        )
    give(found, format, out, partial(_print, found))
    if format in ("json", "csv"):  # these have numbers alone
        tell([found.answer.rstrip("."), *found.notes])


def _print(found: Advice, console: Console) -> None:
    from simkit.cli import tables

    def say(line: str = "") -> None:
        console.print(line, markup=False, highlight=False)

    say(f"{found.answer}\n")
    shown = found.table()
    say(shown.title)
    tables.say(tables.table(shown.heads, shown.rows), console)
    for line in [shown.note, *found.below()]:
        say(line)
