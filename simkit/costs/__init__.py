"""Cost models: what a step takes, in seconds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from simkit.costs.base import CostModel, Times
from simkit.costs.price import StepSeconds, StepWork
from simkit.costs.registry import BUILT_IN, catalogue, names, parse, register
from simkit.costs.threshold import rejection_threshold
from simkit.errors import CostError
from traces.registry import attribute

if TYPE_CHECKING:
    from simkit.costs.atlas import Atlas
    from simkit.costs.linear import Linear
    from simkit.costs.measured import Measured
    from simkit.costs.roofline import Roofline

__all__ = [
    "Atlas",
    "CostError",
    "CostModel",
    "Linear",
    "Measured",
    "Roofline",
    "StepSeconds",
    "StepWork",
    "Times",
    "catalogue",
    "names",
    "parse",
    "register",
    "rejection_threshold",
]


def __getattr__(name: str) -> Any:
    return attribute(__name__, name, BUILT_IN.values())


def __dir__() -> list[str]:
    return sorted(__all__)
