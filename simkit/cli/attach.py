"""`simkit attach`: run a drafter over a recording's outputs."""

from __future__ import annotations

import time
from typing import Annotated

import typer
from rich.console import Console

from simkit.cli.options import Device, Revision, TracesDtype
from simkit.cli.progress import training_bar
from simkit.cli.running import must_fit


def attach(
    trace: Annotated[str, typer.Argument(help="A trace's folder.")],
    drafter: Annotated[
        str,
        typer.Option(help="A spec: 'prompt_lookup(length=10)', 'model(\"models/draft\")'."),
    ],
    name: Annotated[
        str | None, typer.Option(help="Of the drafter in the trace. Default: that of its spec.")
    ] = None,
    target: Annotated[
        str | None,
        typer.Option(help="The recorded target, for drafters that need what it says."),
    ] = None,
    max_draft: Annotated[int, typer.Option(help="Γ, deepest draft, of model(…) alone.")] = 40,
    draft_temperature: Annotated[
        float | None, typer.Option(help="Of the draft alone; 0 proposes its likeliest token.")
    ] = None,
    columns: Annotated[
        str | None,
        typer.Option(help="Statistics to keep of a network's drafts, with commas. Default: all."),
    ] = None,
    device: Device = "auto",
    dtype: TracesDtype = None,
    revision: Revision = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with a stopped run.")] = False,
) -> None:
    """Attach a drafter to a trace: what it would draft from every position of the outputs."""
    import traces
    from traces.attach import registry
    from traces.attach.drafter import Means
    from traces.attach.run import attach as run

    chosen = registry.parse(drafter)
    there = traces.load(trace)
    kept = None if columns is None else tuple(name.strip() for name in columns.split(","))
    means = Means(target, device, dtype, revision, max_draft, draft_temperature, kept)
    console = Console(stderr=True)
    start = time.perf_counter()
    if chosen.runs_models:
        from traces.record.pair import quiet

        quiet()
    with training_bar(console) as bar, must_fit():
        task = bar.add_task("attaching", total=there.n_sequences)
        done = run(there, chosen, name, means, resume, lambda n: bar.update(task, completed=n))
    seconds = time.perf_counter() - start
    for note in done.notes:
        console.print(f"note: {note}", soft_wrap=True)
    starts = f"({there.n_positions:,} starts in {seconds:.1f} s)"
    said = f"attached {done.name} to {there.path} {starts}"
    if done.was_there:
        said = f"{done.name} is attached to {there.path} already, whole"
    console.print(f"{said}; name it with --drafter {done.name}", soft_wrap=True)
