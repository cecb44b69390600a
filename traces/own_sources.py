"""The sources of these packages: what belongs to them, and a name for all they say."""

from __future__ import annotations

import os
import sys
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
        return _inside(getattr(module, "__file__", None) or "")
    return thing.__globals__ is vars(module) and _inside(thing.__code__.co_filename)


def _inside(file: str) -> bool:
    return any(file.startswith(f"{folder}{os.sep}") for folder in SOURCES)
