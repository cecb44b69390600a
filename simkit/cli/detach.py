"""`simkit detach`: remove a drafter that was attached to a trace."""

from __future__ import annotations

from typing import Annotated

import typer

from simkit.cli.options import TraceFolder


def detach(
    trace: TraceFolder,
    name: Annotated[
        str, typer.Argument(help="Name of the attached drafter; simkit info shows the names.")
    ],
) -> None:
    """Remove a drafter that was attached to a trace, with its times."""
    from traces.attach.run import detach as run
    from traces.trace import load
    from traces.writer import folder_to_write

    there = load(trace)
    folder_to_write(there, trace)
    typer.echo(f"removed {run(there, name)}", err=True)
