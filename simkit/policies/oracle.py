"""The longest draft that is accepted whole (PACER §3.1.2)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from simkit.policies.arguments import whole_number
from simkit.policies.base import (
    MAX_DRAFT,
    NumericPolicy,
    Slots,
    State,
)
from simkit.policies.registry import register


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
        max_draft: the longest draft, in tokens.

    Raises:
        PolicyError: an argument is out of range.
    """

    max_draft: int = whole_number(MAX_DRAFT)

    name = "oracle"
    needs_future = True
    slots = Slots(limit=limit)
