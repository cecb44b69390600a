"""Predictions held against live runs: how wrong is a replay on the clock?"""

from simkit.fidelity.comparison import Comparison, Row, compare
from simkit.fidelity.ladder import Ladder
from simkit.fidelity.run import Plan, Runs, measure, split
from simkit.fidelity.subset import select

__all__ = ["Comparison", "Ladder", "Plan", "Row", "Runs", "compare", "measure", "select", "split"]
