"""Draft on while a token more is worth its time at the rate that the rule itself attains."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from simkit.errors import PolicyError
from simkit.policies.acceptance_fit import BINS, accepted_of, fit_acceptance
from simkit.policies.arguments import settle_head, whole_number
from simkit.policies.base import (
    MAX_DRAFT,
    NumericPolicy,
    Outcome,
    Policy,
    Row,
    Setting,
    Slots,
    State,
)
from simkit.policies.oracle import Oracle
from simkit.policies.registry import register
from traces.sampler import Sampler
from traces.schema import DRAFT_STATISTICS

if TYPE_CHECKING:
    from simkit.drafters.layout import Layout
    from simkit.simulator.step_costs import Charge

CELLS = 2**22  # of the price table; a larger one keeps only some contexts
ROUNDS = 20
TOLERANCE = 1e-9


class RateOptimalParams(NamedTuple):
    """See `RateOptimal` and `AcceptanceFit`.

    Attributes:
        fold: (S,) int64.
        context: (S,) int64, known tokens before each sequence's first step.
        edges: (B - 1,) float64.
        worth: (F, N) float64, tokens that a draft of up to 1, 2, … tokens adds to the output on
            average; of one token only, where each token's pass can be decided on alone.
        accept: (F, B) float64.
        following: (F, B) float64.
        price: (C, K + 1) float64, seconds that draft token k + 1 adds to a step at the contexts
            from c << shift on; infinite for the last k, after which no draft goes on.
        shift: of contexts; 0 unless the table would be too large.
        rate: λ, tokens a second.
        max_draft: see `Policy`.
    """

    fold: np.ndarray
    context: np.ndarray
    edges: np.ndarray
    worth: np.ndarray
    accept: np.ndarray
    following: np.ndarray
    price: np.ndarray
    shift: int
    rate: float
    max_draft: int


def begin(params: Any, sequence: int) -> State:
    """The state is the fold, the context of the step, and the product so far."""
    return int(params.fold[sequence]), int(params.context[sequence]), 1.0


def limit(params: Any, state: State, ahead: int) -> int:
    """No draft if neither its first token nor, in one pass, more of them are worth their price."""
    price = 0.0
    for k in range(params.worth.shape[1]):
        price += params.price[state[1] >> params.shift, k]
        if params.worth[state[0], k] >= params.rate * price:
            return params.max_draft
    return 0


def trips(params: Any, state: State, depth: int, row: Row) -> tuple[bool, State]:
    """Whether the next token is not worth its price."""
    fold, context, product = state
    k, half = 0, BINS // 2
    while half > 0:  # searchsorted, without a branch to guess wrong
        k += half * (params.edges[k + half - 1] < row[0])
        half //= 2
    product = product * float(params.accept[fold, k])
    gain = product * params.following[fold, k]
    price = params.price[context >> params.shift, depth]
    return not gain >= params.rate * price, (fold, context, product)


def update(params: Any, state: State, outcome: Outcome) -> State:
    """The next step's context, and a new product."""
    return state[0], state[1] + outcome.accepted + 1, 1.0


