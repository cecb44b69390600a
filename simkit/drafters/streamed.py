"""What is known of a trace whose rows are read in windows: its prompts, and no row."""

from __future__ import annotations

from typing import Any

from simkit.drafters.layout import Layout, Read, SequenceDrafts
from traces.errors import TraceError
from traces.streamed import Streamed

_ROWS = ("ahead", "branch", "cut")


class WindowedOutputs(Layout):
    """All prompts and how long their outputs are; the windows have layouts of their own."""

    by_start = False

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
