"""No draft at all: the baseline, run through the loop of speculative decoding."""

from __future__ import annotations

from dataclasses import dataclass

from simkit.policies.base import NumericPolicy, Slots
from simkit.policies.registry import register


@register
@dataclass(frozen=True)
class Autoregressive(NumericPolicy):
    """Draft nothing: every step is a plain pass of the target that emits one token.

    Tripping token: there is none. Score: none. State: none. Feedback: none.
    """

    name = "autoregressive"
    slots = Slots()
    max_draft = 0
