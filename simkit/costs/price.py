"""What a step did, and what it takes; see `simkit.costs.base.Times.price`."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np


class StepWork(NamedTuple):
    """What steps did: arrays that broadcast to any shape S, those of draft passes to (*S, P).

    Attributes:
        context: known tokens before the step, prompt and output.
        verified: tokens in the target's pass, γ + 1.
        draft_tokens: in each pass of the draft model; 0 where there is none.
        draft_context: known tokens before each of them: prompt, output, and draft so far.
        meanwhile: which of them run beside the target's pass, as in PEARL; those come last.
        communicates: whether draft and target run at once.
        from_model: whether a draft model drafts at all, also where it made no pass in a step. If
            not, a step pays for one proposal.
        policy: under which name costs have the time of a decision, `Policy.timed_as`.
        decisions: of the policy.
        head: the learned head that it calls; "" if none.
        head_calls: of the head.

    >>> from numpy import array
    >>> two = {"draft_tokens": array([1, 1]), "draft_context": array([100, 101])}
    >>> work = simkit.costs.StepWork(context=100, verified=3, **two)
    >>> float(simkit.costs.Linear(draft_s=1, target_s=10).price(work).total_s)
    12.0
    """

    context: np.ndarray | int
    verified: np.ndarray | int = 1
    draft_tokens: np.ndarray = np.zeros(0, np.int64)
    draft_context: np.ndarray = np.zeros(0, np.int64)
    meanwhile: np.ndarray | bool = False
    communicates: np.ndarray | bool = False
    from_model: bool = True
    policy: str = ""
    decisions: np.ndarray | int = 0
    head: str = ""
    head_calls: np.ndarray | int = 0


class StepSeconds(NamedTuple):
    """Seconds of the parts of steps, shape S each; they sum to the step's time.

    Attributes:
        draft_s: draft passes, and what a step pays the draft once. Of those beside the target's
            pass only what they take longer than it.
        verify_s: the target's pass.
        policy_s: decisions and head calls.
        overhead_s: outside of these, communication included where draft and target run at once.

    >>> simkit.costs.StepSeconds(draft_s=3.0, verify_s=10.0, policy_s=0.0, overhead_s=0.5).total_s
    13.5
    """

    draft_s: np.ndarray
    verify_s: np.ndarray
    policy_s: np.ndarray
    overhead_s: np.ndarray

    @property
    def total_s(self) -> np.ndarray:
        """All parts together."""
        return self.draft_s + self.verify_s + self.policy_s + self.overhead_s
