"""Read a prompts file: JSON Lines with `prompt`, `messages` or `prompt_tokens`."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from traces import reading
from traces.errors import RecordError

_MOST_BYTES = 1024 * reading.MEBIBYTE


@dataclass(frozen=True)
class Prompt:
    """One prompt: its token ids, and its text where there is one."""

    id: str
    task: str
    text: str | None
    tokens: list[int]


class Row(NamedTuple):
    """A line of a prompts file, before it is cut into tokens.

    Attributes:
        where: it stands, for messages.
        number: of the line, or of the prompt in a list, from 1.
        value: its object.
    """

    where: str
    number: int
    value: dict[str, Any]


def read_prompts(path: str | Path, tokenizer: Any, vocab_size: int) -> list[Prompt]:
    """All prompts of a file, in its order.

    Raises:
        RecordError: the file is missing or empty, or a line is not a prompt; names the line.
    """
    return cut(read_rows(path), tokenizer, vocab_size)


def read_rows(path: str | Path) -> list[Row]:
    """The lines of a prompts file, each checked as far as that needs no tokenizer.

    So what is wrong with a file is known before models are loaded.

    Raises:
        RecordError: as `read_prompts`.
    """
    path = Path(path)
    rows = []
    for n, line in reading.lines(path, _MOST_BYTES, RecordError):
        where = f"{path}, line {n}"
        rows.append(_checked(Row(where, n, _object(line, where))))
    if not rows:
        raise RecordError(f"{path}: no prompts in it")
    return rows


def check_file(path: str | Path) -> None:
    """Refuse a prompts file before models are loaded; one that can be read but once is not read.

    Raises:
        RecordError: as `read_prompts`.
    """
    if Path(path).is_file() or not Path(path).exists():
        read_rows(path)


def rows_of(prompts: Iterable[str | Mapping[str, Any]]) -> list[Row]:
    """The same of texts, or of what a line's object would hold, in a list.

    Raises:
        RecordError: there is none, or one is not a prompt; names its number.
    """
    rows = []
    for n, given in enumerate(prompts, 1):
        value = {"prompt": given} if isinstance(given, str) else dict(given)
        rows.append(_checked(Row(f"prompt {n}", n, value)))
    if not rows:
        raise RecordError("there are no prompts to record")
    return rows


def cut(rows: Iterable[Row], tokenizer: Any, vocab_size: int) -> list[Prompt]:
    """Rows as tokens.

    Raises:
        RecordError: a row has no tokens, or one that is outside the vocabulary; names it.
    """
    return [_prompt(row, tokenizer, vocab_size) for row in rows]


def prompts_hash(prompts: list[Prompt]) -> str:
    """sha256 over ids, tasks and tokens, in order."""
    rows = [[p.id, p.task, p.tokens] for p in prompts]
    return hashlib.sha256(json.dumps(rows).encode()).hexdigest()


def _object(line: str, where: str) -> dict[str, Any]:
    value = reading.parse_json(line, where, RecordError)
    if not isinstance(value, dict):
        raise RecordError(f"{where}: not a JSON object")
    if "\\u" in line:  # an escape may stand for half of a pair, which no file can hold
        try:
            json.dumps(value, ensure_ascii=False).encode()
        except UnicodeEncodeError:
            raise RecordError(f"{where}: half of a surrogate pair (\\ud800) is no text") from None
    return value


def _checked(row: Row) -> Row:
    """A row that is a prompt of one kind, as far as that can be seen without a tokenizer."""
    kinds = [kind for kind in _CUT if kind in row.value]
    if len(kinds) != 1:
        raise RecordError(f"{row.where}: needs exactly one of {', '.join(_CUT)}")
    kind = kinds[0]
    _CHECKS[kind](row.value[kind], row.where)
    if not row.value[kind]:
        raise RecordError(f"{row.where}: the prompt has no tokens")
    for name in ("id", "task"):
        _word(row.value, name, row.where)
    return row


def _prompt(row: Row, tokenizer: Any, vocab_size: int) -> Prompt:
    where, n, value = row
    (kind,) = (kind for kind in _CUT if kind in value)
    tokens = _CUT[kind](value[kind], where, tokenizer)
    if not tokens:
        raise RecordError(f"{where}: the prompt has no tokens")
    for token in tokens:
        if not 0 <= token < vocab_size:
            raise RecordError(
                f"{where}: token id {token} is outside the vocabulary of {vocab_size}"
            )
    text = value[kind] if kind == "prompt" else None
    id_, task = _word(value, "id", where), _word(value, "task", where)
    return Prompt(str(n) if id_ is None else id_, task or "default", text, tokens)


def _word(row: dict[str, Any], name: str, where: str) -> str | None:
    """A name that is text or a whole number; None where it is null or not there."""
    value = row.get(name)
    if value is None or isinstance(value, str):
        return value
    if type(value) is not int:
        raise RecordError(f"{where}: {name} must be text, not {json.dumps(value)[:60]}")
    return str(value)


def _check_text(text: object, where: str) -> None:
    if not isinstance(text, str):
        raise RecordError(f"{where}: prompt must be text")


def _check_chat(messages: object, where: str) -> None:
    if not isinstance(messages, list) or not all(
        isinstance(m, dict) and {"role", "content"} <= m.keys() for m in messages
    ):
        raise RecordError(f"{where}: messages must be a list of objects with role and content")


def _check_ids(ids: object, where: str) -> None:
    if not isinstance(ids, list) or not all(type(i) is int for i in ids):
        raise RecordError(f"{where}: prompt_tokens must be a list of integers")
    if min(ids, default=0) < 0:
        raise RecordError(f"{where}: token id {min(ids)} is outside of any vocabulary")


def _from_text(text: str, where: str, tokenizer: Any) -> list[int]:
    return tokenizer.encode(text)


def _from_chat(messages: list[dict[str, Any]], where: str, tokenizer: Any) -> list[int]:
    if not tokenizer.chat_template:
        raise RecordError(f"{where}: messages need a chat template, and the tokenizer has none")
    try:
        text = tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)
    except Exception as e:  # a template is a program: it raises what it likes
        raise RecordError(f"{where}: the chat template refused the messages: {e}") from e
    return tokenizer.encode(text, add_special_tokens=False)  # the template writes its own


def _from_ids(ids: list[int], where: str, tokenizer: Any) -> list[int]:
    return ids


_CHECKS = {"prompt": _check_text, "messages": _check_chat, "prompt_tokens": _check_ids}
_CUT = {"prompt": _from_text, "messages": _from_chat, "prompt_tokens": _from_ids}
