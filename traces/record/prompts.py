"""Read a prompts file: JSON Lines with `prompt`, `messages` or `prompt_tokens`."""

from __future__ import annotations

import difflib
import hashlib
import inspect
import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from traces import reading
from traces.errors import RecordError, warn
from traces.record.chat import Chat

_MOST_BYTES = 1024 * reading.MEBIBYTE
_NAMES = ("id", "task")
_TEMPLATE_NAMES = {"tools": list, "documents": list, "chat_template_kwargs": dict}  # with messages
_ORIGIN_NAMES = ("source", "licence", "license", "document")  # known to be of no use here
_MISSPELT = 0.85  # likeness of names


@dataclass(frozen=True)
class Prompt:
    """One prompt: its token ids, and its text where there is one.

    Attributes:
        id: its name.
        task: what it is of.
        text: as it was given; None where it was given as messages or tokens.
        tokens: token ids.
        is_dated: whether its chat template wrote the day's date into it.
        output: what an engine answered, as token ids; None where that is generated.
    """

    id: str
    task: str
    text: str | None
    tokens: list[int]
    is_dated: bool = False
    output: list[int] | None = None


class PromptRow(NamedTuple):
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


def read_rows(path: str | Path) -> list[PromptRow]:
    """The lines of a prompts file, each checked as far as that needs no tokenizer.

    So what is wrong with a file is known before models are loaded.

    Raises:
        RecordError: as `read_prompts`.
    """
    path = Path(path)
    rows = []
    for n, line in reading.lines(path, _MOST_BYTES, RecordError):
        where = f"{path}, line {n}"
        rows.append(_checked(PromptRow(where, n, _object(line, where))))
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


def rows_of(prompts: Iterable[str | Mapping[str, Any]]) -> list[PromptRow]:
    """The same of texts, or of what a line's object would hold, in a list.

    Raises:
        RecordError: there is none, or one is not a prompt; names its number.
    """
    rows = []
    for n, given in enumerate(prompts, 1):
        value = {"prompt": given} if isinstance(given, str) else dict(given)
        rows.append(_checked(PromptRow(f"prompt {n}", n, value)))
    if not rows:
        raise RecordError("there are no prompts to record")
    return rows


def cut(
    rows: Iterable[PromptRow], tokenizer: Any, vocab_size: int, chat: Chat | None = None
) -> list[Prompt]:
    """Rows as tokens; chats with what is given to all of them.

    Warns of what is likely a mistake: names that are not read, token ids that begin with two BOS
    tokens, a tokenizer that ends prompts with EOS, or a chat template that writes the day's date,
    so that the same prompts are others tomorrow.

    Raises:
        RecordError: a row has no tokens, or one that is outside the vocabulary, its text doubles
            the BOS token, or its chat template does not read what it is given; names it.
    """
    chat = chat or Chat()
    rows = [row._replace(value=chat.complete(row.value)) for row in rows]
    prompts = [_prompt(row, tokenizer, vocab_size) for row in rows]
    _tell(rows, prompts, tokenizer)
    return prompts


def _tell(rows: list[PromptRow], prompts: list[Prompt], tokenizer: Any) -> None:
    """Warn, once each, of what is likely a mistake."""
    known = {*_CUT, *_NAMES, *_TEMPLATE_NAMES, *_ORIGIN_NAMES}
    if unread := sorted({name for row in rows for name in row.value} - known):
        where = _first([row.where for row in rows if row.value.keys() - known])
        names = (name if name == " ".join(name.split()) else ascii(name) for name in unread)
        warn(f"{where}: not read: {', '.join(names)}")
    doubled = [
        row.where for row, p in zip(rows, prompts, strict=True) if _doubles_bos(p.tokens, tokenizer)
    ]
    if doubled:
        warn(f"{_first(doubled)}: prompt_tokens begin with two BOS tokens")
    texts = [row for row in rows if "prompt" in row.value]
    if texts and _adds_eos(texts[0].value["prompt"], tokenizer):
        where = _first([row.where for row in texts])
        warn(f"{where}: the tokenizer ends the prompt with EOS, so outputs come behind it")
    if dated := [row.where for row, prompt in zip(rows, prompts, strict=True) if prompt.is_dated]:
        warn(
            f"{_first(dated)}: the chat template writes today's date, so these token ids change"
            " from day to day, and --resume needs the same day"
        )


def prompts_hash(prompts: list[Prompt]) -> str:
    """sha256 over ids, tasks and tokens, those of known outputs too, in order."""
    rows = [[p.id, p.task, p.tokens, *([p.output] if p.output else [])] for p in prompts]
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


def _checked(row: PromptRow) -> PromptRow:
    """A row that is a prompt of one kind, as far as that can be seen without a tokenizer."""
    kinds = [kind for kind in _CUT if kind in row.value]
    if len(kinds) != 1:
        _check_names(row, kinds[0] if kinds else "messages")  # a misspelt name says more
        raise RecordError(f"{row.where}: needs exactly one of {', '.join(_CUT)}")
    kind = kinds[0]
    _check_names(row, kind)
    _CHECKS[kind](row.value[kind], row.where)
    if not row.value[kind]:
        raise RecordError(f"{row.where}: the prompt has no tokens")
    for name in _NAMES:
        _word(row.value, name, row.where)
    return row


