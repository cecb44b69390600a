"""Stop where an entropy bound on acceptance is low; the threshold adapts (AdaEDL)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from simkit.errors import PolicyError
from simkit.policies.arguments import real_number, true_or_false, whole_number
from simkit.policies.base import (
    MAX_DRAFT,
    NumericPolicy,
    Outcome,
    Row,
    Slots,
    State,
)
from simkit.policies.registry import register


def begin(params: Any, sequence: int) -> State:
    """The state is λ, the smoothed acceptance rate r, and how many tokens are dropped, 0 or 1."""
    return params.threshold, params.first_rate, 0


def trips(params: Any, state: State, depth: int, row: Row) -> tuple[bool, State]:
    """1 - sqrt(scale * H) against λ, as scale * H against (1 - λ)²: a root takes long."""
    kept = 1.0 - state[0]
    low = kept < 0.0 or params.scale * row[0] > kept * kept
    stop = low and depth > params.min_draft
    if params.drops is None:  # asked once, when the loop is compiled
        return stop, state
    return stop, (state[0], state[1], 1 if stop else 0)


def proposed(params: Any, state: State, drafted: int) -> int:
    """All but a dropped token."""
    return drafted - state[2]


def update(params: Any, state: State, outcome: Outcome) -> State:
    """Raise λ where r is below its target, else lower it; both are smoothed."""
    threshold, rate = state[0], state[1]
    if outcome.proposed == 0:
        return threshold, rate, 0
    rate = params.beta1 * rate + (1.0 - params.beta1) * (outcome.accepted / outcome.proposed)
    wanted = threshold - params.epsilon
    if rate < params.target:
        wanted = threshold + params.epsilon
    elif params.rests and outcome.accepted == params.max_draft:
        wanted = threshold
    return params.beta2 * threshold + (1.0 - params.beta2) * wanted, rate, 0


@register
@dataclass(frozen=True)
class AdaEDL(NumericPolicy):
    """Stop if 1 - sqrt(scale·H(q)) < λ, where H(q) is the draft's entropy and λ adapts.

    The entropy is that at temperature 1, also under greedy decoding. After a step
    r = beta1·r + (1 - beta1)·(a/γ), where a of γ tokens were accepted. Then λ' = λ + epsilon if
    r < target, else λ - epsilon; and λ = beta2·λ + (1 - beta2)·λ'.

    Tripping token: kept. With keep=False it is dropped, but its pass is paid, since the entropy is
    known only after it; this does not bias sampling, because it depends on q, not on the drawn
    token. Score: of the distribution that the token was drawn from, no lag. State: λ, and r from
    first_rate, until the sequence ends; an empty draft changes neither. Feedback: γ is the actual
    number of tokens that were sent to the target.
    Source: Agrawal et al. 2024, "AdaEDL" (arXiv:2410.18351); beta1, beta2 and epsilon as in Draft &
    Verify. The paper sweeps the initial λ over 0.3-0.9: tune it. Two public re-implementations
    read its Algorithm 1 as `adaedl(rests=true, keep=false, min_draft=1, first_rate=0.9)`: λ
    changes by -epsilon only if fewer than max_draft tokens were accepted; the bound is checked
    before a token is drafted, and never for the first; r starts at the target (in one of the two,
    at the first step's rate). A third one lowers λ only after steps in which max_draft tokens were
    accepted, and starts with r = 0.

    Attributes:
        scale: factor of the entropy, >= 0.
        threshold: λ of a sequence's first step, in [0, 1].
        target: acceptance rate that λ steers to, in [0, 1].
        beta1: weight of the old r, in [0, 1].
        beta2: weight of the old λ, in [0, 1].
        epsilon: distance of λ' from λ, >= 0.
        first_rate: r before the first step, in [0, 1].
        rests: whether λ' is λ if r >= target and max_draft tokens were accepted.
        keep: whether the token that trips the rule is sent to the target.
        min_draft: number of tokens that are drafted without checking the bound, 0 to max_draft.
        max_draft: the longest draft, in tokens.

    Raises:
        PolicyError: an argument is out of range.
    """

    scale: float = real_number(0.2, 0)
    threshold: float = real_number(0.3, 0, 1)
    target: float = real_number(0.9, 0, 1)
    beta1: float = real_number(0.5, 0, 1)
    beta2: float = real_number(0.9, 0, 1)
    epsilon: float = real_number(0.01, 0)
    first_rate: float = real_number(0.0, 0, 1)
    rests: bool = true_or_false(False)
    keep: bool = true_or_false(True, {"drops": lambda keep: None if keep else True})
    min_draft: int = whole_number(0)
    max_draft: int = whole_number(MAX_DRAFT)

    name = "adaedl"
    slots = Slots(begin=begin, trips=trips, proposed=proposed, update=update)
    reads = ("draft_entropy",)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.min_draft > self.max_draft:
            raise PolicyError(
                f"adaedl: min_draft {self.min_draft} is above max_draft {self.max_draft}"
            )
