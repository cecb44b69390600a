"""Why the times may be wrong that a figure, a table or claims rest on.

Whatever replays or serves under a cost notes that here (`analysis.replays`, `analysis.serving`),
and whoever shows numbers asks once, when they are made: no figure has to remember it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import NamedTuple

from simkit.simulator.arguments import AnyCost
from simkit.simulator.beyond import Beyond, in_short
from simkit.simulator.step_costs import Charge
from traces.trace import OWN, Trace

_WATCHING: ContextVar[Priced | None] = ContextVar("watching", default=None)


class _Whose(NamedTuple):
    """Whose passes were priced: those of a recording's drafter."""

    recording: str
    drafter: str


class Priced:
    """What was priced while it was watched.

    Args:
        own: whether a trace's own times count, where no cost is given: not for what takes no cost,
            which shows counts alone.
    """

    def __init__(self, own: bool = True) -> None:
        self.own = own
        self._charges: dict[_Whose, dict[int, Charge]] = {}
        self._lines: dict[_Whose, list[str]] = {}
        self._beyond: dict[_Whose, list[Beyond]] = {}

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Note what is priced within."""
        before = _WATCHING.set(self)
        try:
            yield
        finally:
            _WATCHING.reset(before)

    def add(
        self,
        trace: Trace,
        charge: Charge | None = None,
        beyond: Iterable[Beyond] = (),
        lines: Iterable[str] = (),
    ) -> None:
        """See `note`."""
        recording = trace.recording or trace
        name = recording.path.name if recording.path else "in memory"
        whose = _Whose(name, trace.path.name if trace.recording and trace.path else OWN)
        self._charges.setdefault(whose, {}).update({id(charge): charge} if charge else {})
        self._beyond.setdefault(whose, []).extend(beyond)
        self._lines.setdefault(whose, []).extend(lines)

    def sentences(self, short: bool = False) -> tuple[str, ...]:
        """Why numbers that rest on the times may be wrong, a sentence each; none without times.

        What does not hold for all drafters and recordings names those that it holds for; of what
        lies beyond what was timed the largest shares are given.

        Args:
            short: leave out what each says behind a colon.
        """
        names: dict[str, list[_Whose]] = {}
        beyond = [one for some in self._beyond.values() for one in some]
        for whose, charges in self._charges.items():
            lines = [line for charge in charges.values() for line in charge.warnings]
            beyond = [*(one for charge in charges.values() for one in charge.beyond), *beyond]
            for line in dict.fromkeys([*lines, *self._lines[whose]]):
                names.setdefault(line, []).append(whose)
        every = list(self._charges)
        of = {
            line: "" if len(some) == len(every) else f"{', '.join(_named(some, every))}: "
            for line, some in names.items()
        }
        said = [
            of.get(line, "") + (line.partition(": ")[0] if short else line)
            for line in [*of, in_short(beyond)]
            if line
        ]
        return tuple(f"{line[0].upper()}{line[1:]}." for line in said)


def note(
    trace: Trace,
    cost: AnyCost | None,
    charge: Charge | None = None,
    beyond: Iterable[Beyond] = (),
    lines: Iterable[str] = (),
) -> None:
    """Tell whoever watches that work on a trace was priced.

    Args:
        trace: whose drafts they are.
        cost: that was asked for.
        charge: that priced it.
        beyond: what of it lies beyond what was timed.
        lines: why the times may be wrong, where there is no charge at hand.
    """
    watching = _WATCHING.get()
    if watching and (watching.own or cost is not None):
        watching.add(trace, charge, beyond, lines)


def _named(some: list[_Whose], every: list[_Whose]) -> list[str]:
    """Drafters of one recording; where there are several recordings, these. They begin with "for".

    So no name begins a sentence, where its first letter is made a capital.
    """
    names = [one.drafter for one in some]
    if len({one.recording for one in every}) > 1:
        names = [
            one.recording if one.drafter == OWN else f"{one.drafter} of {one.recording}"
            for one in some
        ]
    return [f"for {names[0]}", *names[1:]]
