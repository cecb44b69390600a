"""What is known of a trace whose rows are read in windows: its prompts, and no row."""

from __future__ import annotations

from typing import Any

from simkit.drafters.layout import Layout, Read, SequenceDrafts
from simkit.errors import ReplayError
from traces.errors import TraceError
from traces.streamed import Streamed

_ROWS = ("ahead", "branch", "cut")


class WindowedOutputs(Layout):
    """All prompts and how long their outputs are; the windows have layouts of their own."""

    by_start = False

    def __init__(self, trace: Streamed) -> None:
        self.trace = trace
        self.offsets = trace.position_offsets
        self.n_prompt = trace.sequences["n_prompt"].to_numpy().astype("int64")
        self.n_output = self.offsets[1:] - self.offsets[:-1]

    def __getattr__(self, name: str) -> Any:
        if name in _ROWS:
            raise self._refusal()
        raise AttributeError(name)

    def columns(self, names: tuple[str, ...]) -> Read:
        """See `Layout`."""
        raise self._refusal()

    def lag(self, head: str) -> int:
        """See `Layout`."""
        raise self._refusal()

    def sequence(self, read: Read, index: int) -> SequenceDrafts:
        """See `Layout`."""
        raise self._refusal()

    def _recorded(self, sequence: int, start: int) -> int:
        raise self._refusal()

    @staticmethod
    def _refusal() -> TraceError:
        return TraceError("all rows at once are wanted, and they are read in windows (--memory)")


def windowed(layout: Layout) -> Streamed | None:
    """The trace behind a layout, if its rows are read in windows."""
    return layout.trace if isinstance(layout.trace, Streamed) else None


def refuse_windows(layout: Layout, what: str) -> None:
    """Say that something takes all rows at once.

    Raises:
        ReplayError: the rows are read in windows.
    """
    if windowed(layout):
        raise ReplayError(f"{what} needs all rows at once: leave out --memory")
