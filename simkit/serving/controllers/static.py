"""Lengths that do not change: none at all, one for all, and one that large batches switch off."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from simkit.policies.arguments import whole_number
from simkit.serving.controllers.base import ByLength, Slots, View, register

if TYPE_CHECKING:
    from simkit.serving.prices import Prices


def _nothing(params: Any, state: Any, view: View, prices: Prices, drafted: np.ndarray) -> None:
    drafted[:] = 0


@register
@dataclass(frozen=True)
class Nothing(ByLength):
    """Decode with the target alone, at the price of its decoding passes: the usual baseline."""

    max_draft: int = field(default=0, init=False)

    name = "none"
    source = "every engine"
    slots = Slots(_nothing)
    speculative = False


def _static(params: Any, state: Any, view: View, prices: Prices, drafted: np.ndarray) -> None:
    drafted[:] = params.length


@register
@dataclass(frozen=True)
class Static(ByLength):
    """Draft the same length for every request in every step.

    Attributes:
        length: K.
    """

    length: int = whole_number(3)

    name = "static"
    source = "every engine"
    slots = Slots(_static)

    @property
    def max_draft(self) -> int:  # type: ignore[override]
        """See `Controller`."""
        return self.length


def _off_above(params: Any, state: Any, view: View, prices: Prices, drafted: np.ndarray) -> None:
    drafted[:] = params.length if len(drafted) <= params.batch else 0


@register
@dataclass(frozen=True)
class OffAbove(ByLength):
    """Draft a fixed length, but nothing in batches of more than `batch` requests.

    Attributes:
        length: K.
        batch: the largest batch that drafts.
    """

    length: int = whole_number(3)
    batch: int = whole_number(32)

    name = "off_above"
    source = "vLLM's earlier speculative_disable_by_batch_size"
    slots = Slots(_off_above)

    @property
    def max_draft(self) -> int:  # type: ignore[override]
        """See `Controller`."""
        return self.length


def _prophet(params: Any, state: Any, view: View, prices: Prices, drafted: np.ndarray) -> None:
    drafted[:] = np.minimum(view.ahead, params.max_draft)


@register
@dataclass(frozen=True)
class ProphetLengths(ByLength):
    """Draft exactly the tokens of each request that will be accepted; needs the future.

    It wastes no token, so no controller has fewer verified tokens or more tokens a step. It bounds
    throughput only where drafting is paid by the request: a batch waits for its longest draft.

    Attributes:
        max_draft: the longest draft.
    """

    max_draft: int = whole_number(16)

    name = "prophet"
    source = "a bound of what lengths can do"
    slots = Slots(_prophet)
    needs_future = True
