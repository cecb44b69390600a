"""`simkit attach`: run a drafter over a recording's outputs."""

from __future__ import annotations

import json
import shlex
import time
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from simkit.cli.groups import grouped
from simkit.cli.options import GIVEN, MORE, Device, Resume, Revision, TraceFolder, TracesDtype
from simkit.cli.progress import resumable, training_bar
from simkit.cli.running import must_fit
from traces.errors import DrafterError
from traces.messages import how_many

if TYPE_CHECKING:
    from traces.attach.drafter import Attachable, Means
    from traces.attach.run import Done
    from traces.trace import Trace


@dataclass(frozen=True)
class AttachOptions:
    """What is attached; kept beside an attachment's shards, so that `--resume` needs no more."""

    drafter: Annotated[
        list[str] | None,
        typer.Option(
            metavar="SPEC",
            help="Drafter to attach, such as 'prompt_lookup(length=10)' or"
            " 'model(\"models/draft\")'; simkit list drafters shows all. Repeat it to attach"
            " several in one run; they share the target's passes.",
            show_default=False,
        ),
    ] = None
    name: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="Name of the drafter in the trace. Default: the name in its spec. For"
            " several drafters, give one name for each, in the same order.",
            show_default=False,
        ),
    ] = None
    target: Annotated[
        str | None,
        typer.Option(
            help="The trace's target: local folder or hub id. Drafters that are"
            " neural networks need it."
        ),
    ] = None
    max_draft: Annotated[int, typer.Option(help="Longest draft of model(…), in tokens (Γ).")] = 40
    draft_temperature: Annotated[
        float | None,
        typer.Option(
            rich_help_panel=MORE,
            help="Temperature of the draft, if it differs from the trace's. 0: propose the"
            " likeliest token.",
        ),
    ] = None
    columns: Annotated[
        str | None,
        typer.Option(
            rich_help_panel=MORE,
            help="Statistics to keep of a network's drafts, separated by commas. Default: all.",
        ),
    ] = None
    tree: Annotated[
        list[str] | None,
        typer.Option(
            metavar="SHAPE",
            help="Record draft trees of this shape, such as 'eagle2(top_k=1:10, depth=1:8)',"
            " 'static([[0], [0, 0], [1]])' or 'best_first(60)'. Repeat it for several.",
            show_default=False,
        ),
    ] = None
    device: Device = "auto"
    dtype: TracesDtype = None
    revision: Revision = None


@grouped
def attach(
    ctx: typer.Context, trace: TraceFolder, options: AttachOptions, resume: Resume = False
) -> None:
    """Attach a drafter to a trace: what it would draft from every position of the outputs."""
    import traces
    from simkit.recording import keep_note
    from traces.attach.run import attach_all
    from traces.writer import folder_to_write

    there = traces.load(trace)
    folder_to_write(there, trace)
    asked, drafters = _asked(ctx, there, options, resume)
    console = Console(stderr=True)
    start = time.perf_counter()
    if any(one.runs_models for one in drafters.values()):
        from traces.record.pair import quiet

        quiet()
    again = resumable("attach", shlex.quote(str(trace)), there.n_sequences)
    with again as kept, training_bar(console) as bar, must_fit():
        task = bar.add_task("attaching", total=there.n_sequences)

        def on_shard(n: int) -> None:
            kept(n)
            bar.update(task, completed=n)

        done = attach_all(
            there,
            drafters,
            _means(asked),
            resume,
            on_shard,
            lambda said: console.print(said, soft_wrap=True),
            partial(keep_note, asked),
        )
    _report(console, there, done, time.perf_counter() - start)


def _asked(
    ctx: typer.Context, there: Trace, options: AttachOptions, resume: bool
) -> tuple[AttachOptions, dict[str, Attachable]]:
    """What is asked for, now or by the run that is gone on with, and its drafters by name."""
    from traces.attach import registry

    if options.drafter is None:
        options = _asked_before(ctx, there, resume)
    parsed = [registry.parse(spec) for spec in options.drafter or ()]
    names = _names(parsed, options.name or [])
    return replace(options, name=names), dict(zip(names, parsed, strict=True))


def _means(asked: AttachOptions) -> Means:
    """What drafters may use."""
    from traces.attach.drafter import Means

    kept = None if asked.columns is None else tuple(c.strip() for c in asked.columns.split(","))
    return Means(
        asked.target, asked.device, asked.dtype, asked.revision, asked.max_draft,
        asked.draft_temperature, kept, tuple(asked.tree or ()),
    )  # fmt: skip


def _report(console: Console, there: Trace, done: list[Done], seconds: float) -> None:
    """Say what was attached, and how it is named."""
    for one in done:
        for note in one.notes:
            console.print(f"note: {note}", soft_wrap=True)
    for one in done:
        if one.was_there:
            said = f"{one.name} is completely attached to {there.path} already"
            console.print(f"{said}; name it with --drafter {one.name}", soft_wrap=True)
    new = [one.name for one in done if not one.was_there]
    if new:
        starts = f"({how_many(there.n_positions, 'start')} in {seconds:.1f} s)"
        said = f"attached {', '.join(new)} to {there.path} {starts}"
        named = " ".join(f"--drafter {name}" for name in new)
        it = "it" if len(new) == 1 else "them"
        console.print(f"{said}; name {it} with {named}", soft_wrap=True)


def _asked_before(ctx: typer.Context, there: Trace, resume: bool) -> AttachOptions:
    """What a stopped run was asked for, of which nothing is said again.

    Raises:
        DrafterError: it is not to be resumed, or does not say so, or is in memory; or there is none
            that says what it was asked for, or there are several.
    """
    if not resume or there.path is None:
        raise DrafterError(
            "--drafter SPEC is missing: name the drafter to attach (simkit list drafters)"
        )
    sources = {name: ctx.get_parameter_source(name) for name in ctx.params}
    for name, source in sources.items():
        if name not in ("trace", "resume") and source and source.name in GIVEN:
            raise DrafterError(
                f"--{name.replace('_', '-')} belongs to a drafter: give --drafter, too"
            )
    return _noted(there.path)


def _noted(trace: Path) -> AttachOptions:
    """What the one unfinished attachment in a trace was asked for."""
    from simkit.recording import NOTE
    from traces.finding import DRAFTERS

    found: dict[str, AttachOptions] = {}
    for note in sorted((trace / DRAFTERS).glob(f"*/{NOTE}")):
        try:
            text = note.read_text(encoding="utf-8")
            found[text] = AttachOptions(**json.loads(text))
        except (OSError, ValueError, TypeError):
            continue
    if not found:
        raise DrafterError(
            f"{trace}: no unfinished attachment has its options there: give --drafter"
        )
    if len(found) > 1:
        names = " or ".join(", ".join(one.name or ()) for one in found.values())
        raise DrafterError(f"{trace}: several attachments are unfinished ({names}): give --drafter")
    return next(iter(found.values()))


def _names(drafters: list[Attachable], given: list[str]) -> list[str]:
    """The drafters' names in the trace.

    Raises:
        DrafterError: there are too few or too many, or two are alike.
    """
    if given and len(given) != len(drafters):
        raise DrafterError(
            f"--drafter is given {len(drafters)} times and --name {len(given)} times: give one"
            " --name for each --drafter, or none"
        )
    names = given or [drafter.name for drafter in drafters]
    twice = [name for name in names if names.count(name) > 1]
    if twice:
        raise DrafterError(f"two drafters would be called {twice[0]}: give each a --name")
    return names
