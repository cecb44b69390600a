"""The passes of a draft model that a draft takes, and the tokens in each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import numpy as np

Passes = Literal["token", "draft", "chain", "block", "none"]
"""How many passes of the draft model a draft takes.

One a "token"; one a "draft", over as many masks as it asks for; a "chain": one a token, of which
the first encodes the kept tokens anew; one over a "block" that always has room for Γ tokens; or
"none".
"""

Form = Literal["kept", "padded", "last"]
"""What the one pass over a draft of K tokens holds, which engines do differently.

"kept": the u tokens that were kept since the last draft, and K - 1 masks. "padded": room for all
K + 1 tokens of the last verification, whatever was kept of it, and K - 1 masks. "last": the last
known token, and K masks.
"""


class DraftPasses(NamedTuple):
    """Passes of the draft model over drafts of any shape S, at most P over each, in order.

    Attributes:
        tokens: (*S, P) whole numbers, in each pass; 0 where there is none.
        behind: (*S, P) known tokens before each pass, less those known when its draft starts.
    """

    tokens: np.ndarray
    behind: np.ndarray


class Opening(NamedTuple):
    """A draft's first pass, where the drafter has yet to read u known tokens as its draft starts.

    It is over `draft` * K + `unread` * u + `more` tokens, K of them asked for.

    Attributes:
        draft: see above.
        unread: see above.
        more: see above.
        back: 1 if it stands behind what the drafter has read, u - 1 fewer tokens than are known; 0
            if behind all that are known.
        each: whether every further token has a pass of its own; if not, this one yields them all.
    """

    draft: int
    unread: int
    more: int
    back: int = 1
    each: bool = False

    def tokens(self, asked: Any, unread: Any) -> Any:
        """In the pass."""
        return self.draft * asked + self.unread * unread + self.more


_FORMS: dict[Form, Opening] = {
    "kept": Opening(1, 1, -1),
    "padded": Opening(2, 0, 0),
    "last": Opening(1, 0, 1, back=0),
}
FORMS = tuple(_FORMS)


Paid = Passes | Opening | Callable[[np.ndarray, np.ndarray | int], DraftPasses]
"""How drafts are paid: one of the words, what opens a draft, or what gives the passes over drafts
of so many tokens."""


def opened(paid: Paid, form: Form = "kept", max_draft: int | None = None) -> Paid:
    """How drafts are paid, with an `Opening` in the place of a word that stands for one.

    Args:
        paid: see there.
        form: of a pass that yields a whole draft.
        max_draft: Γ, for the room in a block.

    Raises:
        ValueError: a block's Γ is not given.
    """
    if paid == "draft":
        return _FORMS[form]
    if paid == "chain":
        return Opening(0, 1, 0, each=True)
    if paid == "block" and max_draft is None:
        raise ValueError("a block's Γ is needed")
    return Opening(0, 1, max_draft or 0) if paid == "block" else paid


def passes_of(paid: Paid, tokens: np.ndarray, unread: np.ndarray | int = 1) -> DraftPasses:
    """The passes over drafts.

    One a token: each is over one token, the one that was drafted before it or, the first, the last
    known one. One for K tokens: it is over K - 1 masks and the known tokens that the model has not
    read yet, so that fewer than at the draft's start stand before it. A chain's first pass is over
    those tokens, its others over one. An empty draft takes none.

    Args:
        paid: see there.
        tokens: K, in each draft; whole numbers, any shape S.
        unread: known tokens that the model has not read when its draft starts, >= 1; broadcasts.
    """
    paid = opened(paid)
    if callable(paid):
        return paid(tokens, unread)
    k, new = np.broadcast_arrays(np.asarray(tokens)[..., None], np.asarray(unread)[..., None])
    if paid == "none":
        return DraftPasses(k[..., :0], new[..., :0])
    each = paid == "token" or (isinstance(paid, Opening) and paid.each)
    number = np.arange(int(np.max(k, initial=0)) if each else 1)
    made = (number < k).astype(np.int64)
    behind = np.broadcast_to(number, made.shape)
    if not isinstance(paid, Opening):
        return DraftPasses(made, behind)
    first = number == 0
    return DraftPasses(
        np.where(first & (k > 0), paid.tokens(k, new), made),
        np.where(first, paid.back * (1 - new), behind),
    )


def counted(paid: Passes | Opening, tokens: np.ndarray, drafts: np.ndarray) -> np.ndarray:
    """How many passes so many drafts, none of them empty, take with so many tokens in all."""
    if paid == "none":
        return 0 * np.asarray(drafts)
    each = paid.each if isinstance(paid, Opening) else paid in ("token", "chain")
    return tokens if each else drafts
