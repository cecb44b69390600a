"""When in the text a replay spends its time."""

from __future__ import annotations

import numpy as np

from analysis.replays import Replays
from analysis.stats import waste
from simkit.policies import Policy
from simkit.simulator.step_costs import PARTS

STEP_PARTS = tuple(part for part in PARTS if part != "prefill_s")


def seconds(
    policy: Policy, at: Replays, edges: np.ndarray, parts: tuple[str, ...] = PARTS
) -> np.ndarray:
    """Each prompt's seconds between positions, a step's shared evenly over what it emits.

    Args:
        policy: that is replayed.
        at: of a trace with times.
        edges: (B + 1,) ascending positions, see `waste.by_position`.
        parts: of the time that count; or "baseline_s", that of the target alone.

    Returns:
        (S, B) float64.
    """
    at.study.make_room()
    found = []
    for steps, taken in at.run(policy).pieces():
        assert taken is not None  # the trace has times
        total_s = np.sum([taken[part] for part in parts], axis=0)
        found.append(waste.by_position(steps, total_s, edges))
    return np.concatenate(found)
