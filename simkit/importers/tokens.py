"""Logs of chats: prompts and outputs as token ids, one JSON object a line.

A record holds `prompt_token_ids` and `output_token_ids`, and may hold `task` and `id`. What the
target made of them is not known but the tokens it said, so the trace has no draft of its own:
drafters that propose from tokens alone are attached to it.
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Any

from simkit.errors import ImporterError
from simkit.importers import jsonl
from traces.manifest import SourceInfo
from traces.memory import from_outputs
from traces.trace import Trace

_ROOM = 64  # tokens of budget behind the longest output: no draft of up to so many is cut by it


def read(file: str | Path, eos_token_ids: Collection[int] = ()) -> Trace:
    """The outputs of a file, in its order, as a recording of the target alone.

    Args:
        file: JSON lines.
        eos_token_ids: tokens that end an output. Drafts end there too; the file does not say which
            they are.

    Raises:
        ImporterError: the file cannot be read, a record has wrong fields, or an EOS token is not
            the last of its output.
    """
    eos = _checked(eos_token_ids)
    columns: dict[str, list] = {}
    for record in jsonl.read(file):
        row = {
            "id": _text(record, "id"),
            "task": _text(record, "task"),
            "prompt_tokens": record.whole("prompt_token_ids", record.get("prompt_token_ids"), 0),
            "output_tokens": _output(record, eos),
        }
        row["finish_reason"] = "eos" if row["output_tokens"][-1] in eos else "unknown"
        for name, value in row.items():
            columns.setdefault(name, []).append(value)
    return from_outputs(
        columns,
        max_new_tokens=max(map(len, columns["output_tokens"])) + _ROOM,
        eos_token_ids=sorted(eos),
        source=SourceInfo(Path(file).name, jsonl.file_hash(file)),
    )


def _checked(eos_token_ids: Collection[int]) -> set[int]:
    for token in eos_token_ids:
        if not 0 <= token < 2**31:
            raise ImporterError(f"an EOS token must be from 0 to {2**31 - 1}, not {token}")
    return set(eos_token_ids)


def _text(record: jsonl.Record, name: str) -> str | None:
    given: Any = record.fields.get(name)
    return None if given is None else record.text(name, numbers=True)


def _output(record: jsonl.Record, eos: set[int]) -> list[int]:
    name = "output_token_ids"
    tokens = record.whole(name, record.get(name), 0)
    if not tokens:
        raise record.error(f"{name} is empty")
    for k, token in enumerate(tokens[:-1]):
        if token in eos:
            raise record.error(f"{name}[{k}] is {token}, an EOS token, but not the last")
    return tokens
