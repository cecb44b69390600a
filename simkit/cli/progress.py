"""Bars of progress, on stderr, where somebody looks at it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from rich.console import Console

if TYPE_CHECKING:
    from simkit.sweeps.engine import Progress as OnSetting


@contextmanager
def settings_bar(what: str) -> Iterator[OnSetting | None]:
    """A bar on stderr while settings are replayed; None where nobody looks at it."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeRemainingColumn

    console = Console(stderr=True)
    if not console.is_terminal:
        yield None
        return
    columns = (what, BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, transient=True, console=console) as bar:
        task = bar.add_task(what, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


@contextmanager
def decoding_bar(total: int) -> Iterator[Any]:
    """A progress bar in a terminal; gives what moves it on by one."""
    from rich.progress import Progress

    console = Console(stderr=True)
    with Progress(transient=True, console=console, disable=not console.is_terminal) as progress:
        task = progress.add_task("decoding", total=total)
        yield lambda: progress.advance(task)


def training_bar(console: Console):
    """A bar on a terminal, nothing elsewhere."""
    from rich.progress import Progress

    return Progress(console=console, transient=True, disable=not console.is_terminal)
