"""Longer drafts after success, shorter ones after failure (Hugging Face transformers)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from simkit.policies.arguments import one_of, whole_number
from simkit.policies.base import (
    MAX_DRAFT,
    NumericPolicy,
    Outcome,
    Slots,
    State,
)
from simkit.policies.registry import register


def begin(params: Any, sequence: int) -> State:
    """The state is n, the next draft's length before any cut."""
    return (params.initial,)


def limit(params: Any, state: State, ahead: int) -> int:
    """N, cut at max_draft."""
    return min(state[0], params.max_draft)


def update(params: Any, state: State, outcome: Outcome) -> State:
    """Two more if all were accepted, else one less, but at least one."""
    n = state[0]
    wanted = n if params.nominal else outcome.drafted
    if outcome.accepted == wanted and not outcome.ended:
        return (n + 2,)
    return (max(1, n - 1),)


@register
@dataclass(frozen=True)
class Heuristic(NumericPolicy):
    """Draft n tokens; then n += 2 if all of them were accepted, else n = max(1, n - 1).

    n has no upper limit, but a draft is cut at max_draft. An accepted EOS counts as "not all
    accepted". An empty draft (no budget left) counts as "all accepted".

    Tripping token: kept (it is token number n). Score: none. State: n, per sequence
    ("transient") or for the whole run ("heuristic"). Feedback: accepted tokens are compared with
    the tokens really drafted ("actual"), or with n, which a draft cut short never reaches
    ("nominal").
    Source: Hugging Face transformers 5 (`AssistedCandidateGenerator`); "nominal" as in 4.37, and
    in SVIP's baseline, which has initial 5.

    Attributes:
        initial: n of the first step.
        schedule: "transient" or "heuristic".
        feedback: "actual" or "nominal".
        max_draft: the longest draft, in tokens.

    Raises:
        PolicyError: an argument is out of range.
    """

    initial: int = whole_number(20, 1)
    schedule: Literal["transient", "heuristic"] = one_of("transient", ("transient", "heuristic"))
    feedback: Literal["actual", "nominal"] = one_of(
        "actual", ("actual", "nominal"), {"nominal": lambda feedback: feedback == "nominal"}
    )
    max_draft: int = whole_number(MAX_DRAFT, 1)

    name = "heuristic"
    slots = Slots(begin=begin, limit=limit, update=update)

    @property
    def carried(self) -> Literal["sequence", "run"]:
        """See `Policy`."""
        return "run" if self.schedule == "heuristic" else "sequence"
