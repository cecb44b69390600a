"""Stop after a token that the draft model gave little probability (Hugging Face transformers)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from simkit.policies.arguments import real_number, whole_number
from simkit.policies.base import NumericPolicy, Row, Slots, State
from simkit.policies.registry import register
from traces.sampler import Sampler


def trips(params: Any, state: State, depth: int, row: Row) -> tuple[bool, State]:
    """The probability of the drafted token against the threshold."""
    return row[0] < params.threshold, state


class ByProbability(NumericPolicy):
    """Reads the draft's probability of each of its tokens."""

    def columns(self, sampler: Sampler) -> tuple[str, ...]:
        """See `Policy`: that at temperature 1 where the draft takes its likeliest tokens."""
        return ("draft_prob_raw" if sampler.q_temperature == 0 else "draft_prob",)


@register
@dataclass(frozen=True)
class Confidence(ByProbability):
    """Stop if the draft's probability of the drafted token is below the threshold.

    The draft sampled the token with this probability. If the draft takes its likeliest token, it is
    the probability at temperature 1.

    Tripping token: kept. Score: of the distribution that the token was drawn from, no lag. State:
    none. Feedback: none.
    Source: `ConfidenceCriteria` of Hugging Face transformers 5 with its defaults. There the
    threshold adapts if scikit-learn is installed; here it does not (see `confidence_adaptive`).

    Attributes:
        threshold: in [0, 1].
        max_draft: the longest draft, in tokens; 20 as in transformers.

    Raises:
        PolicyError: an argument is out of range.
    """

    threshold: float = real_number(0.4, 0, 1)
    max_draft: int = whole_number(20)

    name = "confidence"
    slots = Slots(trips=trips)
