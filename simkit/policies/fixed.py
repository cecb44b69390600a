"""A draft of constant length (Leviathan et al. 2023, Algorithm 1)."""

from __future__ import annotations

from dataclasses import dataclass

from simkit.errors import PolicyError
from simkit.policies.arguments import as_it_is, whole_number
from simkit.policies.base import (
    MAX_DRAFT,
    NumericPolicy,
    Slots,
)
from simkit.policies.registry import register


@register
@dataclass(frozen=True)
class Fixed(NumericPolicy):
    """Draft `length` tokens in every step.

    Tripping token: kept (it is token number `length`). Score: none. State: none. Feedback: none.
    Source: Leviathan et al. 2023, "Fast inference from transformers via speculative decoding".

    Attributes:
        length: tokens to draft, 0 to max_draft.
        max_draft: the longest draft, in tokens.

    Raises:
        PolicyError: an argument is out of range. A length above max_draft is refused rather than
            cut silently.
    """

    length: int = whole_number(5, numbers={"max_draft": as_it_is})
    max_draft: int = whole_number(MAX_DRAFT, numbers={})

    name = "fixed"
    slots = Slots()
    unnamed = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.length > self.max_draft:
            raise PolicyError(
                f"fixed: length {self.length} is above max_draft {self.max_draft}; if the trace was"
                f" recorded that deep, write fixed({self.length}, max_draft={self.length})"
            )
