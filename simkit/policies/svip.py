"""Stop where the draft model is unsure of itself (SVIP, Algorithm 1)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from simkit.policies.arguments import real_number, whole_number
from simkit.policies.base import (
    MAX_DRAFT,
    NumericPolicy,
    Row,
    Slots,
    State,
)
from simkit.policies.registry import register


def trips(params: Any, state: State, depth: int, row: Row) -> tuple[bool, State]:
    """Whether sqrt(scale * H) > h; an entropy rounded below 0 counts as 0."""
    return params.scale * row[0] > params.most, state


def largest_square(h: float) -> float:
    """The largest number whose square root does not exceed h, as floating point has it.

    So `x > largest_square(h)` and `sqrt(x) > h` are the same test, and a replay takes no roots.
    """
    x = h * h
    while math.sqrt(x) > h:
        x = math.nextafter(x, 0)
    while math.sqrt(math.nextafter(x, math.inf)) <= h:
        x = math.nextafter(x, math.inf)
    return x


@register
@dataclass(frozen=True)
class SVIP(NumericPolicy):
    """Stop if sqrt(scale * H(q)) > h, where H(q) is the draft's entropy at temperature 1.

    Greedy decoding uses the entropy at temperature 1, too.

    Tripping token: kept. Score: of the distribution that the token was drawn from, no lag. State:
    none. Feedback: none.
    Source: SVIP, Algorithm 1. The paper picks h from 0.2-0.5 with scale 1; its code has scale
    0.15 and h 0.3.

    Attributes:
        h: threshold, >= 0.
        scale: factor of the entropy, >= 0.
        max_draft: the longest draft, in tokens.

    Raises:
        PolicyError: an argument is out of range.
    """

    h: float = real_number(0.4, 0, numbers={"most": largest_square})
    scale: float = real_number(1.0, 0)
    max_draft: int = whole_number(MAX_DRAFT)

    name = "svip"
    slots = Slots(trips=trips)
    reads = ("draft_entropy",)
