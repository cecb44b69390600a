"""Options that several commands share."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Literal

import typer

from simkit.cli import complete
from traces.cache import parse_size
from traces.sampler import Sampler


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
TraceFolder = Annotated[str, typer.Argument(help="A trace's folder.")]
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
Resume = Annotated[
    bool,
    typer.Option(
        "--resume",
        help="Go on with a stopped run, which knows what it was asked for: its folder is all that"
        " must be given.",
    ),
]
Turns = Literal["sequence", "step"]
Clock = Literal["wall", "processor"]
TURNS = "What an arm decodes before the next one's turn. By steps, drift hits all arms alike."
Rounds = Annotated[int, typer.Option(help="How often every prompt is decoded.")]
TargetModel = typer.Option(help="Target model: local folder or hub id.", show_default=False)
PromptsFile = typer.Option(
    help="JSON Lines: prompt, messages or prompt_tokens.", show_default=False
)
MaxNewTokens = Annotated[int, typer.Option(help="Longest output, T_max.")]
TracesMaxNewTokens = Annotated[
    int | None, typer.Option(help="Longest output, T_max. Default: the trace's.")
]
Heads = Annotated[
    list[str] | None, typer.Option(help="FILE.safetensors or NAME=FILE.safetensors; repeat it.")
]


@dataclass(frozen=True)
class Drawing:
    """How tokens are drawn."""

    temperature: Annotated[float, typer.Option(rich_help_panel=DRAWN, help="0 is greedy.")] = 0.0
    top_k: Annotated[int, typer.Option(rich_help_panel=DRAWN, help="0 keeps all tokens.")] = 0
    top_p: Annotated[float, typer.Option(rich_help_panel=DRAWN, help="1 keeps all tokens.")] = 1.0
    draft_temperature: Annotated[
        float | None,
        typer.Option(
            rich_help_panel=DRAWN, help="Of the draft alone; 0 proposes its likeliest token."
        ),
    ] = None
    seed: Annotated[int, typer.Option(rich_help_panel=DRAWN, help="Of the keyed draws.")] = 0

    def sampler(self) -> Sampler:
        """The sampler of both models."""
        return Sampler(self.temperature, self.top_k, self.top_p, self.draft_temperature)


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


class Beside(StrEnum):
    """What is shown side by side."""

    task = "task"
    span = "span"


class FirstToken(StrEnum):
    """Which pass emits the first token."""

    draft = "draft"
    prefill = "prefill"


First = Annotated[
    FirstToken,
    typer.Option(help="prefill: the prompt's pass emits the first token; draft: it does not."),
]
Printed = Annotated[Format, typer.Option(help="How to print.")]
PrintedPage = Annotated[PageFormat, typer.Option(help="How to print.")]
PageOut = Annotated[
    Path | None, typer.Option("--out", "-o", metavar="FILE", help="Write there instead.")
]
RowsBy = Annotated[By, typer.Option(help="What a row stands for.")]
RowsOut = Annotated[
    Path | None, typer.Option("--out", "-o", metavar="FILE.parquet", help="Write all rows.")
]
Confidence = Annotated[float, typer.Option(help="Of the intervals over prompts.")]
PolicyRanges = Annotated[
    list[str],
    typer.Option(
        help="A spec with ranges, 'svip(h=0.1:1.0:0.05)'; give it again for more.",
        autocompletion=complete.policies,
    ),
]
Sampled = Annotated[
    str | None,
    typer.Option(
        metavar="TRACE",
        help="A sampled recording of the pair, for claims about sampling."
        " Default: the one bundled beside the trace.",
        show_default=False,
    ),
]


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
