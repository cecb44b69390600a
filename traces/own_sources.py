"""The sources of these packages: what belongs to them, and a name for all they say."""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

_HOME = Path(__file__).parent.parent
SOURCES = tuple(_HOME / name for name in ("traces", "simkit", "analysis"))


def is_own(thing: Any) -> bool:
    """Whether a function or a class is what one of these packages has under its name.

    What only claims to be, whatever its `__module__`, is not.

    Args:
        thing: a class, or a function in Python, not as numba has compiled it.
    """
    module = sys.modules.get(getattr(thing, "__module__", None) or "")
    named = None if module is None else vars(module).get(thing.__qualname__)
    if module is None or getattr(named, "py_func", named) is not thing:  # numba's, or itself
        return False
    if isinstance(thing, type):
        return is_inside(getattr(module, "__file__", None) or "")
    return thing.__globals__ is vars(module) and is_inside(thing.__code__.co_filename)


def digest() -> str | None:
    """A hash of all sources as they are now; None where they cannot be read.

    So it is of packages that lie in an archive, or were installed without their sources.
    """
    found = hashlib.sha256()
    try:
        for folder in SOURCES:
            sources = list(_sources(str(folder)))
            if not sources:
                return None
            for file in sources:
                with open(file, "rb") as stream:
                    content = stream.read()
                found.update(f"{file} {len(content)} ".encode())
                found.update(content)
    except OSError:
        return None
    return found.hexdigest()


@cache
def first_digest() -> str | None:
    """The first `digest` of this process."""
    return digest()


def _sources(folder: str) -> Iterator[str]:
    for entry in sorted(os.scandir(folder), key=lambda entry: entry.name):
        if entry.is_dir(follow_symlinks=False):
            yield from _sources(entry.path)
        elif entry.name.endswith(".py"):
            yield entry.path


def is_inside(file: str) -> bool:
    """Whether a file is one of these packages'."""
    return any(file.startswith(f"{folder}{os.sep}") for folder in SOURCES)
