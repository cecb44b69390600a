"""`simkit record`: run a pair on prompts and write a trace."""

from __future__ import annotations

import shlex
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from rich.console import Console

from simkit.cli.groups import grouped
from simkit.cli.options import (
    GIVEN,
    KEPT,
    MORE,
    RUN,
    Device,
    Drawing,
    Dtype,
    MaxNewTokens,
    PromptsFile,
    Resume,
    Revision,
    TargetModel,
)
from simkit.cli.progress import bar, in_words, resumable
from traces.messages import how_many

if TYPE_CHECKING:
    from traces.record.estimate import SizeEstimate


@dataclass(frozen=True)
class RecordOptions:
    """What is recorded, as `simkit.recording.RecordRequest` has it."""

    target: Annotated[str | None, TargetModel] = None
    prompts: Annotated[Path | None, PromptsFile] = None
    outputs: Annotated[
        Path | None,
        typer.Option(
            help="JSON Lines file of an engine's outputs: prompts with token ids. The target"
            " reads these outputs and generates none. Give the engine's sampling options,"
            " too.",
            show_default=False,
        ),
    ] = None
    draft: Annotated[
        str | None,
        typer.Option(
            help="Draft model: local folder or hub id. Without it, only the target is"
            " recorded; attach drafters later."
        ),
    ] = None
    max_new_tokens: MaxNewTokens = 256
    ignore_eos: Annotated[
        bool,
        typer.Option(
            "--ignore-eos", rich_help_panel=MORE, help="Continue outputs after EOS, up to T_max."
        ),
    ] = False
    eos: Annotated[
        list[str] | None,
        typer.Option(
            metavar="ID",
            rich_help_panel=MORE,
            help="End outputs at this token id instead of the model's own; +ID adds one to"
            " the model's own. Repeat it for several.",
        ),
    ] = None
    system: Annotated[
        str | None,
        typer.Option(rich_help_panel=MORE, help="System message for chats that have none."),
    ] = None
    chat_template_kwargs: Annotated[
        str | None,
        typer.Option(
            metavar="JSON",
            rich_help_panel=MORE,
            help='Arguments of the chat template for all chats, such as {"enable_thinking":'
            " false}. Arguments in a prompt's line take precedence.",
        ),
    ] = None
    max_draft: Annotated[
        int, typer.Option(rich_help_panel=KEPT, help="Longest draft to record, in tokens (Γ).")
    ] = 40
    device: Device = "auto"
    dtype: Dtype = "float32"
    batch_size: Annotated[
        int,
        typer.Option(
            rich_help_panel=RUN, help="Prompts per batch. Each batch is written as one shard."
        ),
    ] = 8
    revision: Revision = None
    hidden: Annotated[
        bool,
        typer.Option(
            "--hidden",
            rich_help_panel=KEPT,
            help="Keep the draft's hidden states, for learned heads.",
        ),
    ] = False
    experts: Annotated[
        bool,
        typer.Option(
            "--experts",
            rich_help_panel=MORE,
            help="Record which experts each token uses in a mixture-of-experts target, for"
            " costs that price experts. The target reads all texts once more.",
        ),
    ] = False
    branch_target: Annotated[
        bool,
        typer.Option(
            "--branch-target",
            rich_help_panel=MORE,
            help="Also keep the target's statistics of branches: draft tokens behind a"
            " rejected one.",
        ),
    ] = False
    mix: Annotated[
        float,
        typer.Option(
            rich_help_panel=KEPT,
            help="Also record contexts in which this share of the tokens is the draft's, to"
            " train an acceptance head (0.5 in its paper). 0: none.",
        ),
    ] = 0.0
    coupling: Annotated[
        Literal["draft", "target"] | None,
        typer.Option(
            rich_help_panel=MORE,
            help="How sampled outputs are drawn. draft: like in a live decoder. target: by"
            " the target alone, so that any drafter can be attached. Default: draft, or"
            " target without --draft.",
            show_default=False,
        ),
    ] = None
    kernel: Annotated[
        bool | None,
        typer.Option(
            "--kernel/--no-kernel",
            rich_help_panel=RUN,
            help="Compute the statistics of logits with the Triton kernel. Default: if CUDA"
            " and Triton are available.",
        ),
    ] = None


RecordRay = Annotated[
    str | None,
    typer.Option(
        metavar="ADDRESS|local",
        rich_help_panel=MORE,
        help="Record with the workers of a Ray cluster; local starts one here.",
    ),
]


@grouped
def record(
    ctx: typer.Context,
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder of the new trace.")],
    drawing: Drawing,
    options: RecordOptions,
    resume: Resume = False,
    ray: RecordRay = None,
) -> None:
    """Run a draft/target pair, or a target alone, on prompts and write a trace."""
    from simkit import recording
    from simkit.cli.running import must_fit

    given = _given(ctx)
    if resume and recording.is_whole(out) and not given.keys() - {"out"}:
        Console(stderr=True).print(f"{out} is completely recorded already", soft_wrap=True)
        return
    asked, rows = recording.prepare(out, given, resume)
    with must_fit():
        from traces.record.pair import quiet

        quiet()
        loaded = asked.load()
    cut = recording.cut_rows(asked, rows, *loaded)
    start = time.perf_counter()
    what = "recording", len(cut.prompts) * asked.max_new_tokens, _speed()
    with (
        resumable("record", f"--out {shlex.quote(str(out))}", len(cut.prompts)) as kept,
        must_fit("a smaller --batch-size or --max-draft takes less; --resume continues"),
        bar(*what) as (progress, task),
    ):

        def on_shard(n: int) -> None:
            kept(n)
            progress.update(task, completed=n * asked.max_new_tokens)

        told = recording.Listening(
            on_token=lambda n: progress.advance(task, n),
            on_shard=on_shard,
            on_size=None if asked.outputs else _tell,
        )
        done = recording.run(asked, loaded, cut, out, resume, told, ray)
    seconds = time.perf_counter() - start
    speed = f"{how_many(done, 'token')} in {seconds:.1f} s, {done / seconds:,.0f} tokens/s"
    Console(stderr=True).print(
        f"recorded {how_many(len(cut.prompts), 'prompt')} to {out} ({speed})", soft_wrap=True
    )


def _given(ctx: typer.Context) -> dict[str, Any]:
    """The options on the command line that say what is recorded, by name."""
    given = {}
    for name, value in ctx.params.items():
        source = ctx.get_parameter_source(name)
        if name not in ("out", "resume", "ray") and source is not None and source.name in GIVEN:
            given[name] = str(value) if isinstance(value, Path) else value
    return given


def _tell(size: SizeEstimate) -> None:
    """Say on stderr what the prompts that are left take, before the first of them."""
    from traces.describe import size_in_words

    n_bytes = size_in_words(int(size.n_bytes))
    said = f"{how_many(size.prompts, 'prompt')}, if no output ends early: about"
    said += f" {in_words(size.seconds)}, {n_bytes}"
    print(f"simkit: {said}", file=sys.stderr, flush=True)


def _speed() -> Any:
    """Tokens a second since the start."""
    from rich.progress import ProgressColumn, Task
    from rich.text import Text

    class Speed(ProgressColumn):
        def render(self, task: Task) -> Text:
            return Text(f"{task.speed or 0:,.0f} tokens/s")

    return Speed()
