"""`simkit explore`: a trace's policies under sliders, in a browser."""

from __future__ import annotations

from typing import Annotated

import typer

from simkit.cli.options import Cost, Drafter, TraceName
from simkit.cli.places import drafted


def explore(
    trace: TraceName,
    drafter: Drafter = None,
    cost: Cost = None,
    port: Annotated[
        int,
        typer.Option(
            min=0,
            max=65535,
            metavar="N",
            help="Local port that serves the page; 0 takes any free one.",
        ),
    ] = 5006,
    show: Annotated[bool, typer.Option(help="Open the page in a browser.")] = True,
) -> None:
    """Explore policies interactively in a browser."""
    from analysis.explore import need_extra

    need_extra()
    from analysis.explore.serve import serve

    try:
        serve(drafted(trace, drafter), cost, port, show)
    except KeyboardInterrupt:  # how it is ended
        print()
