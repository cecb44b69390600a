"""Ask a head while decoding as an engine would: no row of the text is encoded twice."""

from __future__ import annotations

from copy import copy
from pathlib import Path

import torch
from torch import Tensor

from simkit.errors import HeadError
from simkit.heads.files import Head, check_width, load
from simkit.heads.starts import StartHead
from simkit.policies import Policy


class BlockScorer:
    """Scores a draft's newest tokens; `simkit.heads.plain_scorer.PlainScorer` is its judge.

    PACER's head keeps the normed states and the projections (keys and values among them) of all
    rows of the text. Rounding is the judge's: states to float16 before, scores after; the last bit
    may differ, since rows are projected in other batches.

    Args:
        head: or its file.
        device: where it runs.

    Attributes:
        by_start: whether it scores whole blocks (PACER), else rows by themselves.
        lag: see `Head`.

    Raises:
        HeadError: its file is wrong.
    """

    def __init__(self, head: Head | str | Path, device: str | torch.device = "cpu") -> None:
        self.head = head if isinstance(head, Head) else load(head)
        self.by_start, self.lag = self.head.by_start, self.head.lag
        self.module = self.head.network(device)
        weight = next(self.module.parameters())
        self.device, self.dtype = weight.device, weight.dtype
        self.cut(0)

    def another(self) -> BlockScorer:
        """One of the same network that has seen no row."""
        new = copy(self)
        new.cut(0)
        return new

    def cut(self, length: int) -> None:
        """Forget all rows from `length` on: other tokens will stand there."""
        self.length = min(length, getattr(self, "length", 0))

    def score(self, states: Tensor, n_prefix: int, count: int) -> list[float]:
        """Predicted acceptance of the newest tokens, the newest left out if the head has a lag.

        Args:
            states: (n, H), see `PlainScorer.score`; rows that were seen before, and not cut, are
                not looked at again.
            n_prefix: how many of them stand before the draft.
            count: how many tokens to score: those whose scores came with the newest states.

        Raises:
            HeadError: another width.
        """
        with torch.inference_mode():
            if isinstance(self.module, StartHead):
                logits = self._of_block(self.module, states, n_prefix)[-count:]
            else:
                check_width(self.head, states.shape[-1], "this pair")
                logits = self.module(states[-count:].half().to(self.device, self.dtype))
            return logits.sigmoid().float().half().tolist()

    def _of_block(self, module: StartHead, states: Tensor, n_prefix: int) -> Tensor:
        """Logits of the draft's tokens, (n - n_prefix,)."""
        n = len(states)
        if self.length < n:
            check_width(self.head, states.shape[-1], "this pair")
            new = states[self.length :].half().to(self.device, self.dtype)
            self._keep(module.encode(new, self.length), n)
        index = torch.arange(n_prefix, n, device=self.device)[None]
        prefix = torch.tensor([n_prefix], device=self.device)
        normed, projected = (kept[:n] for kept in self._kept)
        return module.score(normed, projected, index, prefix)[0]

    def _keep(self, new: tuple[Tensor, Tensor], n: int) -> None:
        """Put encoded rows behind the first `length`, in buffers that double when they are full."""
        if self.length == 0 or len(self._kept[0]) < n:
            room = max(2 * n, 256)
            grown = tuple(rows.new_empty(room, *rows.shape[1:]) for rows in new)
            if self.length:
                for to, of in zip(grown, self._kept, strict=True):
                    to[: self.length] = of[: self.length]
            self._kept = grown
        for to, of in zip(self._kept, new, strict=True):
            to[self.length : n] = of
        self.length = n


def check_fits(head: object, policy: Policy, depth: int) -> None:
    """Refuse a policy that asks for scores before its head has them, or deeper than it gives any.

    Args:
        head: that the policy reads, or its scorer.
        policy: whose drafts it will score.
        depth: of its deepest drafted token.

    Raises:
        HeadError: as said.
    """
    head = head.head if isinstance(head, BlockScorer) else head
    if not isinstance(head, Head):
        return
    if head.lag > policy.lag:
        raise HeadError(
            f"{policy}: its head {policy.head} judges a token from the state that has consumed it,"
            " a token late: give lag=1"
        )

    if head.by_start and depth > (most := head.options["max_depth"]):
        raise HeadError(
            f"{policy} drafts up to {depth} tokens, but its head {policy.head} scores up to {most}:"
            f" give max_draft={most}"
        )
