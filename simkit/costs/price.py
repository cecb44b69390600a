"""What a step did, and what it takes: the straightforward version of every price.

Tables that give the same faster, for whole traces, are in `simkit.costs.drafting`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from simkit.costs.base import Times


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
    """

    draft_s: np.ndarray
    verify_s: np.ndarray
    policy_s: np.ndarray
    overhead_s: np.ndarray

    @property
    def total_s(self) -> np.ndarray:
        """All parts together."""
        return self.draft_s + self.verify_s + self.policy_s + self.overhead_s


def price_of(times: Times, work: StepWork) -> StepSeconds:
    """See `Times.price`."""
    verify_s = times.verify(np.asarray(work.verified), np.asarray(work.context))
    alone_s, beside_s = _drafting(times, work)
    overhead_s = times.overhead() + np.where(work.communicates, times.communication(), 0.0)
    policy_s = np.asarray(work.decisions) * (times.policy(work.policy) if work.policy else 0.0)
    head_s = np.asarray(work.head_calls) * (times.head(work.head) if work.head else 0.0)
    longer_s = np.where(beside_s > 0, np.maximum(beside_s - verify_s, 0.0), 0.0)
    parts = np.broadcast_arrays(alone_s + longer_s, verify_s, policy_s + head_s, overhead_s)
    return StepSeconds(*(np.array(part, np.float64) for part in parts))


def _drafting(times: Times, work: StepWork) -> tuple[np.ndarray, np.ndarray]:
    """Seconds of the draft before the target's pass, and beside it.

    What a step pays the draft once goes with the first of its passes.
    """
    context = np.asarray(work.context)
    tokens, known, beside = np.broadcast_arrays(
        work.draft_tokens, work.draft_context, work.meanwhile
    )
    each_s = np.zeros(tokens.shape)
    if tokens.any():  # a cost may know of no draft model
        each_s = np.where(tokens > 0, times.draft_block(np.maximum(tokens, 1), known), 0.0)
    alone = (tokens > 0) & ~beside
    no_model_s = np.full(context.shape, times.proposal())
    once_s = times.draft_step(context) if work.from_model else no_model_s
    later = beside.any(-1) & ~alone.any(-1)
    alone_s = np.where(beside, 0.0, each_s).sum(-1) + np.where(later, 0.0, once_s)
    return alone_s, np.where(beside, each_s, 0.0).sum(-1) + np.where(later, once_s, 0.0)
