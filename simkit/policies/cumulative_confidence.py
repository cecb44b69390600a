"""Stop where the draft as a whole has become improbable (tail pruning)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from simkit.errors import PolicyError
from simkit.policies.arguments import real_number, true_or_false, whole_number
from simkit.policies.base import MAX_DRAFT, Outcome, Row, Slots, State
from simkit.policies.confidence import ByProbability
from simkit.policies.registry import register
from traces.sampler import Sampler


def begin(params: Any, sequence: int) -> State:
    """The state is the draft's probability so far, and how many of its tokens are dropped."""
    return 1.0, 0


def trips(params: Any, state: State, depth: int, row: Row) -> tuple[bool, State]:
    """The product with this token's probability against the threshold."""
    product = state[0] * row[0]
    weak = product < params.threshold
    return weak, (product, 1 if weak and not params.keep else 0)


def proposed(params: Any, state: State, drafted: int) -> int:
    """All but a dropped token."""
    return drafted - state[1]


def update(params: Any, state: State, outcome: Outcome) -> State:
    """The next draft starts anew."""
    return 1.0, 0


@register
@dataclass(frozen=True)
class CumulativeConfidence(ByProbability):
    """Stop if the product of the draft's probabilities of its tokens so far is below the threshold.

    The draft sampled the tokens with these probabilities. If the draft takes its likeliest tokens,
    they are the probabilities at temperature 1.

    Tripping token: kept; dropped with keep=False, which is refused for sampled traces, because it
    would bias sampling. Score: of the distribution that the token was drawn from, no lag. State:
    the product, reset each step. Feedback: none.
    Source: pruning of a draft's tail by its path probability, as draft trees are pruned (EAGLE-2).

    Attributes:
        threshold: in [0, 1].
        keep: whether the token that brings the product below the threshold is sent to the target.
        max_draft: the longest draft, in tokens.

    Raises:
        PolicyError: an argument is out of range.
    """

    threshold: float = real_number(0.3, 0, 1)
    keep: bool = true_or_false(True)
    max_draft: int = whole_number(MAX_DRAFT)

    name = "cumulative_confidence"
    slots = Slots(begin=begin, trips=trips, proposed=proposed, update=update)

    def columns(self, sampler: Sampler) -> tuple[str, ...]:
        """See `Policy`."""
        if not (self.keep or sampler.greedy):
            raise PolicyError(
                f"{self}: dropping a token for its value biases sampling; needs a greedy trace"
            )
        return super().columns(sampler)
