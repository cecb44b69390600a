"""Texts in JSON that sign themselves: a digest of all other fields stands beside them.

It tells of damage and of what was edited by hand, not of who wrote the text. Texts that were
written before there were signatures have none, and are read; `warn_unsigned` says so.
"""

from __future__ import annotations

import hashlib
import json
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from traces.errors import SimkitWarning


def digest(data: Mapping[str, Any]) -> str:
    """A sha256 of fields that JSON can hold, whatever their order and the spacing of the text."""
    return hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()


def warn_unsigned(file: str | Path, name: str) -> None:
    """Say that nothing would tell if a file without the field `name` had been altered."""
    message = f"{file}: is not signed ({name}), so changes to it are not noticed"
    warnings.warn(message, SimkitWarning, stacklevel=2)  # from one place: said once a file
