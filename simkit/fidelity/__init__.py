"""Predictions held against live runs: how wrong is a replay on the clock?"""

from simkit.fidelity.comparison import Comparison, Pair, Row, compare
from simkit.fidelity.errors import refits
from simkit.fidelity.judge import Judgement, judge
from simkit.fidelity.ladder import Ladder
from simkit.fidelity.run import Plan, measure, split
from simkit.fidelity.subset import select

__all__ = [
    "Comparison",
    "Judgement",
    "Ladder",
    "Pair",
    "Plan",
    "Row",
    "compare",
    "judge",
    "measure",
    "refits",
    "select",
    "split",
]
