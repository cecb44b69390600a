"""What rules took on this machine, kept in the user's cache folder.

A rule is timed once. All later processes of the machine charge the same seconds, so that a command
that is given again prints the same numbers. A file belongs to a rule's code, the values that this
reads, the machine, and the versions of Python and numpy; who comes first writes it.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import platform
import sys
import uuid
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

import numpy as np

from simkit.policies import FunctionPolicy, NumericPolicy, Policy
from simkit.policies.surroundings import by_value, functions_of, is_by_value, plain, values_read
from traces.cache import cache_folder


def key_of(policy: Policy) -> str:
    """A name for a rule on this machine; "" if another process would not know it again.

    Settings of one policy share it. A rule that reads an object of its own process, as a list, has
    none.
    """
    made = policy.function if isinstance(policy, FunctionPolicy) else type(policy)
    functions = functions_of(made)
    if not functions:
        return ""
    if isinstance(policy, NumericPolicy):
        functions += [part for slot in vars(policy.slots).values() for part in functions_of(slot)]
    digest = hashlib.sha256(repr(_machine()).encode())
    digest.update(policy.timed_as.encode())
    for function in functions:
        digest.update(f"{function.__module__}.{function.__qualname__}".encode())
        digest.update(b"".join(_content(function.__code__)))
    for name, value in values_read(functions):
        value = plain(value)
        if isinstance(value, FunctionType):
            digest.update(b"".join(_content(value.__code__)))
        elif is_by_value(value):
            digest.update(f"{name} {by_value(value)!r}".encode())
        elif named := getattr(value, "__qualname__", getattr(value, "__name__", "")):
            digest.update(f"{name} {named}".encode())
        else:
            return ""
    return digest.hexdigest()


def kept(key: str) -> float | None:
    """Seconds of a decision that were kept under this key; None if there are none."""
    try:
        found = json.loads(_file(key).read_text("utf-8"))
        seconds = found["seconds"]
    except (OSError, RuntimeError, ValueError, TypeError, KeyError):
        return None
    return seconds if isinstance(seconds, float) and 0 <= seconds < math.inf else None


def keep(key: str, name: str, seconds: float) -> float | None:
    """Keep seconds of a decision, unless others are kept already.

    Args:
        key: of the rule.
        name: of the rule, for readers of the file.
        seconds: that were measured.

    Returns:
        The seconds that are kept now; None if nothing can be.
    """
    with suppress(OSError, RuntimeError):
        file = _file(key)
        file.parent.mkdir(parents=True, exist_ok=True)
        passing = file.with_name(f"{file.name}.{uuid.uuid4().hex[:16]}.tmp")
        passing.write_text(json.dumps({"rule": name, "seconds": seconds}), "utf-8")
        try:
            os.link(passing, file)  # fails if there is one, at whatever moment that came
        except OSError:
            if kept(key) is None:  # it is damaged, or the disk has no links
                os.replace(passing, file)
        passing.unlink(missing_ok=True)
    return kept(key)


def _file(key: str) -> Path:
    return cache_folder() / "rules" / f"{key[:32]}.json"


def _machine() -> tuple[str, ...]:
    where = platform.node(), platform.machine(), platform.processor()
    return (*where, str(os.cpu_count()), sys.version, np.__version__)


def _content(code: CodeType) -> Iterator[bytes]:
    """What a function does, the same in every process."""
    parts = [const for const in code.co_consts if isinstance(const, CodeType)]
    rest = [const for const in code.co_consts if not isinstance(const, CodeType)]
    yield code.co_code
    yield repr((code.co_names, code.co_varnames, [_in_order(const) for const in rest])).encode()
    for part in parts:
        yield from _content(part)


def _in_order(const: Any) -> Any:
    """A constant; the order of a set's members differs between processes."""
    return sorted(map(repr, const)) if isinstance(const, frozenset) else const