@register
@dataclass(frozen=True)
class RateOptimal(NumericPolicy):
    """Draft one more token while it is worth its time: S_k * â_{k+1} >= λ* * (its seconds).

    S_k is the product of the fitted acceptance probabilities of the k tokens drafted so far. So the
    left side is the chance that token k + 1 adds a token to the output. Its seconds are those of
    drafting it, verifying it and deciding about it. λ* is the rate that this very rule attains on
    the trace, in tokens a second of steps; prefill is left out, because no draft length changes it.
    It is a fixed point, found by Dinkelbach's iteration from the rate of `oracle`.

    The score of token k + 1 is not known before it is drafted. So â_{k+1} is forecast from token
    k's score, P(the next is accepted | this one is, its score). For k = 0 it is the mean acceptance
    of a first token. Both, and the acceptance given a score, are isotonic fits to the prompts
    outside the sequence's own fold, see `AcceptanceFit`. The seconds are those at the step's own
    context, and include its head's calls and, where the cost has times of rules, its own decisions.

    If one pass yields a whole draft, the whole pass is the price of its first token, and later
    tokens add only to the verification. So a draft is requested if, for some n, its first n tokens
    are on average worth the price of all n; then the rule chooses how many are verified. The part
    of the pass that reads the tokens emitted since the last draft is not counted, because they
    must be read anyway.

    This is no oracle: a step does not look at the future. But it is fitted to the trace that it is
    replayed on: scores out of fold, λ* on all of it. It looks one token ahead, and treats the
    tokens of a draft as independent given their scores, so a tuned threshold may still do better.

    Tripping token: kept. Score: of the token itself, no lag. State: the product, reset each step;
    the context. Feedback: none, except for where the step starts.
    Source: ours. SpecDec++ (Huang et al. 2024) proves that a threshold on the chance of a
    rejection so far is optimal.

    Attributes:
        score: a statistic of the draft, or "score:NAME" for the scores of a head.
        folds: number of folds of the prompts, >= 2 and at most the number of prompts.
        max_draft: the longest draft, in tokens.

    Raises:
        PolicyError: an argument is out of range; or there is no cost.
    """

    score: str = "draft_prob_raw"
    folds: int = whole_number(5, 2)
    max_draft: int = whole_number(MAX_DRAFT)

    name = "rate_optimal"
    slots = Slots(begin=begin, limit=limit, trips=trips, update=update)

    def __post_init__(self) -> None:
        super().__post_init__()
        score = str(self.score)
        if score.startswith("score:"):
            object.__setattr__(self, "head", score.removeprefix("score:"))
            if not self.head:
                raise PolicyError(f"{self.name}: score:NAME needs a name")
            settle_head(self)
        elif score not in DRAFT_STATISTICS:
            known = ", ".join(DRAFT_STATISTICS)
            raise PolicyError(f"{self.name}: score must be score:NAME or one of {known}")

    def bind(self, setting: Setting) -> RateOptimal:
        """See `Policy`."""
        charge, layout = setting.costs(self.name), setting.layout
        rate = rate_of(Oracle(max_draft=self.max_draft), setting)
        fit = fit_acceptance(layout, self.score, self.folds, seed=0)
        worth = fit.first[:, None]
        if layout.deepest:
            longest = min(self.max_draft, layout.deepest, layout.trace.max_new_tokens - 1)
            worth = accepted_of(layout, fit.fold, longest)
        price, shift = self._price(charge, layout)
        context = layout.n_prompt + setting.first - 1
        arrays = (fit.fold, context, fit.edges, worth, fit.accept, fit.following)
        for array in arrays:
            array.flags.writeable = False
        params = RateOptimalParams(*arrays, _frozen(price), shift, rate, self.max_draft)
        call_s = charge.weighed_s(self._with(params))  # what times a rule must have the rule
        params = params._replace(price=_frozen(price + call_s))
        return self._settled(params, setting)

    @cached_property
    def params(self) -> RateOptimalParams:
        """See `NumericPolicy`; `bind` sets them."""
        raise PolicyError(f"{self.name} must be fitted to a trace and a cost: replay it")

    def columns(self, sampler: Sampler) -> tuple[str, ...]:
        """See `Policy`."""
        return (self.score,)

    def _settled(self, params: RateOptimalParams, setting: Setting) -> RateOptimal:
        """The policy at the fixed point; the fastest one tried if there is none to be found."""
        tried: dict[float, RateOptimal] = {}
        for _ in range(ROUNDS):
            policy = self._with(params)
            rate = rate_of(policy, setting)
            if abs(rate - params.rate) <= TOLERANCE * rate:
                return policy
            if rate in tried:
                break
            tried[rate] = policy
            params = params._replace(rate=rate)
        return tried[max(tried)]

    def _with(self, params: RateOptimalParams) -> RateOptimal:
        bound = replace(self)
        vars(bound)["params"] = params
        return bound

    def _price(self, charge: Charge, layout: Layout) -> tuple[np.ndarray, int]:
        """The price table without decisions, and the shift of its contexts."""
        end, longest = len(charge.contexts), min(self.max_draft, layout.trace.max_new_tokens - 1)
        shift = max(0, math.ceil(math.log2(end * (longest + 1) / CELLS)))
        contexts = charge.contexts[:: 1 << shift, None]
        tokens = np.arange(longest + 1)
        verify_s = charge.verify(tokens + 1, contexts)
        asked = np.minimum(tokens, end - contexts)  # the rest is out of reach
        if layout.deepest:
            asked = np.where(tokens > 0, min(longest, layout.deepest), 0)
        draft_s = charge.drafting.seconds(contexts, asked)
        price = np.diff(draft_s, axis=1) + np.diff(verify_s, axis=1)
        return np.hstack([price, np.full((len(contexts), 1), np.inf)]), shift


def _frozen(array: np.ndarray) -> np.ndarray:
    array.flags.writeable = False
    return array


def rate_of(policy: Policy, setting: Setting) -> float:
    """Tokens a second of steps; 0 if steps take no time, which makes every token worth its price.

    Every rule emits the same tokens, so the rate is highest where the time is shortest.
    """
    spent_s = setting.spent_s(policy)
    emitted = float((setting.layout.n_output - setting.first + 1).sum())
    return emitted / spent_s if spent_s > 0 else 0.0
