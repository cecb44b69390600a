"""What the numbers of a log must agree in, and a ledger of how often they did.

An import refuses a file at the first line that breaks a law. While a ledger is open (`simkit import
--check`) such a line is written down instead and left out, so that all of a file is looked at.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TypeVar

from simkit.errors import ImporterError
from simkit.importers import faults, jsonl

LAWS = {
    "output": "an output ends inside its last step",
    "sums": "sums are those of the steps",
    "histogram": "the histogram counts the steps",
    "length": "no step is beyond the configured length",
    "means": "means and rates follow from the counts",
    "total": "prompt and output come to the total",
    "stream": "what a stream has counted never falls",
}
"""Of every engine; one that a file says nothing of was not looked at."""

_T = TypeVar("_T")


@dataclass
class Ledger:
    """What was looked at so far.

    Attributes:
        kept: how often each law held.
        broken: how often it did not.
        first: the first complaint of each that was broken.
        hints: faults that complaints look like, by name, with the lines that have them.
        refused: complaints of lines that were left out.
        found: faults that what is left looks like, with what was seen.
    """

    kept: Counter[str] = field(default_factory=Counter)
    broken: Counter[str] = field(default_factory=Counter)
    first: dict[str, str] = field(default_factory=dict)
    hints: Counter[str] = field(default_factory=Counter)
    refused: list[str] = field(default_factory=list)
    found: list[tuple[str, str]] = field(default_factory=list)

    @contextmanager
    def open(self) -> Iterator[None]:
        """Write down instead of refusing."""
        before = _OPEN.set(self)
        try:
            yield
        finally:
            _OPEN.reset(before)


_OPEN: ContextVar[Ledger | None] = ContextVar("ledger", default=None)


def current() -> Ledger | None:
    """The ledger that is open, if any."""
    return _OPEN.get()


def hold(record: jsonl.Record, law: str, holds: bool, what: str, fault: str = "") -> None:
    """Refuse what breaks a law.

    Args:
        record: that must obey it.
        law: of `LAWS`.
        holds: whether it does.
        what: the complaint.
        fault: name of the known fault that this looks like.

    Raises:
        ImporterError: it does not.
    """
    ledger = _OPEN.get()
    if holds:
        if ledger is not None:
            ledger.kept[law] += 1
        return
    error = record.error(f"{what}{faults.hint(fault)}")
    if ledger is not None:
        ledger.broken[law] += 1
        ledger.first.setdefault(law, str(error))
        if fault:
            ledger.hints[fault] += 1
    raise error


def each(
    records: Iterable[jsonl.Record], read: Callable[[jsonl.Record], Iterable[_T]]
) -> Iterator[_T]:
    """What is read of each record; one that is refused is left out while a ledger is open.

    Raises:
        ImporterError: one is refused, and there is no ledger.
    """
    for record in records:
        try:
            found = list(read(record))
        except ImporterError as error:
            ledger = _OPEN.get()
            if ledger is None:
                raise
            ledger.refused.append(str(error))
            continue
        yield from found
