"""Stop after a token that the draft model gave little probability (Hugging Face transformers)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

from simkit.policies.arguments import check_real, check_whole
from simkit.policies.base import (
    NumericPolicy,
    Row,
    Slots,
    State,
)
from simkit.policies.registry import register
from traces.sampler import Sampler


class ConfidenceParams(NamedTuple):
    """See `Confidence`."""

    threshold: float
    max_draft: int


def trips(params: Any, state: State, depth: int, row: Row) -> tuple[bool, State]:
    """The probability of the drafted token against the threshold."""
    return row[0] < params.threshold, state


@register
@dataclass(frozen=True)
class Confidence(NumericPolicy):
    """Stop if the draft's probability of the drafted token is below the threshold.

    The probability is the one that the draft sampled with; where the draft takes its likeliest
    token, the one at temperature 1.

    Tripping token: kept. Score: of the distribution the token was drawn from, no lag. State: none.
    Feedback: none.
    Source: `ConfidenceCriteria` of Hugging Face transformers 5 with its defaults. Its threshold
    adapts by itself where scikit-learn is installed; this is the rule without that.

    Attributes:
        threshold: in [0, 1].
        max_draft: see `Policy`; 20 as in transformers.

    Raises:
        PolicyError: an argument is out of range.
    """

    threshold: float = 0.4
    max_draft: int = 20

    name = "confidence"
    slots = Slots(trips=trips)

    def __post_init__(self) -> None:
        check_real(self, "threshold", 0, 1)
        check_whole(self, "max_draft", 0)

    @cached_property
    def params(self) -> ConfidenceParams:
        """See `NumericPolicy`."""
        return ConfidenceParams(float(self.threshold), self.max_draft)

    def columns(self, sampler: Sampler) -> tuple[str, ...]:
        """See `Policy`."""
        return ("draft_prob_raw" if sampler.q_temperature == 0 else "draft_prob",)
