"""Stop after a token of little probability, at a threshold fitted to what was accepted so far."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from simkit.policies.arguments import real_number, whole_number
from simkit.policies.base import Outcome, Row, Slots, State
from simkit.policies.confidence import ByProbability
from simkit.policies.registry import register


def begin(params: Any, sequence: int) -> State:
    """The threshold, how many pairs there are, how many of them matched, and the pairs.

    A pair is a probability, with a minus sign if the token did not match. They are sorted by
    probability; behind them lie the probabilities of the draft at hand.
    """
    return params.threshold, 0, 0, np.empty(64)


def trips(params: Any, state: State, depth: int, row: Row) -> tuple[bool, State]:
    """The probability of the drafted token against the threshold."""
    threshold, n, matched, pairs = state
    at = n + depth - 1
    if at == len(pairs):
        longer = np.empty(2 * at)
        for k in range(at):  # a slice would take much longer to compile
            longer[k] = pairs[k]
        pairs = longer
    pairs[at] = row[0]
    return row[0] < threshold, (threshold, n, matched, pairs)


def update(params: Any, state: State, outcome: Outcome) -> State:
    """Sort the pairs of the step in, then fit the threshold to all pairs.

    Costs are rounded as in the source, since that settles ties; of equal ones the highest threshold
    wins. False negatives only grow with the threshold: the sweep ends where they alone cost more.
    """
    threshold, n, matched, pairs = state
    if threshold == 0.0:
        return state
    for j in range(min(outcome.accepted + 1, outcome.drafted)):
        pair = pairs[n] if j < outcome.accepted else -pairs[n]
        at = n
        while at > 0 and abs(pairs[at - 1]) > abs(pair):
            pairs[at] = pairs[at - 1]
            at -= 1
        pairs[at] = pair
        n += 1
    matched += outcome.accepted
    missed = n - matched
    if n <= 5 or matched == 0 or missed == 0:
        return threshold, n, matched, pairs
    tps, fps, best = matched, missed, math.inf
    ties, before = (0, 0), (0, 0)  # pairs of one probability, and of the one below: hits, misses
    for k in range(n):
        hit = math.copysign(1.0, pairs[k]) > 0.0
        ties = (ties[0] + 1, ties[1]) if hit else (ties[0], ties[1] + 1)
        if k + 1 < n and abs(pairs[k + 1]) == abs(pairs[k]):
            continue
        if ties != before or k + 1 == n:  # roc_curve drops points on a line with their neighbours
            fnr = 1.0 - tps / matched
            cost = fps / missed + 3.0 * fnr
            if cost <= best:
                best, threshold = cost, abs(pairs[k])
            if 3.0 * fnr > best:
                break
        tps, fps = tps - ties[0], fps - ties[1]
        ties, before = (0, 0), ties
    return threshold, n, matched, pairs


@register
@dataclass(frozen=True)
class ConfidenceAdaptive(ByProbability):
    """Stop like `confidence`, with a threshold that is fitted again after each step.

    A step adds pairs (probability, matched): all its accepted tokens and the first rejected one.
    Tokens drafted behind that one are left out. The threshold changes once there are more than five
    pairs, with both matches and misses among them. It becomes the point of their ROC curve that
    minimises FPR + 3·FNR, which is one of the probabilities seen. A threshold of 0 never trips and
    never adapts, as in the source.

    Tripping token: kept. Score: of the distribution that the token was drawn from, no lag; if the
    draft takes its likeliest token, that of temperature 1. State: the pairs and the threshold, per
    sequence. Feedback: the tokens really drafted, up to the first rejected one.
    Source: `AssistedCandidateGenerator` of Hugging Face transformers 5.23 with its defaults, if
    scikit-learn (`roc_curve`) is installed. There, too, each call of `generate` starts anew, though
    `GenerationConfig` says that the threshold persists. Versions that fit the threshold but do not
    pass it to `ConfidenceCriteria` draft like `confidence`.

    Attributes:
        threshold: of a sequence's first steps, in [0, 1].
        max_draft: the longest draft, in tokens; 20 as in transformers.

    Raises:
        PolicyError: an argument is out of range.
    """

    threshold: float = real_number(0.4, 0, 1)
    max_draft: int = whole_number(20)

    name = "confidence_adaptive"
    slots = Slots(begin=begin, trips=trips, update=update)
