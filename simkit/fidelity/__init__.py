"""Predictions held against live runs: how wrong is a replay on the clock?"""

from simkit.fidelity.comparison import Comparison, PolicyPair, PolicyRow, compare
from simkit.fidelity.errors import refits
from simkit.fidelity.judge import Judgement, judge
from simkit.fidelity.ladder import Ladder
from simkit.fidelity.run import Plan, measure, split

__all__ = [
    "Comparison",
    "Judgement",
    "Ladder",
    "Plan",
    "PolicyPair",
    "PolicyRow",
    "compare",
    "judge",
    "measure",
    "refits",
    "split",
]
