"""Rows of one file of a trace, as what looks at them sees them: columns, read when needed."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from traces.messages import how_many

KEYS = ("sequence", "position", "start", "depth", "step")
_SHOWN = 3  # rows of one kind of problem that are told one by one


@dataclass(frozen=True)
class FileRows:
    """The columns of one file.

    Attributes:
        file: for the messages.
        columns: arrays of one length, which may be read when they are first asked for; `sequence`
            is among them.
        asked: those that are looked at; None is all of them.
    """

    file: Path
    columns: Mapping[str, np.ndarray]
    asked: Collection[str] | None = None

    def has(self, *names: str) -> bool:
        """Whether all of these are there, so that a rule on them applies, and one is asked for."""
        there = all(name in self.columns for name in names)
        return there and (self.asked is None or any(name in self.asked for name in names))

    def asks_for_keys(self) -> bool:
        """Whether one of the columns that name a row is asked for."""
        return any(self.has(key) for key in KEYS)

    def __getitem__(self, name: str) -> np.ndarray:
        return self.columns[name]

    def __len__(self) -> int:
        return len(self.columns["sequence"])

    def problems(self, bad: np.ndarray, what: str) -> Iterator[str]:
        """A line for each row that is flagged as bad; `what` may name columns in braces."""
        yield from self.problems_at(np.flatnonzero(bad), what)

    def problems_at(self, rows: np.ndarray, what: str) -> Iterator[str]:
        """`problems` of rows with these numbers."""
        for row in rows[:_SHOWN]:
            keys = [key for key in KEYS if key in self.columns]
            where = ", ".join(f"{key} {self[key][row]}" for key in keys)
            yield f"{self.file}: {where}: {what.format_map(_Row(self.columns, row))}"
        if len(rows) > _SHOWN:
            more = len(rows) - _SHOWN
            end = self["sequence"][rows[-1]]
            yield f"{self.file}: {how_many(more, 'more row')} like the last, up to sequence {end}"


class _Row(dict):
    """Values of a row by their columns' names, as far as a text names them."""

    def __init__(self, columns: Mapping[str, np.ndarray], row: int) -> None:
        super().__init__()
        self._columns, self._row = columns, row

    def __missing__(self, name: str) -> object:
        return self._columns[name][self._row]


class Some(Mapping[str, np.ndarray]):
    """Some of the columns of a file, and of their rows, taken when they are asked for."""

    def __init__(
        self,
        columns: Mapping[str, np.ndarray],
        names: list[str],
        rows: np.ndarray | slice = slice(None),
    ) -> None:
        self._columns, self._names, self._rows = columns, names, rows

    def __getitem__(self, name: str) -> np.ndarray:
        if name not in self._names:
            raise KeyError(name)
        return self._columns[name][self._rows]

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


class Lazy(Mapping[str, np.ndarray]):
    """Columns of these names, each made when it is first asked for."""

    def __init__(self, names: Collection[str], make: Callable[[str], np.ndarray]) -> None:
        self._names, self._make = names, make
        self._made: dict[str, np.ndarray] = {}

    def __getitem__(self, name: str) -> np.ndarray:
        if name not in self._made:
            if name not in self._names:
                raise KeyError(name)
            self._made[name] = self._make(name)
        return self._made[name]

    def __contains__(self, name: object) -> bool:
        return name in self._names

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)
