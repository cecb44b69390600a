"""The passes of a draft model that a draft takes, and the tokens in each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, NamedTuple

import numpy as np

Passes = Literal["token", "draft", "none"]
"""How many passes of the draft model a draft takes: one a token, one for all of them, or none."""


class DraftPasses(NamedTuple):
    """Passes of the draft model over drafts of any shape S, at most P over each, in order.

    Attributes:
        tokens: (*S, P) whole numbers, in each pass; 0 where there is none.
        behind: (*S, P) known tokens before each pass, less those known when its draft starts.
    """

    tokens: np.ndarray
    behind: np.ndarray


Paid = Passes | Callable[[np.ndarray, np.ndarray | int], DraftPasses]
"""How drafts are paid: one of the words, or what gives the passes over drafts of so many tokens."""


def passes_of(paid: Paid, tokens: np.ndarray, unread: np.ndarray | int = 1) -> DraftPasses:
    """The passes over drafts.

    One a token: each is over one token, the one that was drafted before it or, the first, the last
    known one. One for K tokens: it is over K - 1 masks and the known tokens that the model has not
    read yet, so that fewer than at the draft's start stand before it. An empty draft takes none.

    Args:
        paid: see there.
        tokens: K, in each draft; whole numbers, any shape S.
        unread: known tokens that the model has not read when its draft starts, >= 1; broadcasts.
    """
    if callable(paid):
        return paid(tokens, unread)
    k, new = np.broadcast_arrays(np.asarray(tokens)[..., None], np.asarray(unread)[..., None])
    if paid == "token":
        number = np.arange(int(np.max(k, initial=0)))
        return DraftPasses(
            (number < k).astype(np.int64), np.broadcast_to(number, (number < k).shape)
        )
    if paid == "draft":
        return DraftPasses(np.where(k > 0, k - 1 + new, 0), 1 - new)
    return DraftPasses(k[..., :0], new[..., :0])


def counted(paid: Passes, tokens: np.ndarray, drafts: np.ndarray) -> np.ndarray:
    """How many passes so many drafts, none of them empty, take with so many tokens in all."""
    return {"token": tokens, "draft": drafts, "none": 0 * np.asarray(drafts)}[paid]
