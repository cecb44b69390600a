"""DSpark, and vLLM's adaptive verification: the tokens most likely to survive, over all requests.

Every request drafts as many tokens, and how many of all are verified is chosen each step.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from simkit.errors import PolicyError
from simkit.policies.arguments import one_of, real_number, whole_number
from simkit.serving.controllers.base import ByLength, Slots, View, register
from simkit.serving.pass_prices import draft_s, overhead_s, verify_s
from traces.kernels import compiled_part

if TYPE_CHECKING:
    from simkit.serving.prices import Prices

RING = 1024  # observations of a position that are kept
_NEWTON = 25  # steps at most, of a fit
_LARGEST = 30.0  # logit


# What is remembered, in order: steps; the largest batch; of each position the number of
# observations, the fit's intercept and slope, NaN before there is one; rings of observed logs and
# verdicts, a position after another; and the survivals of `stale` + 1 steps, each headed by how
# many requests it is of.
_STEPS, _LARGEST_BATCH, _HEAD = 0, 1, 2


@compiled_part
def _fits(state: Any, max_draft: int) -> tuple[Any, Any, Any]:
    """Observations, intercepts and slopes, (K,) each; views of the state."""
    a = _HEAD
    return (
        state[a : a + max_draft],
        state[a + max_draft : a + 2 * max_draft],
        state[a + 2 * max_draft : a + 3 * max_draft],
    )


@compiled_part
def calibration(x: np.ndarray, y: np.ndarray, ridge: float) -> tuple[float, float]:
    """Intercept and slope of a logistic fit that minimises its loss + ridge / 2 (b² + w²).

    Args:
        x: (N,) logs of confidences.
        y: (N,) whether each token was accepted, 0 or 1.
        ridge: weight of the penalty.
    """
    b, w = 0.0, 0.0
    for _ in range(_NEWTON):
        gb, gw = ridge * b, ridge * w
        hbb, hbw, hww = ridge, 0.0, ridge
        for k in range(len(x)):
            p = 1.0 / (1.0 + np.exp(-min(max(b + w * x[k], -_LARGEST), _LARGEST)))
            gb += p - y[k]
            gw += (p - y[k]) * x[k]
            v = p * (1.0 - p)
            hbb += v
            hbw += v * x[k]
            hww += v * x[k] * x[k]
        det = hbb * hww - hbw * hbw
        if not det > 0:
            break
        db, dw = (hww * gb - hbw * gw) / det, (hbb * gw - hbw * gb) / det
        b, w = b - db, w - dw
        if abs(db) + abs(dw) < 1e-10:
            break
    return b, w


@compiled_part
def _survivals(params: Any, state: Any, confidence: np.ndarray, drafted: np.ndarray) -> Any:
    """The chance that each drafted token survives its verification, (n, K); -1 where none is."""
    _, b, w = _fits(state, params.max_draft)
    found = np.full((len(drafted), params.max_draft), -1.0)
    for r in range(len(drafted)):
        alive = 1.0
        for k in range(drafted[r]):
            c = confidence[r, k]
            if not np.isnan(w[k]):
                logit = b[k] + w[k] * np.log(max(c, 1e-30))
                c = 1.0 / (1.0 + np.exp(-min(max(logit, -_LARGEST), _LARGEST)))
            alive *= min(max(c, 0.0), 1.0)
            found[r, k] = alive
    return found


@compiled_part
def best_budget(
    survivals: np.ndarray,
    n: int,
    tokens: int,
    context: float,
    fixed_s: float,
    first: bool,
    prices: Prices,
) -> int:
    """How many draft tokens make the most tokens a second, the likeliest ones first.

    Args:
        survivals: of all drafted tokens, descending.
        n: requests.
        tokens: how many may be verified at most.
        context: known tokens of a request, the mean.
        fixed_s: what the iteration takes besides its verification.
        first: stop where the rate falls first, instead of looking at all of them.
        prices: of the verification.
    """
    expected = float(n)
    best, rate = 0, n / (fixed_s + verify_s(prices, n, n, context))
    before = rate
    for b in range(min(len(survivals), tokens)):
        expected += survivals[b]
        now = expected / (fixed_s + verify_s(prices, n, n + b + 1, context))
        if now > rate:
            best, rate = b + 1, now
        if first and now < before:
            break
        before = now
    return best


def _decide(params: Any, state: Any, view: View, prices: Prices, drafted: np.ndarray) -> None:
    drafted[:] = params.max_draft


def _choose(
    params: Any, state: Any, view: View, prices: Prices, drafted: np.ndarray, proposed: np.ndarray
) -> None:
    n, width = len(drafted), params.max_draft
    found = _survivals(params, state, view.confidence, drafted)
    flat = np.ascontiguousarray(found.T).reshape(-1)  # by depth: of equals the shallower go first
    order = np.argsort(-flat, kind="mergesort")
    room = 1 + np.int64(state[_LARGEST_BATCH]) * width
    past = _HEAD + width * (3 + 2 * RING)
    step = np.int64(state[_STEPS])
    slot = past + (step % (params.stale + 1)) * room
    there = (flat >= 0).sum()
    state[slot] = n
    state[slot + 1 : slot + room] = -1.0
    for k in range(there):
        state[slot + 1 + k] = flat[order[k]]
    if step < params.stale:
        return
    old = past + ((step - params.stale) % (params.stale + 1)) * room
    many = 0
    while many < room - 1 and state[old + 1 + many] >= 0:
        many += 1
    fixed_s = overhead_s(prices, True, n)
    fixed_s += draft_s(prices, drafted, drafted, view.context, 1.0, 0)
    budget = best_budget(
        state[old + 1 : old + 1 + many],
        np.int64(state[old]),
        many,
        view.context.mean(),
        fixed_s,
        params.first_drop,
        prices,
    )
    proposed[:] = 0
    for k in range(min(budget, there)):
        proposed[order[k] % n] += 1


def _observe(
    params: Any,
    state: Any,
    view: View,
    drafted: np.ndarray,
    proposed: np.ndarray,
    accepted: np.ndarray,
    ended: np.ndarray,
) -> None:
    width = params.max_draft
    seen, b, w = _fits(state, width)
    logs, verdicts = _HEAD + 3 * width, _HEAD + 3 * width + width * RING
    for r in range(len(drafted)):
        judged = accepted[r] if ended[r] else min(accepted[r] + 1, proposed[r])
        for k in range(judged):
            at = k * RING + np.int64(seen[k]) % RING
            state[logs + at] = np.log(max(view.confidence[r, k], 1e-30))
            state[verdicts + at] = 1.0 if k < accepted[r] else 0.0
            seen[k] += 1
    state[_STEPS] += 1
    if params.calibrated and np.int64(state[_STEPS]) % params.refit == 0:
        for k in range(width):
            if seen[k] >= params.least:
                many = min(np.int64(seen[k]), RING)
                x, y = logs + k * RING, verdicts + k * RING
                b[k], w[k] = calibration(state[x : x + many], state[y : y + many], params.ridge)


@register
@dataclass(frozen=True)
class Budget(ByLength):
    """Verify only the B drafted tokens, over all requests, that are likeliest to be accepted.

    Every request drafts `max_draft` tokens. A token's chance is the product of the confidences up
    to it. B is chosen to give the most expected tokens a second. It uses the confidences of `stale`
    steps ago, so that no request's length depends on what it has just drafted. Before there are
    any, all tokens are verified. A confidence is that of a logistic fit on the log of the draft's
    own confidence. Each position in the draft has its own fit, renewed every `refit` steps from the
    last 1,024 judged tokens of the position.

    Under sampling, a choice by present confidences (`stale=0, search=global`) is biased: whether a
    token is verified then depends on what was drawn behind it (tests/test_serving_bias.py). A
    replay cannot show the bias, since it emits the recorded output whatever is verified.

    Attributes:
        max_draft: tokens that every request drafts.
        stale: age of the confidences in steps.
        column: the draft's own confidence, a column of its statistics.
        calibrate: "online", or "none" to take the confidences as they are.
        refit: steps between two fits.
        least: judged tokens of a position before its first fit.
        ridge: weight of the fit's penalty.
        search: "first_drop": stop at the first B where the rate falls; "global": the best of all.
    """

    max_draft: int = whole_number(7, 1)
    stale: int = whole_number(2)
    column: str = "draft_top1_prob"
    calibrate: str = one_of(
        "online", ("online", "none"), {"calibrated": lambda how: how == "online"}
    )
    refit: int = whole_number(100, 1)
    least: int = whole_number(50, 1)
    ridge: float = real_number(1e-3, 1e-12)
    search: str = one_of(
        "first_drop", ("first_drop", "global"), {"first_drop": lambda how: how == "first_drop"}
    )

    name = "budget"
    source = "DSpark, arXiv:2607.05147; vLLM adaptive verification (#47808, #52228)"
    slots = Slots(_decide, _choose, _observe)

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.column, str) or not self.column:
            raise PolicyError(f"budget: column must be a column's name, not {self.column!r}")

    def begin(self, max_batch: int) -> np.ndarray:
        """See `ByLength`: see `_HEAD`."""
        past = (self.stale + 1) * (1 + max_batch * self.max_draft)
        state = np.zeros(_HEAD + self.max_draft * (3 + 2 * RING) + past)
        _, b, w = _fits(state, self.max_draft)
        b[:], w[:] = np.nan, np.nan
        state[_LARGEST_BATCH] = max_batch
        return state
