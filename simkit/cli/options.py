"""Options that several commands share."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import typer

from simkit.cli import complete
from traces.cache import parse_size
from traces.sampler import Sampler

DRAWN, KEPT, RUN = "How tokens are drawn", "What is kept", "How models are run"
"""Titles of groups of options in a command's help."""
GIVEN = ("COMMANDLINE", "DEFAULT_MAP")  # sources of what was said, there or in a study's file
MORE = "More options"
"""Title of options that are seldom used: `--help` leaves them out, `--help-all` has them."""
RENAMED = {"--threads": "--workers"}
"""What options of earlier versions are called now, in commands that have no option of that name."""


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
        help="Trace: its folder, its URL in an object store, or a bundled trace's name.",
        autocompletion=complete.traces,
    ),
]
TraceFolder = Annotated[str, typer.Argument(help="A trace's folder.")]
Drafter = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="Drafter that was attached to the trace. Default: the one that the trace was"
        " recorded with.",
        show_default=False,
    ),
]
Target = Annotated[
    str | None,
    typer.Option(
        help="With --drafter: the trace's target. It and the drafter read the outputs again,"
        " because heads need the drafter's hidden states.",
        show_default=False,
        rich_help_panel=MORE,
    ),
]
Draft = Annotated[
    str | None,
    typer.Option(
        help="With --target: the drafter's folder. Default: the folder in the drafter's spec.",
        show_default=False,
        rich_help_panel=MORE,
    ),
]
Device = Annotated[str, typer.Option(help="Device: auto, cpu, cuda, cuda:1 …", rich_help_panel=RUN)]
Dtype = Annotated[
    str,
    typer.Option(
        help="Number format of the models: float32, float64, bfloat16 or float16.",
        rich_help_panel=RUN,
    ),
]
TracesDtype = Annotated[
    str | None,
    typer.Option(help="Number format of the models. Default: the trace's.", rich_help_panel=RUN),
]
Revision = Annotated[
    str | None,
    typer.Option(
        help="Hub revision of the target, or of both models: TARGET,DRAFT.", rich_help_panel=MORE
    ),
]
Threads = Annotated[
    int | None,
    typer.Option(help="CPU threads for torch (default: torch's choice).", rich_help_panel=MORE),
]
Resume = Annotated[
    bool,
    typer.Option(
        "--resume",
        help="Continue a stopped run. Its folder has the options; you need not repeat them.",
    ),
]
Turns = Literal["sequence", "step"]
Clock = Literal["wall", "processor"]
TURNS = (
    "Change policies after each sequence or after each step. With step, drift of the machine's"
    " speed affects all policies alike."
)
Rounds = Annotated[int, typer.Option(help="How many times each prompt is decoded.")]
TargetModel = typer.Option(help="Target model: local folder or hub id.", show_default=False)
PromptsFile = typer.Option(
    help="JSON Lines file of prompts. Each line has a field prompt, messages or prompt_tokens.",
    show_default=False,
)
MaxNewTokens = Annotated[int, typer.Option(help="Longest output in tokens (T_max).")]
TracesMaxNewTokens = Annotated[
    int | None, typer.Option(help="Longest output in tokens. Default: the trace's.")
]
Heads = Annotated[
    list[str] | None,
    typer.Option(
        help="Learned head: FILE.safetensors or NAME=FILE.safetensors. Repeat it for several."
    ),
]


@dataclass(frozen=True)
class Drawing:
    """How tokens are drawn."""

    temperature: Annotated[
        float, typer.Option(rich_help_panel=DRAWN, help="Sampling temperature; 0 is greedy.")
    ] = 0.0
    top_k: Annotated[
        int, typer.Option(rich_help_panel=DRAWN, help="Keep the K likeliest tokens; 0 keeps all.")
    ] = 0
    top_p: Annotated[
        float,
        typer.Option(
            rich_help_panel=DRAWN, help="Keep the likeliest tokens up to this total probability."
        ),
    ] = 1.0
    draft_temperature: Annotated[
        float | None,
        typer.Option(
            rich_help_panel=DRAWN,
            help="Temperature of the draft, if it differs from --temperature. 0: propose the"
            " likeliest token.",
        ),
    ] = None
    seed: Annotated[int, typer.Option(rich_help_panel=DRAWN, help="Seed of the random draws.")] = 0

    def sampler(self) -> Sampler:
        """The sampler of both models."""
        return Sampler(self.temperature, self.top_k, self.top_p, self.draft_temperature)


Format = Literal["table", "json", "csv"]


PageFormat = Literal["table", "json", "csv", "markdown"]


By = Literal["trace", "task"]


Beside = Literal["task", "span"]


FirstToken = Literal["draft", "prefill"]


First = Annotated[
    FirstToken,
    typer.Option(
        help="What emits the first output token: prefill (the pass over the prompt) or draft"
        " (the first speculative step).",
        rich_help_panel=MORE,
    ),
]
Printed = Annotated[Format, typer.Option(help="Output format.")]
PrintedPage = Annotated[PageFormat, typer.Option(help="Output format.")]
PageOut = Annotated[
    Path | None,
    typer.Option(
        "--out", "-o", metavar="FILE", help="Write the output to this file instead of printing it."
    ),
]
RowsBy = Annotated[By, typer.Option(help="One row for the whole trace, or one per task.")]
RowsOut = Annotated[
    Path | None,
    typer.Option("--out", "-o", metavar="FILE.parquet", help="Write all rows to this file."),
]
Confidence = Annotated[
    float, typer.Option(help="Confidence level of the intervals.", rich_help_panel=MORE)
]
PolicyRanges = Annotated[
    list[str],
    typer.Option(
        help="Policy with ranges from:to:step, such as 'svip(h=0.1:1.0:0.05)'. Repeat it for"
        " several.",
        autocompletion=complete.policies,
    ),
]
Sampled = Annotated[
    str | None,
    typer.Option(
        metavar="TRACE",
        help="Trace of the same pair that was recorded with sampling; claims about sampling"
        " are tested on it. Default: the one bundled with the trace.",
        show_default=False,
        rich_help_panel=MORE,
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
        help="Cost (time model) of the passes; list prints the known ones, simkit replay"
        " --help the forms. Default: the trace's own timings.",
        callback=list_costs,
        is_eager=True,
        autocompletion=complete.costs,
    ),
]
Workers = Annotated[
    int | None,
    typer.Option(
        help="Threads that replay. Default: one per available core.",
        show_default=False,
        rich_help_panel=MORE,
    ),
]
Memory = Annotated[
    int | None,
    typer.Option(
        metavar="SIZE",
        help="Use about this much memory at most, such as 2GB or 4GiB; for traces larger than"
        " memory.",
        rich_help_panel=MORE,
        parser=size,
    ),
]
Ray = Annotated[
    str | None,
    typer.Option(
        metavar="ADDRESS|local",
        help="Distribute the work over a Ray cluster; local starts one. --workers then sets"
        " the number of workers.",
        rich_help_panel=MORE,
    ),
]
