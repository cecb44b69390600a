"""Ask a head after each block of tokens whether to draft another (PACER, Algorithm 1)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, NamedTuple

from simkit.policies.arguments import check_flag, check_real, check_whole, check_word, settle_head
from simkit.policies.base import (
    MAX_DRAFT,
    NumericPolicy,
    Outcome,
    Row,
    Slots,
    State,
    score_column,
)
from simkit.policies.registry import register
from traces.sampler import Sampler


class PacerParams(NamedTuple):
    """See `Pacer`; `nothing` is what a block's score is before its first token."""

    block: int
    threshold: float
    growth: float
    mean: bool
    last: bool
    nothing: float
    carry: bool
    max_draft: int


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

    The head is told a token's depth inside the draft, so its scores are by start and depth. A
    block that the budget, an EOS or max_draft cuts short is neither scored nor charged.

    Tripping token: kept, and so is the whole block. Score: of the tokens themselves, no lag; their
    mean is a sum from the block's first token on, in float64. State: t, back to `threshold` in
    each step; with carry_threshold, as Algorithm 1 reads literally, until the sequence ends.
    Feedback: none.
    Source: PACER, Algorithm 1; Table 7 for the criteria "any" (a score <= t) and "last" (the last
    score <= t), where its text says below t; Table 10 for block, threshold and growth (HumanEval).

    Attributes:
        block: b, tokens between two calls of the head, >= 1.
        threshold: t of the first block, >= 0.
        growth: ρ, >= 0.
        criterion: "mean", "any" or "last".
        carry_threshold: whether t grows on over the steps of a sequence.
        head: whose scores are read; "" means the policy's own name.
        max_draft: see `Policy`.

    Raises:
        PolicyError: an argument is out of range.
    """

    block: int = 4
    threshold: float = 0.7
    growth: float = 1.05
    criterion: Literal["mean", "any", "last"] = "mean"
    carry_threshold: bool = False
    head: str = "pacer"
    max_draft: int = MAX_DRAFT

    name = "pacer"
    slots = Slots(begin=begin, trips=trips, update=update, calls=calls)

    def __post_init__(self) -> None:
        check_whole(self, "block", 1)
        check_real(self, "threshold", 0)
        check_real(self, "growth", 0)
        check_word(self, "criterion", ("mean", "any", "last"))
        check_flag(self, "carry_threshold")
        settle_head(self)
        check_whole(self, "max_draft", 0)

    @cached_property
    def params(self) -> PacerParams:
        """See `NumericPolicy`."""
        return PacerParams(
            self.block,
            float(self.threshold),
            float(self.growth),
            self.criterion == "mean",
            self.criterion == "last",
            math.inf if self.criterion == "any" else 0.0,
            self.carry_threshold,
            self.max_draft,
        )

    def columns(self, sampler: Sampler) -> tuple[str, ...]:
        """See `Policy`."""
        return (score_column(self.head),)
