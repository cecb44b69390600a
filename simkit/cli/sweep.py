"""`simkit sweep`: all settings of policies on a trace."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from simkit.cli.replay import FirstToken, Format, _list_costs

if TYPE_CHECKING:
    from simkit.sweeps import Sweep
    from simkit.sweeps.engine import Progress


class By(StrEnum):
    """What a row stands for."""

    trace = "trace"
    task = "task"


Cost = Annotated[
    str | None,
    typer.Option(
        metavar="NAME|FILE|list",
        help="As in replay; list shows all. Default: the trace's own timings.",
        callback=_list_costs,
        is_eager=True,
    ),
]
Threads = Annotated[
    int | None, typer.Option(help="Default: one for each core that it may use.", show_default=False)
]


def sweep(
    trace: Annotated[str, typer.Argument(help="A trace's folder, or a bundled trace's name.")],
    policy: Annotated[
        list[str],
        typer.Option(help="A spec with ranges, 'svip(h=0.1:1.0:0.05)'; give it again for more."),
    ],
    cost: Cost = None,
    by: Annotated[By, typer.Option(help="What a row stands for.")] = By.trace,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", metavar="FILE.parquet", help="Write all rows.")
    ] = None,
    format: Annotated[Format, typer.Option(help="How to print.")] = Format.table,
    first_token: Annotated[
        FirstToken,
        typer.Option(help="prefill: the prompt's pass emits the first token; draft: it does not."),
    ] = FirstToken.draft,
    intervals: Annotated[
        bool, typer.Option("--intervals", help="Bootstrap the speedups' intervals: slow.")
    ] = False,
    confidence: Annotated[float, typer.Option(help="Of the intervals.")] = 0.95,
    threads: Threads = None,
) -> None:
    """Replay every setting of policies on a trace."""
    import simkit

    if out is not None:
        _check_writable(out)
    with progress_bar("settings") as progress:
        result = simkit.sweep(
            trace,
            policy,
            cost,
            by=by.value,
            first_token=first_token.value,
            threads=threads,
            intervals=intervals,
            confidence=confidence,
            progress=progress,
        )
    if out is not None:
        result.save(out)
    _print(result, format)


@contextmanager
def progress_bar(what: str) -> Iterator[Progress | None]:
    """A bar on stderr while settings are replayed; None where nobody looks at it."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeRemainingColumn

    console = Console(stderr=True)
    if not console.is_terminal:
        yield None
        return
    columns = (what, BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, transient=True, console=console) as bar:
        task = bar.add_task(what, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def _check_writable(out: Path) -> None:
    """Find out before anything is replayed."""
    from traces.errors import UserError

    if out.is_dir():
        raise UserError(f"--out {out}: is a folder; give a file's name")
    if not out.parent.is_dir():
        raise UserError(f"--out {out}: no such folder: {out.parent}")
    if not os.access(out.parent, os.W_OK):
        raise UserError(f"--out {out}: the folder {out.parent} cannot be written to")


def _print(result: Sweep, format: Format) -> None:
    if format is Format.table:
        from rich.console import Console

        from simkit.simulator.table import rich
        from simkit.sweeps.grid import FASTEST, SHOWN

        console = Console()
        if not console.is_terminal:
            console = Console(width=200)
        records = result.records()
        if len(records) > SHOWN and result.timed:
            records = result.best(FASTEST).to_dicts()
            note = f"{len(result.policies):,} settings; these are the fastest"
            typer.echo(f"{note}. All of them: --format csv, or --out FILE.parquet", err=True)
        console.print(rich(records, wide=console.width >= 130))
    elif format is Format.json:
        import json

        typer.echo(json.dumps(result.records(), indent=1, ensure_ascii=False))
    else:
        typer.echo(result.frame.write_csv(), nl=False)
