"""Replay draft-length policies on recorded speculative decoding."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from simkit import costs, policies
    from simkit.simulator import Result, replay
    from simkit.sweeps import Sweep, Tuned, sweep, tune

__all__ = ["Result", "Sweep", "Tuned", "costs", "policies", "replay", "sweep", "tune"]

_MODULES = ("costs", "policies")
_SWEEPS = ("Sweep", "Tuned", "sweep", "tune")


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return importlib.import_module(f"simkit.{name}")
    if name in __all__:
        home = "simkit.sweeps" if name in _SWEEPS else "simkit.simulator"
        return getattr(importlib.import_module(home), name)
    raise AttributeError(f"module 'simkit' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
