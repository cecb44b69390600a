"""Times of a live run: the host's clock, or events on a GPU that are read when all is done."""

from __future__ import annotations

import time
from typing import Any

import torch

Mark = Any
"""A moment: nanoseconds on the host, or an event on a GPU."""


class Clock:
    """The host's monotonic clock, for models on a CPU."""

    def mark(self) -> Mark:
        """Now."""
        return time.perf_counter_ns()

    def settle(self) -> None:
        """Wait until all marks can be read; marks made so far may be used again after it."""

    def between(self, begin: Mark, end: Mark) -> float:
        """Seconds from one mark to another."""
        return (end - begin) * 1e-9


class ProcessorClock(Clock):
    """Seconds that this process has kept a processor busy, for models on a CPU under one thread.

    While others have the processor it stands still: on a shared machine it tells what passes take
    where the wall's clock tells how often they were interrupted.
    """

    def mark(self) -> Mark:
        """Now."""
        return time.process_time_ns()


class CudaClock(Clock):
    """CUDA events, so that a mark waits for nothing; they are kept and used again.

    The stream is in order: between two marks lies the work that was queued between them, and any
    time in which the device waited for the host.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._events: list[torch.cuda.Event] = []
        self._used = 0

    def mark(self) -> Mark:
        """See `Clock`."""
        if self._used == len(self._events):
            self._events.append(torch.cuda.Event(enable_timing=True))
        event = self._events[self._used]
        self._used += 1
        event.record(torch.cuda.current_stream(self._device))
        return event

    def settle(self) -> None:
        """See `Clock`."""
        torch.cuda.synchronize(self._device)
        self._used = 0

    def between(self, begin: Mark, end: Mark) -> float:
        """See `Clock`."""
        return begin.elapsed_time(end) / 1e3


def clock_of(device: torch.device) -> Clock:
    """The clock for models on a device."""
    return CudaClock(device) if device.type == "cuda" else Clock()
