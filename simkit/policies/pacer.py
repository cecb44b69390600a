"""Ask a head after each block of tokens whether to draft another (PACER, Algorithm 1)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

from simkit.policies.arguments import (
    as_it_is,
    head_named,
    one_of,
    real_number,
    true_or_false,
    whole_number,
)
from simkit.policies.base import (
    MAX_DRAFT,
    NumericPolicy,
    Outcome,
    Row,
    Slots,
    State,
)
from simkit.policies.registry import register

_CRITERION = {
    "mean": lambda criterion: criterion == "mean",
    "last": lambda criterion: criterion == "last",
    "nothing": lambda criterion: math.inf if criterion == "any" else 0.0,  # before a block's tokens
}


def begin(params: Any, sequence: int) -> State:
    """The state is t, and of the block its score so far and how many tokens it still lacks."""
    return params.threshold, params.nothing, params.block


def trips(params: Any, state: State, depth: int, row: Row) -> tuple[bool, State]:
    """Take in one score; after a whole block, compare and raise t if drafting goes on."""
    threshold, score, lacking = state
    if params.mean:
        score += row[0]
    else:
        score = row[0] if params.last else min(score, row[0])
    if lacking > 1:
        return False, (threshold, score, lacking - 1)
    if params.mean:
        score /= params.block
    if score <= threshold:
        return True, (threshold, params.nothing, params.block)
    return False, (threshold * params.growth, params.nothing, params.block)


def update(params: Any, state: State, outcome: Outcome) -> State:
    """The next draft begins with a block of its own, and with the first t unless that is kept."""
    return state[0] if params.carry else params.threshold, params.nothing, params.block


def calls(params: Any, drafted: Any) -> Any:
    """One for each whole block."""
    return drafted // params.block


@register
@dataclass(frozen=True)
class Pacer(NumericPolicy):
    """After each block of tokens, stop if the mean of the head's scores in it is <= t; else t *= ρ.

    The head reads a token's depth inside the draft, so its scores are by start and depth. A block
    that the budget, an EOS or max_draft cuts short is neither scored nor charged.

    Tripping token: kept, and so is the whole block. Score: of the tokens themselves, no lag; their
    mean is summed from the block's first token on, in float64. State: t, back to `threshold` in
    each step; with carry_threshold, the literal reading of Algorithm 1, until the sequence ends.
    Feedback: none.
    Source: PACER, Algorithm 1; Table 7 for the criteria "any" (a score <= t) and "last" (the last
    score <= t), where its text says below t; Table 10 for block, threshold and growth (HumanEval).

    Attributes:
        block: b, tokens between two calls of the head, >= 1.
        threshold: t of the first block, >= 0.
        growth: ρ, >= 0.
        criterion: "mean", "any" or "last".
        carry_threshold: whether t keeps growing over the steps of a sequence.
        head: name of the scores to read; "" means the policy's own name.
        max_draft: the longest draft, in tokens.

    Raises:
        PolicyError: an argument is out of range.
    """

    block: int = whole_number(4, 1)
    threshold: float = real_number(0.7, 0)
    growth: float = real_number(1.05, 0)
    criterion: Literal["mean", "any", "last"] = one_of(
        "mean", ("mean", "any", "last"), numbers=_CRITERION
    )
    carry_threshold: bool = true_or_false(False, {"carry": as_it_is})
    head: str = head_named("pacer")
    max_draft: int = whole_number(MAX_DRAFT)

    name = "pacer"
    slots = Slots(begin=begin, trips=trips, update=update, calls=calls)
