"""SmartSpec: the one length that promises most tokens a second, by a moving acceptance rate."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np

from simkit.policies.arguments import Numbers, as_it_is, real_number, whole_number
from simkit.serving.controllers.base import ByLength, Slots, View, register

if TYPE_CHECKING:
    from simkit.serving.prices import Prices

_ACCEPTED, _JUDGED, _IDLE = 0, 1, 2


class LinearTimes(NamedTuple):
    """Seconds of an iteration, fitted: drafting and a verification, each linear.

    Attributes:
        draft_s: of drafting at all, whatever the batch and the length.
        draft_request_s: for each request.
        round_s: for each token of the length.
        round_request_s: for each token of each request.
        verify_s: of a verification, whatever it holds.
        verify_token_s: for each token in it.
        verify_kv_s: for each known token behind which they stand.
    """

    draft_s: float = 0.0
    draft_request_s: float = 0.0
    round_s: float = 0.0
    round_request_s: float = 0.0
    verify_s: float = 1.0
    verify_token_s: float = 0.0
    verify_kv_s: float = 0.0


def _decide(params: Any, state: Any, view: View, prices: Prices, drafted: np.ndarray) -> None:
    n, kv = len(drafted), view.context.sum()
    alpha = state[_ACCEPTED] / state[_JUDGED]
    t = params.times
    tokens, power = 1.0, 1.0  # a request's expected tokens: 1 + α + … + α^k
    best, rate = 0, 0.0
    for k in range(params.max_draft + 1):
        if k > 0:
            power *= alpha
            tokens += power
        draft_s = k * (t.round_s + t.round_request_s * n)
        if k > 0:
            draft_s += t.draft_s + t.draft_request_s * n
        verify_s = t.verify_s + t.verify_token_s * n * (k + 1) + t.verify_kv_s * kv
        if n * tokens / (draft_s + verify_s) > rate:
            best, rate = k, n * tokens / (draft_s + verify_s)
    state[_IDLE] = state[_IDLE] + 1 if best == 0 else 0
    if params.probe > 0 and state[_IDLE] > params.probe and params.max_draft > 0:
        best, state[_IDLE] = 1, 0
    drafted[:] = best


def _observe(
    params: Any,
    state: Any,
    view: View,
    drafted: np.ndarray,
    proposed: np.ndarray,
    accepted: np.ndarray,
    ended: np.ndarray,
) -> None:
    judged = np.minimum(accepted + 1, proposed).sum()
    if judged > 0:
        state[_ACCEPTED] = params.memory * state[_ACCEPTED] + accepted.sum() / judged
        state[_JUDGED] = params.memory * state[_JUDGED] + 1.0


@register
@dataclass(frozen=True)
class Goodput(ByLength):
    """Choose the length k with the most expected tokens/s, n (1 + α + … + α^k) / T(n, k).

    n is the batch size. α is the share of judged tokens that were accepted, averaged over
    iterations; each iteration weighs `memory` times as much as the next one. T is the linear cost
    nearest to the times. While nothing is drafted, nothing is judged and α stays as it is. So after
    `probe` iterations at length 0 there is one of length 1, which the paper does not mention.

    Attributes:
        max_draft: the longest length.
        alpha: α before the first iteration; it weighs as much as one iteration.
        memory: weight of an iteration relative to the next one.
        probe: iterations at length 0 before one of length 1; 0: never.
        times: fitted when it is bound.
    """

    max_draft: int = whole_number(8)
    alpha: float = real_number(0.7, 0, 1, numbers={})
    memory: float = real_number(0.95, 0, 1)
    probe: int = whole_number(32)
    times: LinearTimes = field(default=LinearTimes(), init=False, repr=False, compare=False)

    name = "goodput"
    source = "SmartSpec / TurboSpec, arXiv:2406.14066"
    slots = Slots(_decide, observe=_observe)
    _numbers: ClassVar[dict[str, Numbers]] = {"times": {"times": as_it_is}}

    def begin(self, max_batch: int) -> np.ndarray:
        """See `ByLength`: accepted and judged tokens, weighed, and idle iterations."""
        return np.array([self.alpha, 1.0, 0.0])

    def bind(self, prices: Prices) -> Goodput:
        """See `ByLength`."""
        from simkit.serving.prices import fitted

        bound = replace(self)
        object.__setattr__(bound, "times", LinearTimes(*fitted(prices)))
        return bound
