"""Replay draft-length policies on recorded speculative decoding."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from simkit import costs, policies
    from simkit.simulator import Result, replay

__all__ = ["Result", "costs", "policies", "replay"]

_MODULES = ("costs", "policies")


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return importlib.import_module(f"simkit.{name}")
    if name in __all__:
        return getattr(importlib.import_module("simkit.simulator"), name)
    raise AttributeError(f"module 'simkit' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
