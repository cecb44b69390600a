"""Seconds of drafts in tables, for whole traces: what `Times.drafts` gives, faster."""

from __future__ import annotations

import numpy as np

from simkit.costs.base import Times
from simkit.errors import CostError
from traces.drafters.passes import Opening, Paid, opened

LONGEST_S = 1e9  # of one pass; sums of them stay finite
CELLS = 2**25  # of a table of passes; above that each step is asked for


class Drafting:
    """What drafts on one trace take.

    Where a draft has one pass for all its tokens, they are those that it was asked for, whatever a
    rule that reads them makes of them: it chooses how many of them are verified.

    Attributes:
        paid: how drafts are paid; with the opening that the cost's form of a pass gives.
        once_s: (C,) what a step pays the draft once, at each context; without a model, for its
            proposal.
        sum_s: (C + 1,) passes over one token at all contexts below c, summed; zeros unless each
            token has a pass.
        before_s: (C + 1,) `sum_s` less `once_s`, so that one difference gives both.

    Args:
        times: of the trace.
        paid: of the layout.
        contexts: (C,) 0, 1, … to the longest one.
        max_draft: Γ.

    Raises:
        CostError: a time is negative or not finite.
    """

    def __init__(self, times: Times, paid: Paid, contexts: np.ndarray, max_draft: int) -> None:
        self.paid: Paid = opened(paid, times.parallel, max_draft)
        self._times = times
        self._contexts = contexts
        self._table = np.empty((len(contexts), 0))  # of `blocks`, as wide as was asked for so far
        self.once_s = np.zeros(len(contexts))
        self.sum_s = np.zeros(len(contexts) + 1)
        if paid == "none":
            self.once_s = checked("draft", np.array(times.proposal()), contexts)
        else:
            each_s = checked("draft", times.draft(contexts), contexts)
            self.once_s = checked("draft", times.draft_step(contexts), contexts)
        if paid == "token" or (self.opening and self.opening.each):
            self.sum_s = summed(each_s)
        paid_once = bool(self.once_s.any())
        self.before_s = self.sum_s - np.append(self.once_s, 0.0) if paid_once else self.sum_s

    @property
    def opening(self) -> Opening | None:
        """Of a draft, where it reads what was emitted since the last one."""
        return self.paid if isinstance(self.paid, Opening) else None

    def seconds(
        self, context: np.ndarray, tokens: np.ndarray, unread: np.ndarray | int = 1
    ) -> np.ndarray:
        """Passes of drafts, without what a step pays once; the arguments broadcast.

        Args:
            context: known tokens before each draft.
            tokens: that each was asked for.
            unread: see `traces.drafters.passes.passes_of`.
        """
        if callable(self.paid):
            known, k, new = np.broadcast_arrays(context, tokens, unread)
            passes = self.paid(k, new)
            each_s = self.block(np.maximum(passes.tokens, 1), known[..., None] + passes.behind)
            return np.where(passes.tokens > 0, each_s, 0.0).sum(-1)
        if not (opening := self.opening):
            return self.sum_s[context + tokens] - self.sum_s[context]
        read = np.maximum(opening.tokens(tokens, unread), 1)
        block_s = self.block(read, context - opening.back * (unread - 1))
        if opening.each:
            first = np.minimum(context + 1, len(self._contexts))
            block_s = block_s + self.sum_s[context + tokens] - self.sum_s[first]
        return np.where(tokens > 0, block_s, 0.0)

    def widest(self, tokens: np.ndarray, unread: np.ndarray | int = 1) -> np.ndarray:
        """Tokens of the widest pass over each draft, 0 if there is none; see `seconds`."""
        if callable(self.paid):
            return self.paid(*np.broadcast_arrays(tokens, unread)).tokens.max(-1, initial=0)
        found = opening.tokens(tokens, unread) if (opening := self.opening) else 1
        return np.where((tokens > 0) & (self.paid != "none"), found, 0)

    def block(self, tokens: np.ndarray, context: np.ndarray) -> np.ndarray:
        """A pass over `tokens` at once, behind each context."""
        return checked("draft", self._times.draft_block(tokens, context), tokens, context)

    def blocks(self, most: int) -> np.ndarray | None:
        """The pass over 0, 1, … `most` tokens at every context, (C, most + 1); None if too large.

        Over no tokens it takes no time.
        """
        if (most + 1) * len(self._contexts) > CELLS:
            return None
        table = self._table
        if most >= table.shape[1]:  # another thread may put a smaller one there meanwhile
            tokens = np.arange(most + 1)
            table = self.block(np.maximum(tokens, 1), self._contexts[:, None])
            table = self._table = np.where(tokens > 0, table, 0.0)
        return table


def summed(seconds: np.ndarray) -> np.ndarray:
    """Sums over all entries before each one, and over all of them."""
    return np.concatenate([[0.0], np.cumsum(seconds)])


def checked(what: str, seconds: np.ndarray, *asked: np.ndarray | int) -> np.ndarray:
    """Seconds of passes, float64: a number for each pass that was asked for.

    Args:
        what: of a pass.
        seconds: as a cost gives them, which may be the same for some passes, or for all.
        asked: what they were asked for; their broadcast shape is that of the result.

    Raises:
        CostError: one is negative or not finite, or they do not fit what was asked for.
    """
    shape = np.broadcast_shapes(*map(np.shape, asked))
    try:
        seconds = np.ascontiguousarray(np.broadcast_to(np.asarray(seconds, np.float64), shape))
    except ValueError:
        raise CostError(
            f"the cost model gives seconds of shape {np.shape(seconds)} for {what} passes of shape"
            f" {shape}"
        ) from None
    wrong = ~((seconds >= 0) & (seconds < LONGEST_S))
    if wrong.any():
        raise CostError(f"the cost model gives {seconds[wrong].flat[0]} seconds for a {what} pass")
    return seconds
