"""The longest draft that is accepted whole (PACER §3.1.2)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

from simkit.policies.arguments import check_whole
from simkit.policies.base import (
    MAX_DRAFT,
    NumericPolicy,
    Slots,
    State,
)
from simkit.policies.registry import register
from traces.sampler import Sampler


class OracleParams(NamedTuple):
    """See `Oracle`."""

    max_draft: int


def limit(params: Any, state: State, ahead: int) -> int:
    """As many tokens as will be accepted."""
    return min(ahead, params.max_draft)


@register
@dataclass(frozen=True)
class Oracle(NumericPolicy):
    """Draft exactly the tokens that will be accepted, possibly none; needs the future.

    An EOS that will be accepted is drafted too. No rejected token is ever drafted, so no branch
    is read.

    Tripping token: kept. Score: none. State: none. Feedback: none.
    Source: PACER §3.1.2.

    Attributes:
        max_draft: see `Policy`.

    Raises:
        PolicyError: an argument is out of range.
    """

    max_draft: int = MAX_DRAFT

    name = "oracle"
    needs_future = True
    slots = Slots(limit=limit)

    def __post_init__(self) -> None:
        check_whole(self, "max_draft", 0)

    @cached_property
    def params(self) -> OracleParams:
        """See `NumericPolicy`."""
        return OracleParams(self.max_draft)

    def columns(self, sampler: Sampler) -> tuple[str, ...]:
        """See `Policy`."""
        return ()
