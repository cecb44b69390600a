"""Read a prompts file: JSON Lines with `prompt`, `messages` or `prompt_tokens`."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from traces import reading
from traces.errors import RecordError

_MOST_BYTES = 1024 * reading.MEBIBYTE
_KINDS = ("prompt", "messages", "prompt_tokens")


@dataclass(frozen=True)
class Prompt:
    """One prompt: its token ids, and its text where there is one."""

    id: str
    task: str
    text: str | None
    tokens: list[int]


def read_prompts(path: str | Path, tokenizer: Any, vocab_size: int) -> list[Prompt]:
    """All prompts of a file, in its order.

    Raises:
        RecordError: the file is missing or empty, or a line is not a prompt; names the line.
    """
    path = Path(path)
    prompts = [
        _prompt(_object(line, f"{path}, line {n}"), f"{path}, line {n}", n, tokenizer, vocab_size)
        for n, line in reading.lines(path, _MOST_BYTES, RecordError)
    ]
    if not prompts:
        raise RecordError(f"{path}: no prompts in it")
    return prompts


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


def _prompt(row: dict[str, Any], where: str, n: int, tokenizer: Any, vocab_size: int) -> Prompt:
    kinds = [kind for kind in _KINDS if kind in row]
    if len(kinds) != 1:
        raise RecordError(f"{where}: needs exactly one of {', '.join(_KINDS)}")
    kind = kinds[0]
    tokens = {"prompt": _from_text, "messages": _from_chat, "prompt_tokens": _from_ids}[kind](
        row[kind], where, tokenizer
    )
    if not tokens:
        raise RecordError(f"{where}: the prompt has no tokens")
    for token in tokens:
        if not 0 <= token < vocab_size:
            raise RecordError(
                f"{where}: token id {token} is outside the vocabulary of {vocab_size}"
            )
    text = row[kind] if kind == "prompt" else None
    id_, task = _word(row, "id", where), _word(row, "task", where)
    return Prompt(str(n) if id_ is None else id_, task or "default", text, tokens)


def _word(row: dict[str, Any], name: str, where: str) -> str | None:
    """A name that is text or a whole number; None where it is null or not there."""
    value = row.get(name)
    if value is None or isinstance(value, str):
        return value
    if type(value) is not int:
        raise RecordError(f"{where}: {name} must be text, not {json.dumps(value)[:60]}")
    return str(value)


def _from_text(text: object, where: str, tokenizer: Any) -> list[int]:
    if not isinstance(text, str):
        raise RecordError(f"{where}: prompt must be text")
    return tokenizer.encode(text)


def _from_chat(messages: object, where: str, tokenizer: Any) -> list[int]:
    if not isinstance(messages, list) or not all(
        isinstance(m, dict) and {"role", "content"} <= m.keys() for m in messages
    ):
        raise RecordError(f"{where}: messages must be a list of objects with role and content")
    if not tokenizer.chat_template:
        raise RecordError(f"{where}: messages need a chat template, and the tokenizer has none")
    try:
        text = tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)
    except Exception as e:  # a template is a program: it raises what it likes
        raise RecordError(f"{where}: the chat template refused the messages: {e}") from e
    return tokenizer.encode(text, add_special_tokens=False)  # the template writes its own


def _from_ids(ids: object, where: str, tokenizer: Any) -> list[int]:
    if not isinstance(ids, list) or not all(type(i) is int for i in ids):
        raise RecordError(f"{where}: prompt_tokens must be a list of integers")
    return ids
