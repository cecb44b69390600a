"""What is known of the drafts behind a log of steps: counts, and no layout that can be replayed."""

from __future__ import annotations

from simkit.drafters.layout import Layout, Read, SequenceDrafts
from simkit.errors import ReplayError
from traces.drafters.log import REFUSED
from traces.trace import Trace


class LogOutputs(Layout):
    """The outputs behind a log, which are as long as its steps say; see `Layout`.

    Prices need no more. Whatever asks for drafts is refused.
    """

    by_start = True

    def columns(self, names: tuple[str, ...]) -> Read:
        """See `Layout`."""
        raise ReplayError(REFUSED)

    def lag(self, head: str) -> int:
        """See `Layout`."""
        raise ReplayError(REFUSED)

    def sequence(self, read: Read, index: int) -> SequenceDrafts:
        """See `Layout`."""
        raise ReplayError(REFUSED)

    def _recorded(self, sequence: int, start: int) -> int:
        raise ReplayError(REFUSED)


class LogLayout(LogOutputs):
    """What asks for the layout of a log is told what can be done with one."""

    def __init__(self, trace: Trace) -> None:
        raise ReplayError(REFUSED)
