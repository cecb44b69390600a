"""A log looked through before any number is taken from it: its laws, and known faults."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from simkit.errors import ImporterError
from simkit.importers import faults
from simkit.importers.ledger import LAWS, Ledger
from simkit.importers.steps import Imported
from traces.messages import how_many


class CheckedLaw(NamedTuple):
    """A law, and how often it held.

    Attributes:
        words: what it says.
        kept: how often it held.
        broken: how often it did not.
        first: the first complaint, "" without one.
    """

    words: str
    kept: int
    broken: int
    first: str

    @property
    def verdict(self) -> str:
        """In one word."""
        return "fail" if self.broken else "pass" if self.kept else "not there"


class CheckedFault(NamedTuple):
    """A known fault, and what of it was seen; "" for nothing."""

    name: str
    seen: str
    source: str


class Diagnosis(NamedTuple):
    """What a log looks like.

    Attributes:
        requests: that were read.
        steps: of these.
        refused: complaints of lines that would refuse the import.
        laws: all of them.
        faults: all that are looked for in the engine's logs.
    """

    requests: int
    steps: int
    refused: list[str]
    laws: list[CheckedLaw]
    faults: list[CheckedFault]

    @property
    def is_sound(self) -> bool:
        """Whether every line is read, and looks like no known fault."""
        return not self.refused and not any(fault.seen for fault in self.faults)


def examine(load: Callable[[], Imported]) -> Diagnosis:
    """Look a log through.

    Args:
        load: its import.

    Raises:
        ImporterError: the file cannot be read at all, or holds no log.
    """
    ledger, trace = Ledger(), None
    with ledger.open():
        try:
            trace = load().trace
        except ImporterError:
            if not ledger.refused:
                raise
    laws = [
        CheckedLaw(words, ledger.kept[law], ledger.broken[law], ledger.first.get(law, ""))
        for law, words in LAWS.items()
    ]
    seen: dict[str, list[str]] = {}
    for name, words in ledger.found:
        seen.setdefault(name, []).append(words)
    for name, n in ledger.hints.items():
        seen.setdefault(name, []).append(f"{how_many(n, 'line is', 'lines are')} refused")
    found = [
        CheckedFault(fault.name, "; ".join(seen.get(fault.name, ())), fault.source)
        for fault in faults.FAULTS
    ]
    requests = trace.n_sequences if trace else 0
    steps = trace.rows("log") if trace else 0
    return Diagnosis(requests, steps, ledger.refused, laws, found)
