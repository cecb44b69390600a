"""Bounds of a fixed length's steps on logged outputs, whatever is not in the log.

The steps of length k begin where the log's first step did. From a start that the log visited, the
log says how many tokens are accepted: min(a, k) where the first rejection was located, at least
min(d, k) where the draft was accepted whole. From any other start it may be 0 to k. Of all courses
that this allows, the cheapest and the dearest are found from the output's end backwards, so that
both are attained and nothing is assumed of the drafts.

Where drafts share a path (one draft model with a cache), more is known: a token that was accepted
or rejected in one draft is so in every draft that reaches it, whatever its start. Then only the
target's own tokens behind whole accepted drafts are open. A course looks at each token once at
most, so these may be chosen apart.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from traces.kernels import compiled


class Starts(NamedTuple):
    """How many tokens may be accepted in a step from each position.

    Positions are those behind the prefill's token of all outputs end to end.

    Attributes:
        fewest: (R,) int64.
        most: (R,) int64.
        stops: (R,) bool, whether a run of fewer than `most` may end before this position.
    """

    fewest: np.ndarray
    most: np.ndarray
    stops: np.ndarray


def starts(
    drafted: np.ndarray, accepted: np.ndarray, length: int, left: np.ndarray, shared_path: bool
) -> Starts:
    """What the log says of each start.

    Args:
        drafted: (N,) of the logged steps, in order.
        accepted: (N,); the sum of a + 1 is R: what steps emit stands end to end in the positions.
        length: k.
        left: (R,) tokens of the output from each position on; below 1 behind its end.
        shared_path: see `traces.manifest.Manifest`.
    """
    last = np.cumsum(accepted + 1) - 1  # the target's own token of each step
    whole = accepted == drafted
    if shared_path:
        unknown = np.zeros(len(left), bool)
        unknown[last[whole]] = True
        rejected = np.zeros(len(left), bool)
        rejected[last[~whole]] = True
        fewest, most, stops = _ahead(rejected | unknown), _ahead(rejected), unknown
    else:
        visited = last - accepted
        fewest, most = np.zeros(len(left), np.int64), np.full(len(left), length)
        fewest[visited] = accepted
        most[visited[~whole]] = accepted[~whole]
        stops = np.ones(len(left), bool)
    most = np.minimum(np.minimum(most, length), left - 1)
    return Starts(np.minimum(fewest, most), most, stops)


def unknown_starts(length: int, left: np.ndarray) -> Starts:
    """What is known where not even the order of the steps is: nothing but the outputs' lengths."""
    most = np.minimum(length, left - 1)
    return Starts(np.zeros(len(left), np.int64), most, np.ones(len(left), bool))


def _ahead(stop: np.ndarray) -> np.ndarray:
    """How many positions there are from each one to the next stop, 0 at one; (R,) int64."""
    at = np.where(stop, np.arange(len(stop)), len(stop))
    return np.minimum.accumulate(at[::-1])[::-1] - np.arange(len(stop))


@compiled
def extremes(
    begins: np.ndarray,
    ends: np.ndarray,
    fewest: np.ndarray,
    most: np.ndarray,
    stops: np.ndarray,
    least: np.ndarray,
    largest: np.ndarray,
) -> np.ndarray:
    """The least and the largest total price of each output's steps, (S, 2) float64.

    Args:
        begins: (S,) int64, where the outputs begin in the positions.
        ends: (S,) int64, where they end.
        fewest: see `Starts`.
        most: see `Starts`.
        stops: see `Starts`.
        least: (R,) float64 >= 0, the lowest price of a step from each position.
        largest: (R,), the highest.
    """
    out = np.zeros((len(ends), 2))
    best = np.zeros((len(fewest) + 1, 2))
    for s in range(len(ends)):
        begin, end = begins[s], ends[s]
        best[end] = 0.0
        for i in range(end - 1, begin - 1, -1):
            low, high = np.inf, 0.0
            for accepted in range(fewest[i], most[i] + 1):
                if accepted < most[i] and not stops[i + accepted]:
                    continue
                after = best[i + accepted + 1]
                low = min(low, after[0])
                high = max(high, after[1])
            best[i, 0], best[i, 1] = least[i] + low, largest[i] + high
        if end > begin:
            out[s] = best[begin]
    return out
