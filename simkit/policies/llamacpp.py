"""Propose only tokens that the draft model is sure of (llama.cpp)."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

from simkit.errors import PolicyError
from simkit.policies.arguments import as_it_is, check_word, real_number, true_or_false, whole_number
from simkit.policies.base import (
    MAX_DRAFT,
    NumericPolicy,
    Outcome,
    Row,
    Slots,
    State,
)
from simkit.policies.registry import register
from traces.sampler import Sampler
from traces.specs import render

VERSIONS = {"2025": {"p_min": 0.75, "n_max": 16}, "2026": {"p_min": 0.0, "n_max": 3}}
"""Defaults of llama.cpp by year."""


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

    This token is dropped, but its pass is paid. A draft that is then shorter than n_min is thrown
    away whole: its passes are paid, and the step emits one token of the target. The draft proposes
    its likeliest token, so a sampled trace must have draft_temperature 0; n_min > 0 is refused on
    it.

    Tripping token: dropped; kept with keep=True. Score: of the distribution that the token was
    drawn from, at temperature 1, no lag. State: whether a token was dropped, reset each step.
    Feedback: none.
    Source: llama.cpp, `common/speculative.cpp`, whose draft sampler takes the top 10. Older
    versions added the token before they checked its probability: keep=True. The defaults
    (`common/common.h`) were n_max 16 and p_min 0.75 all through 2025; in 2026 (commit 001d906a)
    they are n_max 3 and p_min 0, so that drafts have a fixed length. In the 2026 version the loop
    continues past an EOS, up to n_max. A trace cannot show this; it is at most n_max - 1 passes at
    the end of an output. That version also passes each verified batch through the draft model, one
    pass a step over 1 + γ tokens, before it drafts from the last token; this pass is counted and
    paid.

    Attributes:
        p_min: in [0, 1]; None: the version's default.
        n_min: shortest draft that is sent to the target, in tokens.
        n_max: longest draft, in tokens, 0 to max_draft; None: the version's default.
        keep: whether the token that trips the rule is sent to the target.
        version: the version whose defaults and passes count, "2025" or "2026".
        max_draft: the longest draft, in tokens.

    Raises:
        PolicyError: an argument is out of range. An n_max above max_draft is refused rather than
            cut silently.
    """

    p_min: float | None = real_number(None, 0, 1, {"p_min": float})
    n_min: int = whole_number(0)
    n_max: int | None = whole_number(None, numbers={"max_draft": as_it_is})
    keep: bool = true_or_false(False)
    version: str = "2025"
    max_draft: int = whole_number(MAX_DRAFT, numbers={})

    name = "llamacpp"
    slots = Slots(begin=begin, trips=trips, proposed=proposed, update=update)

    def __post_init__(self) -> None:
        object.__setattr__(self, "version", str(self.version))  # a spec reads it as a number
        check_word(self, "version", tuple(VERSIONS))
        for name, value in VERSIONS[self.version].items():
            if getattr(self, name) is None:
                object.__setattr__(self, name, value)
        super().__post_init__()
        if self._longest > self.max_draft:
            raise PolicyError(
                f"llamacpp: n_max {self.n_max} is above max_draft {self.max_draft}; if the trace"
                f" was recorded that deep, give max_draft={self.n_max} too"
            )

    @property
    def extra_passes(self) -> int:  # type: ignore[override]
        """See `Sequential`; without a draft there is no draft model either."""
        return 1 if self.version == "2026" and self._longest > 0 else 0

    @property
    def _longest(self) -> int:
        assert self.n_max is not None
        return self.n_max

    def __str__(self) -> str:
        """The canonical spec: p_min, and what differs from the version's defaults."""
        defaults = {f.name: f.default for f in fields(self)} | VERSIONS[self.version]
        given = {name: getattr(self, name) for name in defaults}
        other = {name: v for name, v in given.items() if v != defaults[name] or name == "p_min"}
        if "version" in other:
            other["version"] = int(self.version)
        return render(self.name, [], other)

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
