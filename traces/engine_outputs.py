"""Outputs that an engine produced, as token ids: one JSON object a line, of several engines' forms.

A line is a record of one prompt and its output, a response of vLLM or SGLang, or what vLLM's
`RequestOutput` holds; with several outputs to a prompt it is several records. Ids are taken as they
are: a text cut again may be other ids, so a line without ids is refused.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from traces import reading
from traces.errors import UserError

PROMPT_NAMES = ("prompt_token_ids", "prompt_tokens", "input_ids")
OUTPUT_NAMES = ("output_token_ids", "output_tokens", "output_ids", "token_ids")
_HOLDERS = ("outputs", "choices")  # of several outputs to one prompt
_LARGEST = 2**31 - 1


@dataclass(frozen=True)
class EngineOutput:
    """One output, and the prompt that it answers.

    Attributes:
        where: the file and the line, for complaints.
        id: its name; None where the line has none.
        task: what it is of, likewise.
        prompt: token ids.
        output: token ids, at least one.
        text: what the engine says that the output reads; None where it does not.
    """

    where: str
    id: str | None
    task: str | None
    prompt: list[int]
    output: list[int]
    text: str | None = None


def read(
    file: str | Path, error: type[UserError], eos_token_ids: Collection[int] = ()
) -> list[EngineOutput]:
    """All outputs of a file, in its order.

    Args:
        file: JSON lines.
        error: the class to raise.
        eos_token_ids: tokens that end an output.

    Raises:
        error: the file cannot be read or is empty, a record has wrong fields, or an EOS token is
            not the last of its output; names the line.
    """
    found = []
    for number, line in reading.lines(file, float("inf"), error):
        where = f"{file}: line {number}"
        record = reading.parse_json(line, where, error, any_number=True)
        if not isinstance(record, dict):
            raise error(f"{where}: not a JSON object")
        found.extend(_Line(where, error, frozenset(eos_token_ids)).outputs(record))
    if not found:
        raise error(f"{file}: there is no record in it")
    return found


def check_ids(outputs: list[EngineOutput], error: type[UserError]) -> None:
    """Refuse an id that two lines have.

    Raises:
        error: as said; names both.
    """
    named: dict[str, EngineOutput] = {}
    for one in outputs:
        if one.id is not None and (first := named.setdefault(one.id, one)) is not one:
            line = first.where.rpartition(": ")[2]
            raise error(f"{one.where}: id {_short(one.id)} is that of {line} already")


def check_ends(outputs: list[EngineOutput], eos_token_ids: Collection[int], error: Any) -> None:
    """Refuse an output that goes on behind a token which ends it.

    Raises:
        error: as said.
    """
    for one in outputs:
        _Line(one.where, error, frozenset(eos_token_ids)).check_end("output", one.output)


@dataclass(frozen=True)
class _Line:
    """Reads one line; see `read`."""

    where: str
    error: type[UserError]
    eos: frozenset[int]

    def outputs(self, record: dict[str, Any]) -> Iterator[EngineOutput]:
        holder = next((name for name in _HOLDERS if name in record), None)
        parts = [record] if holder is None else record[holder]
        if not isinstance(parts, list) or not all(isinstance(part, dict) for part in parts):
            raise self._wrong(f"{holder} must be a list of objects")
        if not parts:
            raise self._wrong(f"{holder} is empty")
        for k, part in enumerate(parts):
            inside = f"{holder}[{k}]." if holder else ""
            yield self._output(record, part, inside, k if len(parts) > 1 else None)

    def _output(
        self, record: dict[str, Any], part: dict[str, Any], inside: str, number: int | None
    ) -> EngineOutput:
        name, output = self._ids(part, OUTPUT_NAMES, inside)
        if not output:
            raise self._wrong(f"{name} is empty")
        self.check_end(name, output)
        from_part = any(n in part for n in PROMPT_NAMES)
        _, prompt = self._ids(part if from_part else record, PROMPT_NAMES, inside * from_part)
        id_ = self._word(record, "id") or self._word(record, "request_id")
        if id_ is not None and number is not None:
            id_ = f"{id_}/{number}"
        text = part.get("output_text", part.get("text"))
        text = text if isinstance(text, str) else None
        return EngineOutput(self.where, id_, self._word(record, "task"), prompt, output, text)

    def check_end(self, name: str, output: list[int]) -> None:
        for k, token in enumerate(output[:-1]):
            if token in self.eos:
                raise self._wrong(f"{name}[{k}] is {token}, an EOS token, but not the last")

    def _ids(
        self, fields: dict[str, Any], names: tuple[str, ...], inside: str
    ) -> tuple[str, list[int]]:
        given = [name for name in names if name in fields]
        if not given:
            raise self._wrong(f"field {inside}{names[0]} is missing")
        name = f"{inside}{given[0]}"
        if len(given) > 1:
            raise self._wrong(f"{name} and {inside}{given[1]} are the same: give one of them")
        ids = fields[given[0]]
        if not isinstance(ids, list):
            raise self._wrong(f"{name} must be a list of whole numbers, not {_short(ids)}")
        for k, item in enumerate(ids):
            if type(item) is not int:
                raise self._wrong(f"{name}[{k}] must be a whole number, not {_short(item)}")
            if not 0 <= item <= _LARGEST:
                raise self._wrong(f"{name}[{k}] is {_short(item)}, not from 0 to {_LARGEST}")
        return name, ids

    def _word(self, fields: dict[str, Any], name: str) -> str | None:
        value = fields.get(name)
        if value is None or isinstance(value, str):
            return value
        if type(value) is not int:
            raise self._wrong(f"{name} must be text or a whole number, not {_short(value)}")
        return str(value)

    def _wrong(self, what: str) -> UserError:
        return self.error(f"{self.where}: {what}")


def _short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 40 else f"{text[:37]}..."
