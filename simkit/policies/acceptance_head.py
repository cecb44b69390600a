"""Stop where rejection costs more than verification saves (the acceptance head)."""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from simkit.costs.threshold import rejection_threshold
from simkit.errors import PolicyError
from simkit.policies.arguments import check_real, head_named, lag_of, whole_number
from simkit.policies.base import NumericPolicy, Row, Setting, Slots, State
from simkit.policies.registry import register
from simkit.policies.specdecpp import begin, calls, update


class AcceptanceHeadParams(NamedTuple):
    """See `AcceptanceHead`.

    Attributes:
        most: h(1), h(2), …, the last for all that follow (float64).
        lag: 1, or None: then the compiled loop does not ask for it, token by token.
        max_draft: see `Policy`.
    """

    most: np.ndarray
    lag: int | None
    max_draft: int


def trips(params: Any, state: State, depth: int, row: Row) -> tuple[bool, State]:
    """Whether the predicted probability of a rejection exceeds h at the last token judged."""
    product = state[0] * row[0]
    if params.lag is None:
        most = params.most[min(depth, len(params.most)) - 1]
        return bool(1.0 - product > most), (product,)
    if depth == 1:
        return False, (product,)
    most = params.most[min(depth - 1, len(params.most)) - 1]
    return bool(1.0 - state[0] > most), (product,)


@register
@dataclass(frozen=True)
class AcceptanceHead(NumericPolicy):
    """Stop when the predicted chance of a rejection, 1 - Π P̂, exceeds h; P̂ are the head's scores.

    The product is over the tokens judged so far. The paper's head (lag=1) judges token k from the
    state that has consumed it. The draft pass that reads token k makes this state, and draws token
    k + 1 from it. So when tokens 1 to k are judged, token k + 1 is drafted already; it goes to the
    target too, as in the paper's text and code, and costs nothing more. The last token of a draft
    is never judged. γ tokens take γ draft passes and γ - 1 calls of the head. Use lag=0 for a head
    that judges a token from the state that proposed it.

    With h="cost" the threshold falls with the depth: h(k) = (T_v - T_d(k)) / T_r. T_d(k) is the
    time of k draft passes and T_v that of their verification. T_r is the time that a rejection
    costs: resampling and one more verification. All three are taken from the cost at one context,
    the mean of n_prompt + T/2 over the trace's sequences. A draft always stops at the first k with
    h(k) <= 0, because eq. 11 asks for less than h(k) to go on.

    Tripping token: kept, and so is the one that was drafted while it was judged. Score: lags by one
    token; with lag=0 it is of the token itself. State: the product, reset each step; h(k), where k
    counts the judged tokens, is fitted once to a trace and its cost. Feedback: none.
    Source: "Acceptance-guided adaptive speculative decoding", eqs. 6 and 7; eqs. 11 and 12 for
    h="cost". It sweeps h over 0.94-0.96 and the longest draft over 5-7.

    Attributes:
        h: threshold in [0, 1], or "cost".
        max_draft: the longest draft, in tokens; K_max in the paper.
        head: name of the scores to read, one for each row; "" means the policy's own name.
        lag: 1, or 0 for a head that needs only the state that proposed the token.

    Raises:
        PolicyError: an argument is out of range; or h is "cost" and there is no cost.
    """

    h: float | str = 0.95
    max_draft: int = whole_number(6)
    head: str = head_named("acceptance_head")
    lag: int = lag_of(1)

    name = "acceptance_head"
    slots = Slots(begin=begin, trips=trips, update=update, calls=calls)

    def __post_init__(self) -> None:
        if self.h != "cost":
            check_real(self, "h", 0, 1)
        super().__post_init__()

    def bind(self, setting: Setting) -> AcceptanceHead:
        """See `Policy`."""
        if self.h != "cost":
            return self
        charge, layout = setting.costs(self.name), setting.layout
        context = round(float(np.mean(layout.n_prompt + layout.n_output / 2)))
        longest = min(self.max_draft, layout.trace.max_new_tokens)
        if layout.deepest:  # what the one pass is asked for
            longest = min(longest, layout.deepest)
        h = rejection_threshold(charge.times, context, longest, charge.drafting.paid)
        given = {field.name: getattr(self, field.name) for field in fields(self)}
        return _Fitted(**given, thresholds=tuple(np.where(h > 0, h, -1.0).tolist()))

    @cached_property
    def params(self) -> AcceptanceHeadParams:
        """See `NumericPolicy`."""
        if isinstance(self.h, str):
            raise PolicyError(f"{self} needs times: give a cost")
        return _params((self.h,), self)


@dataclass(frozen=True)
class _Fitted(AcceptanceHead):
    """With h(k) from a cost."""

    thresholds: tuple[float, ...] = ()

    @cached_property
    def params(self) -> AcceptanceHeadParams:
        return _params(self.thresholds, self)


def _params(thresholds: tuple[float, ...], policy: AcceptanceHead) -> AcceptanceHeadParams:
    most = np.array(thresholds, np.float64)
    most.flags.writeable = False
    return AcceptanceHeadParams(most, policy.lag or None, policy.max_draft)
