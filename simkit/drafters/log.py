"""What is known of the drafts behind a log of steps: counts, and no layout that can be replayed."""

from __future__ import annotations

from typing import NoReturn

from simkit.drafters.layout import Layout
from simkit.errors import ReplayError
from traces.drafters.log import REFUSED
from traces.trace import Trace


class LogOutputs(Layout):
    """The outputs behind a log, which are as long as its steps say; see `Layout`.

    Prices need no more. Whatever asks for drafts is refused.
    """

    by_start = True

    def _refuse(self, *asked: object, **named: object) -> NoReturn:
        raise ReplayError(REFUSED)

    columns = lag = sequence = _recorded = _refuse


class LogLayout(LogOutputs):
    """What asks for the layout of a log is told what can be done with one."""

    def __init__(self, trace: Trace) -> None:
        raise ReplayError(REFUSED)
