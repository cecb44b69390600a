"""`simkit score`: write a head's score table into a trace."""

from __future__ import annotations

import time
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from simkit.cli.options import Device, Draft, Drafter, Target
from simkit.cli.progress import training_bar
from simkit.cli.running import models_of, needs_torch


def score(
    trace: Annotated[str, typer.Argument(help="Trace: its folder, or a bundled trace's name.")],
    head: Annotated[
        Path,
        typer.Option(help="Learned head: FILE.safetensors, with its .json in the same folder."),
    ],
    drafter: Drafter = None,
    name: Annotated[
        str | None, typer.Option(help="Name of the scores. Default: the name of the head's policy.")
    ] = None,
    hidden: Annotated[
        str | None,
        typer.Option(
            help="Trace of the same recording made with --hidden, if this trace has no hidden"
            " states."
        ),
    ] = None,
    max_draft: Annotated[
        int, typer.Option(help="pacer heads: deepest draft position to score.")
    ] = 40,
    target: Target = None,
    draft: Draft = None,
    device: Device = "auto",
) -> None:
    """Write a head's score table into a trace."""
    needs_torch("scoring")
    import traces
    from simkit.heads import files, run

    there = traces.load(trace, drafter)
    recording = None if hidden is None else traces.load(hidden)
    loaded = files.load(head)
    models = models_of(target, draft, device)
    console = Console(stderr=True)
    start = time.perf_counter()
    with training_bar(console) as bar:
        task = bar.add_task("scoring", total=there.n_sequences if loaded.by_start else None)
        tick = partial(bar.update, task, advance=1)
        done = run.score(there, loaded, name, recording, max_draft, tick, models)
    if done is None:
        console.print("nothing to do: this head's scores are there", soft_wrap=True)
        return
    seconds = time.perf_counter() - start
    console.print(f"wrote scores/{done}.parquet to {there.path} in {seconds:.1f} s", soft_wrap=True)
