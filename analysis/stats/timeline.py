"""When each model works, from the steps of a replay."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from simkit.simulator.step_costs import PARTS, Charge
from simkit.steps.concurrent import ConcurrentSteps, drafting
from simkit.steps.steps import Steps


@dataclass(frozen=True, eq=False)
class Lanes:
    """The work of draft and target in each step; (N,) each. Time 0 is the end of the prefill.

    Attributes:
        begin_s: of the step, and of the draft's work.
        draft_s: how long the draft works, wherever the target works meanwhile.
        verify_begin_s: of the target's pass.
        verify_s: how long it takes.
        end_s: of the step.
        kept: draft tokens of the step that are accepted, in it or in the next one; int64.
    """

    begin_s: np.ndarray
    draft_s: np.ndarray
    verify_begin_s: np.ndarray
    verify_s: np.ndarray
    end_s: np.ndarray
    kept: np.ndarray


def lanes(steps: Steps, seconds: dict[str, np.ndarray], charge: Charge) -> Lanes:
    """Put the steps of a policy on a clock, each sequence's on its own.

    Draft and target of one device that share it (`pearl(colocated=true)`) are not told apart.

    Args:
        steps: of one policy.
        seconds: the parts of each step's time.
        charge: that gave them.
    """
    taken = np.sum([seconds[part] for part in PARTS if part != "prefill_s"], axis=0)
    before = np.append(0.0, np.cumsum(taken))
    begin_s = before[:-1] - np.repeat(before[steps.offsets[:-1]], steps.counts)
    if isinstance(steps, ConcurrentSteps):
        alone_s, meanwhile_s = charge.drafts(drafting(steps, charge.layout))
        draft_s = alone_s + meanwhile_s
        verify_begin_s = begin_s + alone_s
    else:
        draft_s = seconds["draft_s"]
        verify_begin_s = begin_s + draft_s + seconds["policy_s"]
    end_s = begin_s + taken
    return Lanes(begin_s, draft_s, verify_begin_s, seconds["verify_s"], end_s, kept(steps))


def kept(steps: Steps) -> np.ndarray:
    """Draft tokens of each step that are accepted, int64; they sum to the steps' `accepted`.

    Where draft and target work at the same time, the target checks the first token of a draft in
    the step that drafts it, and the others in the next one.
    """
    accepted = steps.accepted.astype(np.int64)
    if not isinstance(steps, ConcurrentSteps):
        return accepted
    earlier = np.minimum(accepted, steps.waiting)  # tokens that the step before left waiting
    alone = steps.alone > 0
    following = np.append(np.where(alone, 0, earlier)[1:], 0)
    following[steps.offsets[1:][steps.counts > 0] - 1] = 0
    return accepted - np.where(alone, 0, earlier) + following
