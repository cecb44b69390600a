"""Compiling the replay: its code lies in a folder named after the sources of policies and loop."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from traces import kernels
from traces.kernels import compiled_part

__all__ = ["SOURCES", "compiled", "compiled_part"]

_PACKAGE = Path(__file__).parent.parent
SOURCES = (_PACKAGE / "policies", _PACKAGE / "simulator")


def compiled(function: Callable, keep: bool = True, made_for: str = "") -> Callable:
    """See `traces.kernels.compiled` (decorator)."""
    return kernels.compiled(function, keep, SOURCES, made_for=made_for)
