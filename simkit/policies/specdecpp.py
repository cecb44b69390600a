"""Stop where a head expects a rejection by now (SpecDec++)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from simkit.errors import PolicyError
from simkit.policies.arguments import head_named, lag_of, real_number, whole_number
from simkit.policies.base import NumericPolicy, Outcome, Row, Slots, State
from simkit.policies.registry import register


def begin(params: Any, sequence: int) -> State:
    """The state is the predicted probability that all tokens so far are accepted."""
    return (1.0,)


def trips(params: Any, state: State, depth: int, row: Row) -> tuple[bool, State]:
    """Whether a rejection is likelier than the threshold; a lag leaves this token out."""
    product = state[0] * row[0]
    known = product if params.lag is None else state[0]
    return depth >= params.min_draft and 1.0 - known > params.threshold, (product,)


def update(params: Any, state: State, outcome: Outcome) -> State:
    """The next draft starts anew."""
    return (1.0,)


def calls(params: Any, drafted: Any) -> Any:
    """One after each token, but for the first with a lag: nothing is judged there."""
    return drafted if params.lag is None else drafted - (drafted > 0)


@register
@dataclass(frozen=True)
class SpecDecPP(NumericPolicy):
    """Stop when the predicted chance of a rejection, 1 - Π â, exceeds the threshold.

    â are the head's scores of the tokens drafted so far. At least min_draft tokens are drafted.

    Tripping token: kept. Score: of the token itself. With lag=1 it is of the token before: after
    token j the product is over tokens 1 to j - 1, and after the first token it is 1, without a call
    of the head. State: the product, reset each step. Feedback: none.
    Source: Huang et al. 2024, "SpecDec++"; threshold 0.3 and 2 to 20 tokens as in its public code,
    whose head reads the state behind the token before the one just drafted: lag=1.

    Attributes:
        threshold: in [0, 1].
        min_draft: tokens that are drafted whatever the head predicts, 0 to max_draft.
        max_draft: the longest draft, in tokens; 20 as in the public code.
        lag: 0 or 1.
        head: name of the scores to read, one for each row; "" means the policy's own name.

    Raises:
        PolicyError: an argument is out of range.
    """

    threshold: float = real_number(0.3, 0, 1)
    min_draft: int = whole_number(2)
    max_draft: int = whole_number(20)
    lag: int = lag_of(0)
    head: str = head_named("specdecpp")

    name = "specdecpp"
    slots = Slots(begin=begin, trips=trips, update=update, calls=calls)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.min_draft > self.max_draft:
            raise PolicyError(
                f"specdecpp: min_draft {self.min_draft} is above max_draft {self.max_draft}"
            )