def _check_names(row: PromptRow, kind: str) -> None:
    """Refuse a misspelt name, and what is for a chat template where none is used."""
    known = [*_CUT, *_NAMES, *(_TEMPLATE_NAMES if kind == "messages" else ())]
    for name, value in row.value.items():
        if name in _TEMPLATE_NAMES and value is not None:
            if kind != "messages":
                raise RecordError(f"{row.where}: {name} needs messages")
            if not isinstance(value, _TEMPLATE_NAMES[name]):
                what = "a list" if _TEMPLATE_NAMES[name] is list else "an object"
                raise RecordError(f"{row.where}: {name} must be {what}")
        elif name in known or name in _TEMPLATE_NAMES:
            continue
        elif close := difflib.get_close_matches(name, known, 1, _MISSPELT):
            raise RecordError(f"{row.where}: unknown name {name!r} (did you mean {close[0]}?)")


def _first(places: list[str]) -> str:
    """The first of several places."""
    return places[0] if len(places) == 1 else f"{places[0]} and {len(places) - 1} more"


def _prompt(row: PromptRow, tokenizer: Any, vocab_size: int) -> Prompt:
    where, n, value = row
    (kind,) = (kind for kind in _CUT if kind in value)
    tokens, is_dated = _CUT[kind](value, where, tokenizer)
    if not tokens:
        raise RecordError(f"{where}: the prompt has no tokens")
    for token in tokens:
        if not 0 <= token < vocab_size:
            raise RecordError(
                f"{where}: token id {token} is outside the vocabulary of {vocab_size}"
            )
    text = value[kind] if kind == "prompt" else None
    id_, task = _word(value, "id", where), _word(value, "task", where)
    return Prompt(str(n) if id_ is None else id_, task or "default", text, tokens, is_dated)


def _doubles_bos(tokens: list[int], tokenizer: Any) -> bool:
    bos = getattr(tokenizer, "bos_token_id", None)
    return bos is not None and tokens[:2] == [bos, bos]


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


def _adds_eos(text: str, tokenizer: Any) -> bool:
    """Whether the tokenizer puts an EOS token behind a text."""
    eos = getattr(tokenizer, "eos_token_id", None)
    if eos is None or tokenizer.encode(text)[-1:] != [eos]:
        return False
    return tokenizer.encode(text, add_special_tokens=False)[-1:] != [eos]


def _from_text(value: dict[str, Any], where: str, tokenizer: Any) -> tuple[list[int], bool]:
    tokens = tokenizer.encode(value["prompt"])
    _refuse_bos(tokens, tokenizer, f"{where}: the prompt")
    return tokens, False


def _from_chat(value: dict[str, Any], where: str, tokenizer: Any) -> tuple[list[int], bool]:
    if not tokenizer.chat_template:
        raise RecordError(f"{where}: messages need a chat template, and the tokenizer has none")
    given = _template_arguments(value, where, tokenizer)

    def written(**more: Any) -> str:
        try:
            return tokenizer.apply_chat_template(
                value["messages"], add_generation_prompt=True, tokenize=False, **given, **more
            )
        except Exception as e:  # a template is a program: it raises what it likes
            raise RecordError(f"{where}: the chat template refused the messages: {e}") from e

    text = written()
    own = inspect.signature(tokenizer.apply_chat_template).parameters
    for name in value.keys() - {"messages", *_NAMES, *_TEMPLATE_NAMES}:
        if name in own or written(**{name: value[name]}) != text:
            raise RecordError(
                f"{where}: {name} is an argument of the chat template: give it in"
                " chat_template_kwargs, or leave it out"
            )
    tokens = tokenizer.encode(text, add_special_tokens=False)  # the template writes its own
    _refuse_bos(tokens, tokenizer, f"{where}: the chat template's text")
    return tokens, _is_dated(written, text)


def _is_dated(written: Callable[..., str], text: str) -> bool:
    """Whether a template wrote the date: it calls `strftime_now`, which None is not."""
    try:
        return written(strftime_now=None) != text
    except RecordError:
        return True


def _template_arguments(value: dict[str, Any], where: str, tokenizer: Any) -> dict[str, Any]:
    """What the chat template is given beside the messages; each must be something it reads."""
    given = {name: value[name] for name in ("tools", "documents") if value.get(name)}
    given |= value.get("chat_template_kwargs") or {}
    template = tokenizer.get_chat_template(tools=given.get("tools")) if given else ""
    for name in given:
        if not re.search(rf"\b{re.escape(name)}\b", template):
            raise RecordError(f"{where}: the chat template does not read {name}")
    return given


def _refuse_bos(tokens: list[int], tokenizer: Any, what: str) -> None:
    """Refuse a text that has the BOS token that is put before it."""
    if _doubles_bos(tokens, tokenizer):
        raise RecordError(
            f"{what} begins with two BOS tokens ({tokenizer.bos_token}): leave out the one in the"
            " text"
        )


def _from_ids(value: dict[str, Any], where: str, tokenizer: Any) -> tuple[list[int], bool]:
    return value["prompt_tokens"], False


_CHECKS = {"prompt": _check_text, "messages": _check_chat, "prompt_tokens": _check_ids}
_CUT = {"prompt": _from_text, "messages": _from_chat, "prompt_tokens": _from_ids}
