"""Stop after a token of little probability, at a threshold fitted to what was accepted so far."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from simkit.policies.base import (
    NumericPolicy,
    Outcome,
    Row,
    Slots,
    State,
    check_real,
    check_whole,
)
from simkit.policies.registry import register
from traces.sampler import Sampler


class ConfidenceAdaptiveParams(NamedTuple):
    """See `ConfidenceAdaptive`."""

    threshold: float
    max_draft: int


def begin(params: Any, sequence: int) -> State:
    """The threshold, the number of distinct probabilities, of matches, of misses, and the pairs.

    Rows of the pairs: probabilities, ascending; how often each one matched; how often it did not.
    Behind them, in the first row, lie the probabilities of the draft at hand.
    """
    return params.threshold, 0, 0.0, 0.0, np.empty((3, 64))


def trips(params: Any, state: State, depth: int, row: Row) -> tuple[bool, State]:
    """The probability of the drafted token, which is kept, against the threshold."""
    threshold, size, matched, missed, pairs = state
    at = size + depth - 1
    if at == pairs.shape[1]:
        wider = np.empty((3, 2 * at))
        wider[:, :at] = pairs
        pairs = wider
    pairs[0, at] = row[0]
    return row[0] < threshold, (threshold, size, matched, missed, pairs)


def update(params: Any, state: State, outcome: Outcome) -> State:
    """Sort the pairs of the step in, then fit the threshold.

    The costs are computed in the order of operations of the source, so that rounding settles ties
    as it does there. From the lowest threshold up, so that the sweep can end where the false
    negatives alone cost more than the best threshold.
    """
    threshold, size, matched, missed, pairs = state
    if threshold == 0.0:
        return state
    first = size
    for j in range(min(outcome.accepted + 1, outcome.drafted)):
        probability = pairs[0, first + j]
        at = np.searchsorted(pairs[0, :size], probability)
        if at == size or pairs[0, at] != probability:
            for k in range(size, at, -1):
                pairs[0, k] = pairs[0, k - 1]
                pairs[1, k] = pairs[1, k - 1]
                pairs[2, k] = pairs[2, k - 1]
            pairs[0, at], pairs[1, at], pairs[2, at] = probability, 0.0, 0.0
            size += 1
        if j < outcome.accepted:
            pairs[1, at] += 1.0
            matched += 1.0
        else:
            pairs[2, at] += 1.0
            missed += 1.0
    if matched + missed <= 5.0 or matched == 0.0 or missed == 0.0:
        return threshold, size, matched, missed, pairs
    tps, fps, best = matched, missed, math.inf
    for k in range(size):
        bend = pairs[1, k] != pairs[1, k - 1] or pairs[2, k] != pairs[2, k - 1]
        if k == 0 or k == size - 1 or bend:
            fnr = 1.0 - tps / matched
            cost = fps / missed + 3.0 * fnr
            if cost <= best:
                best, threshold = cost, pairs[0, k]
            if 3.0 * fnr > best:
                break
        tps -= pairs[1, k]
        fps -= pairs[2, k]
    return threshold, size, matched, missed, pairs


@register
@dataclass(frozen=True)
class ConfidenceAdaptive(NumericPolicy):
    """`Confidence`, whose threshold is fitted after each step."""

    threshold: float = 0.4
    max_draft: int = 20

    name = "confidence_adaptive"
    slots = Slots(begin=begin, trips=trips, update=update)

    def __post_init__(self) -> None:
        check_real(self, "threshold", 0, 1)
        check_whole(self, "max_draft", 0)

    @cached_property
    def params(self) -> ConfidenceAdaptiveParams:
        """See `NumericPolicy`."""
        return ConfidenceAdaptiveParams(float(self.threshold), self.max_draft)

    def columns(self, sampler: Sampler) -> tuple[str, ...]:
        """See `Policy`."""
        return ("draft_prob_raw" if sampler.q_temperature == 0 else "draft_prob",)
