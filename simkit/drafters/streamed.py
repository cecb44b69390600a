"""What is known of a trace whose rows are read in windows: its prompts, and no row."""

from __future__ import annotations

from typing import Any, NoReturn

from simkit.drafters.layout import Layout
from traces.errors import TraceError
from traces.streamed import Streamed

_ROWS = ("ahead", "branch", "cut")


class WindowedOutputs(Layout):
    """All prompts and how long their outputs are; the windows have layouts of their own."""

    by_start = False

    def __getattr__(self, name: str) -> Any:
        if name in _ROWS:
            self._refuse()
        raise AttributeError(name)

    def _refuse(self, *asked: object, **named: object) -> NoReturn:
        raise TraceError("all rows at once are wanted, and they are read in windows (--memory)")

    columns = lag = sequence = _recorded = _refuse


def windowed(layout: Layout) -> Streamed | None:
    """The trace behind a layout, if its rows are read in windows."""
    return layout.trace if isinstance(layout.trace, Streamed) else None
