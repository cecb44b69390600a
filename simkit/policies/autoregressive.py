"""No draft at all: the baseline, run through the loop of speculative decoding."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from simkit.policies.base import NumericPolicy, Slots
from simkit.policies.registry import register
from traces.sampler import Sampler


class AutoregressiveParams(NamedTuple):
    """No numbers but the bound that every policy has."""

    max_draft: int


@register
@dataclass(frozen=True)
class Autoregressive(NumericPolicy):
    """Draft nothing: every step is a plain pass of the target that emits one token.

    Tripping token: there is none. Score: none. State: none. Feedback: none.
    """

    name = "autoregressive"
    slots = Slots()
    max_draft = 0

    @cached_property
    def params(self) -> AutoregressiveParams:
        """See `NumericPolicy`."""
        return AutoregressiveParams(max_draft=0)

    def columns(self, sampler: Sampler) -> tuple[str, ...]:
        """See `Policy`."""
        return ()
