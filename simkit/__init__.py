"""Replay draft-length policies on recorded speculative decoding."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from simkit import costs, policies, serving
    from simkit.recording import record
    from simkit.serving import Served, serve
    from simkit.simulator import Result, replay
    from simkit.sweeps import Sweep, Tuned, sweep, tune

__all__ = [
    "Result",
    "Served",
    "Sweep",
    "Tuned",
    "costs",
    "policies",
    "record",
    "replay",
    "serve",
    "serving",
    "sweep",
    "tune",
]

_MODULES = ("costs", "policies", "serving")
_HOMES = {
    "record": "recording",
    "Served": "serving",
    "Sweep": "sweeps",
    "Tuned": "sweeps",
    "serve": "serving",
    "sweep": "sweeps",
    "tune": "sweeps",
}


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return importlib.import_module(f"simkit.{name}")
    if name in __all__:
        home = importlib.import_module(f"simkit.{_HOMES.get(name, 'simulator')}")
        return getattr(home, name)
    raise AttributeError(f"module 'simkit' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
