"""The user's cache folder, and how sizes are written."""

from __future__ import annotations

import os
import re
from pathlib import Path

_UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}
_UNITS |= {f"{unit}i": 2 ** (10 * k) for k, unit in enumerate("kmgt", 1)}


def cache_folder() -> Path:
    """Where what can be made again is kept, between processes; it need not exist yet.

    Raises:
        RuntimeError: the user has no home.
    """
    home = os.environ.get("XDG_CACHE_HOME", "")
    base = Path(home) if os.path.isabs(home) else Path.home() / ".cache"
    return base / "simkit"


def parse_size(text: str) -> int:
    """Bytes of a size such as "4GB" or "2GiB".

    Raises:
        ValueError: it is none.
    """
    found = re.fullmatch(r"(\d{1,15}(?:\.\d{1,15})?)\s*([kmgt]?i?)b?", text.lower())
    if not found or found[2] not in _UNITS:
        raise ValueError(f"{text!r} is no size: write 4GB or 2GiB")
    return int(float(found[1]) * _UNITS[found[2]])
