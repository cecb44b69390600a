"""A draft of constant length (Leviathan et al. 2023, Algorithm 1)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from simkit.errors import PolicyError
from simkit.policies.arguments import check_whole
from simkit.policies.base import (
    MAX_DRAFT,
    NumericPolicy,
    Slots,
)
from simkit.policies.registry import register
from traces.sampler import Sampler


class FixedParams(NamedTuple):
    """See `Fixed`; the length is the bound itself."""

    max_draft: int


@register
@dataclass(frozen=True)
class Fixed(NumericPolicy):
    """Stop after `length` tokens.

    Tripping token: kept (it is token number `length`). Score: none. State: none. Feedback: none.
    Source: Leviathan et al. 2023, "Fast inference from transformers via speculative decoding".

    Attributes:
        length: tokens to draft, 0 to max_draft.
        max_draft: see `Policy`.

    Raises:
        PolicyError: an argument is out of range. A length above max_draft is refused rather than
            cut in silence.
    """

    length: int = 5
    max_draft: int = MAX_DRAFT

    name = "fixed"
    slots = Slots()
    unnamed = True

    def __post_init__(self) -> None:
        check_whole(self, "length", 0)
        check_whole(self, "max_draft", 0)
        if self.length > self.max_draft:
            raise PolicyError(
                f"fixed: length {self.length} is above max_draft {self.max_draft}; if the trace was"
                f" recorded that deep, write fixed({self.length}, max_draft={self.length})"
            )

    @cached_property
    def params(self) -> FixedParams:
        """See `NumericPolicy`."""
        return FixedParams(max_draft=self.length)

    def columns(self, sampler: Sampler) -> tuple[str, ...]:
        """See `Policy`."""
        return ()
