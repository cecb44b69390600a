"""Options that several commands share."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Literal

import typer

from simkit.cli import complete
from traces.cache import parse_size


def size(text: str) -> int:
    """Bytes of a size such as "4GB" or "2GiB".

    Raises:
        typer.BadParameter: it is none.
    """
    try:
        return parse_size(str(text))
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None


TraceName = Annotated[
    str,
    typer.Argument(
        help="A trace's folder, its URL in a store, or a bundled trace's name.",
        autocompletion=complete.traces,
    ),
]
Drafter = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="A drafter that was attached to the trace. Default: the one it was recorded with.",
        show_default=False,
    ),
]
Target = Annotated[
    str | None,
    typer.Option(
        help="Of an attached drafter: the target that was recorded; both are run again over the"
        " outputs, for the drafter's states.",
        show_default=False,
    ),
]
Draft = Annotated[
    str | None,
    typer.Option(
        help="With --target: the attached drafter's folder. Default: that of its spec.",
        show_default=False,
    ),
]
DRAWN, KEPT, RUN = "How tokens are drawn", "What is kept", "How models are run"
"""Titles of groups of options in a command's help."""
Device = Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:1 …", rich_help_panel=RUN)]
Dtype = Annotated[
    str, typer.Option(help="float32, float64, bfloat16 or float16.", rich_help_panel=RUN)
]
TracesDtype = Annotated[str | None, typer.Option(help="Default: the trace's.", rich_help_panel=RUN)]
Revision = Annotated[
    str | None,
    typer.Option(help="Hub revision of the target, or TARGET,DRAFT.", rich_help_panel=RUN),
]
Threads = Annotated[
    int | None, typer.Option(help="Of torch on a CPU. Default: its own.", rich_help_panel=RUN)
]
Turns = Literal["sequence", "step"]
TURNS = "What an arm decodes before the next one's turn. By steps, drift hits all arms alike."
Heads = Annotated[
    list[str] | None, typer.Option(help="FILE.safetensors or NAME=FILE.safetensors; repeat it.")
]


class Format(StrEnum):
    """How to print."""

    table = "table"
    json = "json"
    csv = "csv"


class PageFormat(StrEnum):
    """How to print what is for a page of text, too."""

    table = "table"
    json = "json"
    csv = "csv"
    markdown = "markdown"


class By(StrEnum):
    """What a row stands for."""

    trace = "trace"
    task = "task"


class FirstToken(StrEnum):
    """Which pass emits the first token."""

    draft = "draft"
    prefill = "prefill"


First = Annotated[
    FirstToken,
    typer.Option(help="prefill: the prompt's pass emits the first token; draft: it does not."),
]
Printed = Annotated[Format, typer.Option(help="How to print.")]


def list_costs(cost: str | None) -> str | None:
    """Print the costs for `--cost list`, before the command's other arguments are asked for."""
    if cost != "list":
        return cost
    from simkit.cli.tables import say, table
    from simkit.costs import catalogue

    say(table(("cost", "kind", "what", "source"), catalogue()))
    raise typer.Exit


Cost = Annotated[
    str | None,
    typer.Option(
        metavar="NAME|FILE|list",
        help="As in replay; list shows all. Default: the trace's own timings.",
        callback=list_costs,
        is_eager=True,
        autocompletion=complete.costs,
    ),
]
ReplayThreads = Annotated[
    int | None, typer.Option(help="Default: one for each core that it may use.", show_default=False)
]
Memory = Annotated[
    int | None,
    typer.Option(
        metavar="SIZE",
        help="Read the rows in windows, so that a trace larger than memory takes about so much:"
        " 2GB, 4GiB.",
        parser=size,
    ),
]
Ray = Annotated[
    str | None,
    typer.Option(
        metavar="ADDRESS|local",
        help="Share the work out over a Ray cluster; local starts one; --threads: of workers.",
    ),
]
