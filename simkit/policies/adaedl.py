"""Stop where an entropy bound on acceptance is low; the threshold adapts (AdaEDL)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

from simkit.policies.base import (
    MAX_DRAFT,
    NumericPolicy,
    Row,
    Slots,
    State,
    check_real,
    check_whole,
)
from simkit.policies.draft_verify import begin, check_feedback, update
from simkit.policies.registry import register
from traces.sampler import Sampler


class AdaEDLParams(NamedTuple):
    """See `AdaEDL`; `rests` is for the update, see `DraftVerifyParams`."""

    scale: float
    threshold: float
    target: float
    beta1: float
    beta2: float
    epsilon: float
    rests: bool
    max_draft: int


def trips(params: Any, state: State, depth: int, row: Row) -> tuple[bool, State]:
    """The bound against the threshold of the moment; an entropy rounded below 0 counts as 0."""
    return 1.0 - math.sqrt(max(params.scale * row[0], 0.0)) < state[0], state


@register
@dataclass(frozen=True)
class AdaEDL(NumericPolicy):
    """Stop if 1 - sqrt(scale·H(q)) < λ, with H the entropy of q at temperature 1, also if greedy.

    After a step r = beta1·r + (1 - beta1)·(a/γ); then λ' = λ + epsilon if r < target, else
    λ - epsilon, and λ = beta2·λ + (1 - beta2)·λ'.

    Tripping token: kept. Score: of the distribution the token was drawn from, no lag. State: λ,
    and r from 0, until the sequence ends; an empty draft changes neither. Feedback: γ is the
    actual number of drafted tokens.
    Source: Agrawal et al. 2024, "AdaEDL"; beta1, beta2 and epsilon as in Draft & Verify. The
    initial λ is ours: tune it.

    Attributes:
        scale: factor of the entropy, >= 0.
        threshold: λ of a sequence's first step, in [0, 1].
        target: acceptance rate that λ steers to, in [0, 1].
        beta1: weight of the old r, in [0, 1].
        beta2: weight of the old λ, in [0, 1].
        epsilon: how far λ' is from λ, >= 0.
        max_draft: see `Policy`.

    Raises:
        PolicyError: an argument is out of range.
    """

    scale: float = 0.2
    threshold: float = 0.3
    target: float = 0.9
    beta1: float = 0.5
    beta2: float = 0.9
    epsilon: float = 0.01
    max_draft: int = MAX_DRAFT

    name = "adaedl"
    slots = Slots(begin=begin, trips=trips, update=update)

    def __post_init__(self) -> None:
        check_real(self, "scale", 0)
        check_feedback(self)
        check_whole(self, "max_draft", 0)

    @cached_property
    def params(self) -> AdaEDLParams:
        """See `NumericPolicy`."""
        return AdaEDLParams(
            float(self.scale),
            float(self.threshold),
            float(self.target),
            float(self.beta1),
            float(self.beta2),
            float(self.epsilon),
            False,
            self.max_draft,
        )

    def columns(self, sampler: Sampler) -> tuple[str, ...]:
        """See `Policy`."""
        return ("draft_entropy",)
