"""What steps did, for a cost to price."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from traces.errors import TraceError


@dataclass(frozen=True, eq=False)
class Meanwhile:
    """What the draft did while the target verified, as in PEARL.

    Attributes:
        tokens: (N,) that were drafted, behind all tokens of the target's pass.
        unread: (N,) or 1; tokens that the draft had not read when it began, >= 1.
        overlaps: whether draft and target run at once in any step, and so communicate in all.
        colocated: whether both models share a device, so that their passes take turns.
    """

    tokens: np.ndarray
    unread: np.ndarray | int
    overlaps: bool
    colocated: bool


@dataclass(frozen=True, eq=False)
class Work:
    """What N steps did. Every family of policies gives it, and a cost prices nothing else.

    A step drafts, then the target verifies. The draft is asked for tokens; how many passes that
    takes depends on the drafter (`traces.drafters.passes`). A tree has further passes, one a level.

    Attributes:
        context: (N,) int64, known tokens before each step: prompt and output.
        verified: (N,) tokens in the target's pass: the last known one and those proposed.
        asked: (N,) tokens that the draft was asked for before the target's pass.
        unread: (N,) or 1; known tokens that the draft had not read when it began, >= 1.
        decisions: (N,) of the policy, a head's call included in each.
        widths: (N, P) nodes in each further pass of the draft, pass k behind `context` + k + 1
            tokens; None where there are none.
        again: (N,) or one bool; whether the draft reads the verified batch once more, without
            drafting.
        missed: (N,) tokens of steps in which another drafter drafted, which a drafter that drafts
            token by token reads with its first pass; None where there is no other.
        beside: what the draft did while the target verified; None where they take turns.
        reads: gives `experts`; None where it is not known which rows a pass holds.
    """

    context: np.ndarray
    verified: np.ndarray
    asked: np.ndarray
    unread: np.ndarray | int
    decisions: np.ndarray
    widths: np.ndarray | None = None
    again: np.ndarray | bool = False
    missed: np.ndarray | None = None
    beside: Meanwhile | None = None
    reads: Callable[[], np.ndarray] | None = None

    @cached_property
    def experts(self) -> np.ndarray:
        """(N,) pairs of a layer and an expert that the target's pass reads, each once.

        Raises:
            TraceError: the trace does not say.
        """
        if self.reads is None:
            raise TraceError("the experts that passes read are not known of trees and of routes")
        return self.reads()
