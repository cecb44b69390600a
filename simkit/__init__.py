"""Replay draft-length policies on recorded speculative decoding."""

from __future__ import annotations

import importlib
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from traces.did_you_mean import missing

if TYPE_CHECKING:
    from simkit import costs, policies, serving
    from simkit.attaching import attach
    from simkit.calibrating import calibrate
    from simkit.policies import policy
    from simkit.recording import record
    from simkit.serving import Served, serve
    from simkit.simulator import Result, replay
    from simkit.sweeps import Sweep, Tuned, sweep, tune

__all__ = [
    "Result",
    "Served",
    "Sweep",
    "Tuned",
    "attach",
    "calibrate",
    "costs",
    "policies",
    "policy",
    "record",
    "replay",
    "serve",
    "serving",
    "sweep",
    "tune",
]

_MODULES = ("costs", "policies", "serving")
_HOMES = {
    "attach": "attaching",
    "calibrate": "calibrating",
    "policy": "policies",
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
    if name == "__version__":
        return importlib.import_module("importlib.metadata").version("draft-simkit")
    if name.startswith("__"):  # asked by Python, of every module
        raise AttributeError(f"module 'simkit' has no attribute {name!r}")
    if name == "live" and find_spec("torch"):  # what needs torch is no name where it is missing
        return importlib.import_module("simkit.live")
    raise AttributeError(missing("module 'simkit'", name, __all__))


def __dir__() -> list[str]:
    return sorted([*__all__, "live"])
