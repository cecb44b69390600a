"""`simkit record`: run a pair on prompts and write a trace."""

from __future__ import annotations

import time
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    Task,
    TextColumn,
    TimeRemainingColumn,
)
from rich.text import Text

from simkit.cli.options import Device, Dtype, Revision

if TYPE_CHECKING:
    from traces.record.plan import Plan


class CouplingChoice(StrEnum):
    """What an output is drawn with."""

    draft = "draft"
    target = "target"


def record(
    target: Annotated[str, typer.Option(help="Target model: local folder or hub id.")],
    prompts: Annotated[Path, typer.Option(help="JSON Lines: prompt, messages or prompt_tokens.")],
    out: Annotated[Path, typer.Option(help="Folder of the new trace.")],
    draft: Annotated[
        str | None,
        typer.Option(
            help="Draft model: local folder or hub id. Without one the target is recorded alone,"
            " and drafters are attached later."
        ),
    ] = None,
    max_new_tokens: Annotated[int, typer.Option(help="Longest output, T_max.")] = 256,
    ignore_eos: Annotated[
        bool, typer.Option("--ignore-eos", help="Outputs go on behind EOS, all to T_max.")
    ] = False,
    max_draft: Annotated[int, typer.Option(help="Deepest draft to record, Γ.")] = 40,
    temperature: Annotated[float, typer.Option(help="0 is greedy.")] = 0.0,
    top_k: Annotated[int, typer.Option(help="0 keeps all tokens.")] = 0,
    top_p: Annotated[float, typer.Option(help="1 keeps all tokens.")] = 1.0,
    draft_temperature: Annotated[
        float | None, typer.Option(help="Of the draft alone; 0 proposes its likeliest token.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Of the keyed draws.")] = 0,
    device: Device = "auto",
    dtype: Dtype = "float32",
    batch_size: Annotated[int, typer.Option(help="Prompts run together, one shard.")] = 8,
    revision: Revision = None,
    hidden: Annotated[bool, typer.Option("--hidden", help="Keep the draft's states.")] = False,
    branch_target: Annotated[
        bool, typer.Option("--branch-target", help="The target's view of branch rows too.")
    ] = False,
    mix: Annotated[
        float,
        typer.Option(
            help="Share of the draft's own tokens in mixed contexts to record, with the draft's"
            " states, for an acceptance head (its paper: 0.5); 0 records none."
        ),
    ] = 0.0,
    coupling: Annotated[
        CouplingChoice | None,
        typer.Option(
            help="What sampled outputs are drawn with: the draft's tokens, which a live decoder can"
            " repeat, or the target alone, so that all drafters share one output. Default: draft;"
            " target where there is no draft model.",
            show_default=False,
        ),
    ] = None,
    kernel: Annotated[
        bool | None,
        typer.Option(
            "--kernel/--no-kernel",
            help="Reduce logits with the Triton kernel; if neither is said, where CUDA and Triton"
            " are there.",
        ),
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with a stopped recording.")
    ] = False,
) -> None:
    """Run a draft/target pair, or a target alone, on prompts and write a trace."""
    from traces.sampler import Sampler

    sampler = Sampler(temperature, top_k, top_p, draft_temperature)
    pair, plan, rows = _prepare(
        (target, draft, device, dtype, revision),
        prompts,
        ignore_eos,
        sampler=sampler,
        seed=seed,
        max_new_tokens=max_new_tokens,
        max_draft=max_draft,
        batch_size=batch_size,
        hidden=hidden,
        branch_target=branch_target,
        mix=mix,
        kernel=kernel,
        coupling=coupling.value if coupling else "draft" if draft else "target",
    )
    from traces.record.header import make_header
    from traces.record.recorder import record as run

    console = Console(stderr=True)
    start = time.perf_counter()
    with _progress(console) as progress:
        task = progress.add_task("recording", total=len(rows) * max_new_tokens)
        done = run(
            pair,
            rows,
            out,
            plan,
            make_header(pair, rows, plan),
            resume,
            on_token=lambda n: progress.advance(task, n),
            on_shard=lambda n: progress.update(task, completed=n * max_new_tokens),
        )
    seconds = time.perf_counter() - start
    speed = f"{done:,} tokens in {seconds:.1f} s, {done / seconds:,.0f} tokens/s"
    console.print(f"recorded {len(rows)} prompts to {out} ({speed})", soft_wrap=True)


def _prepare(
    names: tuple, prompts: Path, ignore_eos: bool, kernel: bool | None, **settings: object
):
    """Check the cheap things before the models are loaded."""
    from dataclasses import replace

    from simkit.cli.running import load_alone, load_models
    from traces.errors import RecordError
    from traces.record.pair import Alone
    from traces.record.plan import Plan
    from traces.record.prompts import read_prompts

    plan = Plan(**settings)  # type: ignore[arg-type]
    alone = names[1] is None
    if alone:
        _check_alone(plan)
    if not prompts.is_file():
        raise RecordError(f"{prompts}: no such prompts file")
    pair = load_alone(names[0], *names[2:]) if alone else load_models(names)
    from traces.record.statistics_triton import chosen

    # The kernel reduces pairs of rows.
    use_kernel = not isinstance(pair, Alone) and chosen(pair, kernel)
    ends = () if ignore_eos else pair.eos_token_ids
    plan = replace(plan, eos_token_ids=ends, kernel=use_kernel)
    return pair, plan, read_prompts(prompts, pair.tokenizer, pair.vocab_size)


def _check_alone(plan: Plan) -> None:
    """Refuse what asks for a draft model where there is none."""
    from traces.errors import RecordError

    asked = {"--hidden": plan.hidden, "--branch-target": plan.branch_target, "--mix": plan.mix}
    for option, given in asked.items():
        if given:
            raise RecordError(f"{option} is about a draft model: give --draft")
    if plan.coupling == "draft" and not plan.sampler.greedy:
        raise RecordError("--coupling draft draws outputs with a draft model: give --draft")


class _Speed(ProgressColumn):
    """Tokens a second since the start."""

    def render(self, task: Task) -> Text:
        return Text(f"{task.speed or 0:,.0f} tokens/s")


def _progress(console: Console) -> Progress:
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        _Speed(),
        TimeRemainingColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    )
