"""Cost models: what a step takes, in seconds."""

from simkit.costs.base import CostModel, Times
from simkit.costs.linear import Linear
from simkit.costs.measured import Measured
from simkit.costs.registry import names, parse, register
from simkit.errors import CostError

__all__ = ["CostError", "CostModel", "Linear", "Measured", "Times", "names", "parse", "register"]
