"""Predictions held against live runs: how wrong is a replay on the clock?"""

from simkit.fidelity.comparison import compare
from simkit.fidelity.errors import refits
from simkit.fidelity.judge import Judgement, judge
from simkit.fidelity.ladder import Ladder
from simkit.fidelity.results import FidelityResult, PolicyRow, RankedPair
from simkit.fidelity.run import LivePlan, measure, split
from simkit.fidelity.timing import calibrate

__all__ = [
    "FidelityResult",
    "Judgement",
    "Ladder",
    "LivePlan",
    "PolicyRow",
    "RankedPair",
    "calibrate",
    "compare",
    "judge",
    "measure",
    "refits",
    "split",
]
