"""A probability threshold that follows the acceptance rate (Draft&Verify)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from simkit.policies.arguments import real_number, whole_number
from simkit.policies.base import Outcome, Row, Slots, State
from simkit.policies.confidence import ByProbability
from simkit.policies.registry import register


def begin(params: Any, sequence: int) -> State:
    """The state is the threshold, and r, the smoothed acceptance rate."""
    return params.threshold, 0.0


def trips(params: Any, state: State, depth: int, row: Row) -> tuple[bool, State]:
    """The probability of the drafted token against the threshold of the moment."""
    return row[0] < state[0], state


def update(params: Any, state: State, outcome: Outcome) -> State:
    """Raise the threshold where r is below its target, else lower it; both are smoothed."""
    threshold, rate = state
    if outcome.drafted == 0:
        return threshold, rate
    share = outcome.accepted / outcome.drafted
    rate = params.beta1 * rate + (1.0 - params.beta1) * share
    if rate < params.target:
        wanted = threshold + params.epsilon
    elif outcome.drafted == params.max_draft:
        return threshold, rate
    else:
        wanted = threshold - params.epsilon
    return params.beta2 * threshold + (1.0 - params.beta2) * wanted, rate


@register
@dataclass(frozen=True)
class DraftVerify(ByProbability):
    """Stop if the draft's probability of the drafted token is below a threshold th that adapts.

    After a step r = beta1·r + (1 - beta1)·(a/γ), where a of γ tokens were accepted. Then
    th' = th + epsilon if r < target, else th - epsilon; and th = beta2·th + (1 - beta2)·th'. If
    r >= target and γ = max_draft, th stays, because a lower one could not have drafted more.

    The draft sampled the token with this probability. If the draft takes its likeliest token, it is
    the probability at temperature 1.

    Tripping token: kept. Score: of the distribution that the token was drawn from, no lag. State:
    th, and r from 0, until the sequence ends; an empty draft changes neither. Feedback: γ is the
    actual number of drafted tokens, also if the budget or an EOS cut the draft.
    Source: the public code of Zhang et al. 2024, "Draft & Verify" (self-speculative decoding),
    `decoding.py`, whose thresholds start at 0.8 (greedy) and 0.5 (sampled). It compares the
    probability at temperature 1 under sampling too.

    Attributes:
        threshold: th of a sequence's first step, in [0, 1].
        target: acceptance rate that th steers to, in [0, 1].
        beta1: weight of the old r, in [0, 1].
        beta2: weight of the old th, in [0, 1].
        epsilon: distance of th' from th, >= 0.
        max_draft: the longest draft, in tokens; 8 as in the public code.

    Raises:
        PolicyError: an argument is out of range.
    """

    threshold: float = real_number(0.6, 0, 1)
    target: float = real_number(0.9, 0, 1)
    beta1: float = real_number(0.5, 0, 1)
    beta2: float = real_number(0.9, 0, 1)
    epsilon: float = real_number(0.01, 0)
    max_draft: int = whole_number(8)

    name = "draft_verify"
    slots = Slots(begin=begin, trips=trips, update=update)
