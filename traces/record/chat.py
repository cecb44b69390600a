"""What surrounds a chat: arguments of the template, a system prompt, and where a turn ends."""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from traces import reading
from traces.errors import RecordError

_TURN = "turn"  # what is said in a chat of one word, whose end is looked at


@dataclass(frozen=True)
class Chat:
    """What all chats of a recording are given.

    Attributes:
        arguments: of the template, where a line's own `chat_template_kwargs` do not name them.
        system: message that comes first, where a chat has none; "" for none.
    """

    arguments: Mapping[str, Any] = field(default_factory=dict)
    system: str = ""

    @classmethod
    def of(cls, arguments: str | None, system: str | None) -> Chat:
        """What the options say.

        Raises:
            RecordError: the arguments are no JSON object.
        """
        given = {}
        if arguments is not None:
            given = reading.parse_json(arguments, "--chat-template-kwargs", RecordError)
        if not isinstance(given, dict):
            raise RecordError("--chat-template-kwargs must be a JSON object")
        return cls(given, system or "")

    def complete(self, line: dict[str, Any]) -> dict[str, Any]:
        """A line with messages as the template is given it; another line as it is."""
        if "messages" not in line:
            return line
        own = line.get("chat_template_kwargs") or {}
        made = {**line, "chat_template_kwargs": {**self.arguments, **own}}
        if self.system and not any(one.get("role") == "system" for one in line["messages"]):
            made["messages"] = [{"role": "system", "content": self.system}, *line["messages"]]
        return made


def template_hash(tokenizer: Any) -> str | None:
    """sha256 of a tokenizer's chat template, or of several; None if it has none."""
    template = getattr(tokenizer, "chat_template", None)
    if not template:
        return None
    text = template if isinstance(template, str) else json.dumps(template, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def end_of_turn(tokenizer: Any) -> int | None:
    """The special token that the chat template puts behind an answer; None if there is none."""
    if not getattr(tokenizer, "chat_template", None):
        return None
    messages = [{"role": role, "content": _TURN} for role in ("user", "assistant")]
    try:
        text = tokenizer.apply_chat_template(messages, tokenize=False)
        behind = tokenizer.encode(text.rpartition(_TURN)[2].strip(), add_special_tokens=False)
    except Exception:  # a template is a program: it raises what it likes
        return None
    special = set(tokenizer.all_special_ids) | set(tokenizer.get_added_vocab().values())
    return behind[0] if behind and behind[0] in special else None


@contextmanager
def heard() -> Iterator[list[str]]:
    """What transformers warns of in its log, each line once; nothing of it is printed."""
    said: list[str] = []

    class Listener(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            line = " ".join(record.getMessage().split())
            if line not in said:
                said.append(line)

    logger, listener = logging.getLogger("transformers"), Listener(logging.WARNING)
    level, handlers, passes = logger.level, logger.handlers, logger.propagate
    logger.handlers, logger.propagate = [listener], False
    logger.setLevel(logging.WARNING)
    try:
        yield said
    finally:
        logger.handlers, logger.propagate = handlers, passes
        logger.setLevel(level)
