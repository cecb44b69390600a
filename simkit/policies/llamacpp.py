"""Propose only tokens that the draft model is sure of (llama.cpp)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

from simkit.errors import PolicyError
from simkit.policies.base import (
    MAX_DRAFT,
    NumericPolicy,
    Outcome,
    Row,
    Slots,
    State,
    check_flag,
    check_real,
    check_whole,
)
from simkit.policies.registry import register
from traces.sampler import Sampler


class LlamaCppParams(NamedTuple):
    """See `LlamaCpp`; n_max is the bound itself."""

    p_min: float
    n_min: int
    keep: bool
    max_draft: int


def begin(params: Any, sequence: int) -> State:
    """The state is how many tokens of the draft are dropped, 0 or 1."""
    return (0,)


def trips(params: Any, state: State, depth: int, row: Row) -> tuple[bool, State]:
    """Whether top-1 / top-10 mass < p_min, without the division."""
    weak = row[0] < params.p_min * row[1]
    return weak, (1 if weak and not params.keep else 0,)


def proposed(params: Any, state: State, drafted: int) -> int:
    """All but a dropped token; none if they are fewer than n_min."""
    kept = drafted - state[0]
    return kept if kept >= params.n_min else 0


def update(params: Any, state: State, outcome: Outcome) -> State:
    """The next draft starts anew."""
    return (0,)


@register
@dataclass(frozen=True)
class LlamaCpp(NumericPolicy):
    """Stop before a token whose probability, renormalised over the ten likeliest, is below p_min.

    Its pass is paid, though the token is dropped. A draft shorter than n_min after that is thrown
    away whole: its passes are paid, and the step is a plain one. The draft proposes its likeliest
    token, so a sampled trace must have draft_temperature 0; n_min > 0 is refused on it.

    Tripping token: dropped; kept with keep=True. Score: of the distribution the token was drawn
    from, at temperature 1, no lag. State: whether a token was dropped, reset each step. Feedback:
    none.
    Source: llama.cpp, `common/speculative.cpp`, whose draft sampler takes the top 10. Older
    versions added the token before they looked at its probability: keep=True.

    Attributes:
        p_min: in [0, 1].
        n_min: shortest draft that is sent to the target, in tokens.
        n_max: longest draft, in tokens, 0 to max_draft.
        keep: whether the token that trips the rule is sent to the target.
        max_draft: see `Policy`.

    Raises:
        PolicyError: an argument is out of range. An n_max above max_draft is refused rather than
            cut in silence.
    """

    p_min: float = 0.75
    n_min: int = 0
    n_max: int = 16
    keep: bool = False
    max_draft: int = MAX_DRAFT

    name = "llamacpp"
    slots = Slots(begin=begin, trips=trips, proposed=proposed, update=update)

    def __post_init__(self) -> None:
        check_real(self, "p_min", 0, 1)
        check_whole(self, "n_min", 0)
        check_whole(self, "n_max", 0)
        check_flag(self, "keep")
        check_whole(self, "max_draft", 0)
        if self.n_max > self.max_draft:
            raise PolicyError(
                f"llamacpp: n_max {self.n_max} is above max_draft {self.max_draft}; if the trace"
                f" was recorded that deep, give max_draft={self.n_max} too"
            )

    @cached_property
    def params(self) -> LlamaCppParams:
        """See `NumericPolicy`."""
        return LlamaCppParams(float(self.p_min), self.n_min, self.keep, self.n_max)

    def columns(self, sampler: Sampler) -> tuple[str, ...]:
        """See `Policy`."""
        if sampler.q_temperature > 0:
            raise PolicyError(
                f"{self} proposes the draft's likeliest token; needs a trace recorded with"
                " --draft-temperature 0"
            )
        if self.n_min > 0 and not sampler.greedy:
            raise PolicyError(f"{self}: n_min > 0 drops drafted tokens; needs a greedy trace")
        return ("draft_top1_prob", "draft_top10_mass")
