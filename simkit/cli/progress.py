"""How far a command is, on stderr: a bar in a terminal, elsewhere a line a minute."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Event, Thread
from typing import TYPE_CHECKING, Any

from rich.console import Console

from traces.messages import how_many

if TYPE_CHECKING:
    from simkit.sweeps.engine import Progress as OnSetting

EVERY_S = 60.0
"""Seconds between lines, where there is no terminal."""
_OFTEN_S = 0.05  # in tests


@contextmanager
def settings_bar(what: str) -> Iterator[OnSetting]:
    """While settings are replayed; gives what is told how many are done, and of how many.

    Told of none, it counts time from then on.
    """
    with bar(what) as (progress, task):

        def told(done: int, total: int) -> None:
            if done:
                progress.update(task, completed=done, total=total)
            else:
                progress.reset(task, total=total)

        yield told


@contextmanager
def resumable(command: str, again: str, total: int) -> Iterator[Callable[[int], None]]:
    """Say on Ctrl-C or a termination how much is kept, and what continues it.

    Args:
        command: "record" or "attach".
        again: its arguments that continue the work, without --resume.
        total: prompts in all.

    Yields:
        what is told how many prompts are kept.
    """
    kept = 0

    def told(n: int) -> None:
        nonlocal kept
        kept = n

    try:
        yield told
    except (KeyboardInterrupt, SystemExit):
        more = f"; continue with: simkit {command} {again} --resume" if kept else ""
        said = f"interrupted: {kept} of {how_many(total, 'prompt')} kept{more}"
        print(f"simkit: {said}", file=sys.stderr)
        raise


@contextmanager
def decoding_bar(total: int, what: str = "decoding") -> Iterator[Any]:
    """While prompts are decoded; gives what moves it on by one."""
    with bar(what, total) as (progress, task):
        yield lambda: progress.advance(task)


@contextmanager
def bar(what: str, total: int | None = None, *columns: Any) -> Iterator[tuple[Any, Any]]:
    """A bar with one task.

    Args:
        what: is done.
        total: of its parts; None is not known yet.
        columns: more than how many of all are done, and what time is left.

    Yields:
        the `Progress`, which takes `advance` and `update`, and the task.
    """
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn

    shown = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn()
    with training_bar(Console(stderr=True), *shown, *columns, TimeRemainingColumn()) as progress:
        yield progress, progress.add_task(what, total=total)


def training_bar(console: Console, *columns: Any) -> Any:
    """A bar to which the caller adds a task, see `bar`."""
    from rich.progress import Progress

    class Told(Progress):
        """Where nobody looks at it, it says how far it is, a line a minute, done or not."""

        last_s = time.monotonic()
        begun = 0.0, 0.0
        ended: Event | None = None

        def start(self) -> None:
            super().start()
            if self.disable and self.ended is None:
                self.ended = Event()
                Thread(target=self._watch, args=(self.ended,), daemon=True).start()

        def stop(self) -> None:
            if self.ended is not None:
                self.ended.set()
            super().stop()

        def _watch(self, ended: Event) -> None:
            while not ended.wait(max(EVERY_S, _OFTEN_S)):
                for task in self.tasks:
                    if not task.finished:
                        self._tell(task.id)

        def update(self, task_id: Any, **given: Any) -> None:  # pyright: ignore
            super().update(task_id, **given)
            self._tell(task_id)

        def advance(self, task_id: Any, advance: float = 1) -> None:
            super().advance(task_id, advance)
            self._tell(task_id)

        def _tell(self, task_id: Any) -> None:
            now_s = time.monotonic()
            task = self.tasks[self.task_ids.index(task_id)]
            passed_s, total = task.elapsed or 0.0, task.total
            if not self.begun[0] and 0 < task.completed < (total or 0) / 100:
                self.begun = task.completed, passed_s  # of 56 prompts the first token each
            if not self.disable or now_s - self.last_s < EVERY_S:
                return
            self.last_s = now_s
            said = line(task.description, task.completed, total, passed_s, self.begun)
            print(f"simkit: {said}", file=sys.stderr, flush=True)

    return Told(*columns, console=console, transient=True, disable=not console.is_terminal)


def line(
    what: str,
    done: float,
    total: float | None,
    passed_s: float,
    begun: tuple[float, float] = (0, 0.0),
) -> str:
    """How far something is, in words.

    Args:
        what: is done.
        done: of its parts.
        total: of them; None if that is not known.
        passed_s: seconds since it began.
        begun: parts done and seconds passed when preparations ended, which say nothing of the rest:
            prompts were read, rules compiled.
    """
    if not total:
        return f"{what}: {in_words(passed_s)} passed"
    said = f"{what}: {done:,.0f} of {total:,.0f} ({done / total:.0%}), {in_words(passed_s)} passed"
    left_s = (passed_s - begun[1]) * (total - done) / (done - begun[0]) if done > begun[0] else None
    return said if left_s is None else f"{said}, about {in_words(left_s)} left"


def in_words(seconds: float) -> str:
    """A length of time: seconds, minutes or hours."""
    if seconds < 1:
        return "less than a second"
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"
