"""The draft lengths that make the total time shortest: the bound of every sequential policy."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from simkit.errors import PolicyError
from simkit.policies.arguments import whole_number
from simkit.policies.base import (
    MAX_DRAFT,
    NumericPolicy,
    Outcome,
    Setting,
    Slots,
    State,
)
from simkit.policies.registry import register


class ProphetParams(NamedTuple):
    """See `Prophet`.

    Attributes:
        starts: (S,) int64, the row of each sequence's first step.
        lengths: (R,) int32, draft tokens of a step from each on-path row.
        max_draft: see `Policy`.
    """

    starts: np.ndarray
    lengths: np.ndarray
    max_draft: int


def begin(params: Any, sequence: int) -> State:
    """The state is the row at which the coming step starts."""
    return (int(params.starts[sequence]),)


def limit(params: Any, state: State, ahead: int) -> int:
    """What was planned for this start."""
    return int(params.lengths[state[0]])


def update(params: Any, state: State, outcome: Outcome) -> State:
    """The next start; beyond the output's end nobody asks."""
    return (state[0] + outcome.accepted + 1,)


@register
@dataclass(frozen=True)
class Prophet(NumericPolicy):
    """Draft the lengths that make a sequence's total time shortest; needs the future and a cost.

    They are a shortest path over start positions, see `simkit.simulator.shortest_path`. No
    sequential policy whose drafts are at most as long takes less time under the same cost.

    Tripping token: kept (there is none). Score: none. State: where the step starts, per sequence;
    the lengths are fitted to a trace and its cost. Feedback: none.
    Source: ours.

    Attributes:
        max_draft: the longest draft, in tokens.

    Raises:
        PolicyError: an argument is out of range; or there is no cost.
    """

    max_draft: int = whole_number(MAX_DRAFT)

    name = "prophet"
    needs_future = True
    binds_prompts_apart = True
    slots = Slots(begin=begin, limit=limit, update=update)

    def bind(self, setting: Setting) -> Prophet:
        """See `Policy`."""
        setting.costs(self.name)
        lengths = setting.shortest(self.max_draft)
        starts = setting.layout.offsets[:-1] + setting.first - 1
        for array in (starts, lengths):
            array.flags.writeable = False
        bound = replace(self)
        vars(bound)["params"] = ProphetParams(starts, lengths, self.max_draft)
        return bound

    @cached_property
    def params(self) -> ProphetParams:
        """See `NumericPolicy`; `bind` sets them."""
        raise PolicyError(f"{self.name} must be fitted to a trace and a cost: replay it")
