"""Cost models: what a step takes, in seconds."""

from simkit.costs.atlas import Atlas
from simkit.costs.base import CostModel, Times
from simkit.costs.linear import Linear
from simkit.costs.measured import Measured
from simkit.costs.price import StepSeconds, StepWork
from simkit.costs.registry import catalogue, names, parse, register
from simkit.costs.roofline import Roofline
from simkit.costs.threshold import rejection_threshold
from simkit.errors import CostError

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
