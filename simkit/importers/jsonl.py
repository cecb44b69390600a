"""Files of one JSON object a line, with complaints that name the line."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple, TypeGuard

from simkit.errors import ImporterError
from traces import reading

_MOST = 2**31 - 1  # of a whole number: tables hold 32 bits
LONGEST_DRAFT = 4096  # tokens; more is no acceptance length
ROOM = 64  # tokens of budget behind the longest output: no draft of up to so many is cut by it
LONGEST_S = 1e9  # more than 30 years are no time of a run; sums of such numbers stay finite


class Record(NamedTuple):
    """One object of a file.

    Attributes:
        where: the file and the line, for complaints.
        fields: the object.
    """

    where: str
    fields: dict[str, Any]

    def get(self, *names: str) -> Any:
        """A field, or one of the objects in it.

        Raises:
            ImporterError: it is missing, or what should hold it is no object.
        """
        value: Any = self.fields
        for depth, name in enumerate(names, start=1):
            if not isinstance(value, dict) or name not in value:
                raise self.error(f"field {'.'.join(names[:depth])} is missing")
            value = value[name]
        return value

    def whole(self, name: str, value: Any, least: int, most: int = _MOST) -> list[int]:
        """A field's value as a list of whole numbers.

        Raises:
            ImporterError: it is none, or one of them is out of range.
        """
        if not isinstance(value, list):
            raise self.error(f"{name} must be a list of whole numbers, not {_short(value)}")
        for k, item in enumerate(value):
            if type(item) is not int:
                raise self.error(f"{name}[{k}] must be a whole number, not {_short(item)}")
            if not least <= item <= most:
                raise self.error(f"{name}[{k}] is {_short(item)}, not from {least} to {most}")
        return value

    def count(self, name: str, most: int = _MOST) -> int:
        """A field that is a whole number from 0 on; raises as `whole` does."""
        return self.whole(name, [self.get(name)], 0, most)[0]

    def inside(self, name: str, value: Any) -> Record:
        """An object that this one holds.

        Raises:
            ImporterError: it is none.
        """
        if not isinstance(value, dict):
            raise self.error(f"{name} must be an object")
        return Record(f"{self.where}: {name}", value)

    def text(self, name: str, numbers: bool = False) -> str:
        """A field that is text (or a whole number, which is written out).

        Raises:
            ImporterError: it is missing or of another kind, or no text that can be written.
        """
        value = self.get(name)
        if numbers and type(value) is int:
            return str(value)
        if not isinstance(value, str):
            also = " or a whole number" if numbers else ""
            raise self.error(f"{name} must be text{also}, not {_short(value)}")
        return value

    def error(self, what: str) -> ImporterError:
        """A complaint about this record."""
        return ImporterError(f"{self.where}: {what}")


def read(file: str | Path, events: bool = False) -> Iterator[Record]:
    """The objects of a file; blank lines are skipped.

    Args:
        file: JSON lines.
        events: whether lines may be a stream's events, `data: {…}`, with `[DONE]` at its end.

    Raises:
        ImporterError: the file cannot be read or is empty, or a line is no JSON object.
    """
    number = 0
    for number, line in reading.lines(file, math.inf, ImporterError):
        text = line.strip().removeprefix("data:").strip() if events else line
        if not events or text != "[DONE]":
            where = f"{file}: line {number}"
            fields = reading.parse_json(text, where, ImporterError, any_number=True)
            if not isinstance(fields, dict):
                raise ImporterError(f"{where}: not a JSON object")
            yield Record(where, fields)
    if not number:
        raise ImporterError(f"{file}: there is no record in it")


def is_seconds(value: Any) -> TypeGuard[float]:
    """Whether a value is a number above 0, up to `LONGEST_S`; NaN is none."""
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return number and 0 < value <= LONGEST_S


def _short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 40 else f"{text[:37]}..."
