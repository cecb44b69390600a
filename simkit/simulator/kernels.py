"""Compiling with numba, and where compiled code is kept between processes.

Numba's cache looks only at the file of the function it compiled, not at the files of the functions
that one calls. So the code lies in a folder named after all sources it is made from.
"""

from __future__ import annotations

import hashlib
import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import numba
from numba import njit

_PACKAGE = Path(__file__).parent.parent


def compiled(function: Callable, keep: bool = True) -> Callable:
    """Compile without the GIL (decorator); kept on disk if any folder can be written."""
    folder = _folder() if keep else None
    before = numba.config.CACHE_DIR  # type: ignore[attr-defined]
    numba.config.CACHE_DIR = str(folder or before)  # type: ignore[attr-defined]
    try:
        return njit(cache=folder is not None, nogil=True)(function)
    finally:
        numba.config.CACHE_DIR = before  # type: ignore[attr-defined]


def compiled_part(function: Callable) -> Callable:
    """Compile as a part of the functions that call it (decorator)."""
    return njit(nogil=True)(function)


def _folder() -> Path | None:
    """The first folder that can be written: numba's, the user's, the package's own, or none."""
    name = f"simkit-{_fingerprint()}"
    for base in _bases():
        folder = base / name
        try:
            folder.mkdir(parents=True, exist_ok=True)
            tempfile.TemporaryFile(dir=folder).close()
        except OSError:
            continue
        return folder
    return None


def _bases() -> list[Path]:
    bases = [_PACKAGE / "__pycache__"]
    home = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    if os.path.isabs(home):
        bases.insert(0, Path(home))
    if numba.config.CACHE_DIR:  # type: ignore[attr-defined]
        bases.insert(0, Path(numba.config.CACHE_DIR))  # type: ignore[attr-defined]
    return bases


def _fingerprint() -> str:
    digest = hashlib.sha256(f"{numba.__version__} {sys.version} {_PACKAGE}".encode())
    for folder in ("policies", "simulator"):
        for file in sorted((_PACKAGE / folder).glob("*.py")):
            digest.update(file.name.encode() + file.read_bytes())
    return digest.hexdigest()[:16]
