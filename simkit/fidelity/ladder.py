"""Drafts of many lengths in turn, so that verifications of all sizes are timed in place."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

from simkit.policies import NumericPolicy, Outcome, Slots
from simkit.policies.base import State
from traces.sampler import Sampler


class LadderParams(NamedTuple):
    """See `Ladder`."""

    lengths: tuple[int, ...]


def begin(params: Any, sequence: int) -> State:
    """The state is k; sequences begin at different ones."""
    return (sequence % len(params.lengths),)


def limit(params: Any, state: State, ahead: int) -> int:
    """The length at hand."""
    return params.lengths[state[0]]


def update(params: Any, state: State, outcome: Outcome) -> State:
    """The next one, round and round."""
    return ((state[0] + 1) % len(params.lengths),)


@dataclass(frozen=True)
class Ladder(NumericPolicy):
    """Step k drafts lengths[k] tokens, and after the last one the first again.

    It is no policy to decode with: it looks at no token and serves calibration only.

    Attributes:
        lengths: tokens, >= 1.
    """

    lengths: tuple[int, ...] = (1, 2, 3, 4, 6, 8, 11, 16, 24, 40)

    name = "ladder"
    slots = Slots(begin=begin, limit=limit, update=update)

    @property
    def max_draft(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        """See `Policy`."""
        return max(self.lengths)

    @cached_property
    def params(self) -> LadderParams:
        """See `NumericPolicy`."""
        return LadderParams(self.lengths)

    def columns(self, sampler: Sampler) -> tuple[str, ...]:
        """See `Policy`."""
        return ()

    def __str__(self) -> str:
        return self.name
