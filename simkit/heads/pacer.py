"""The PACER head: one transformer layer over the draft's states (PACER paper, section 3.2)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from simkit.heads.registry import Kind, register
from simkit.heads.starts import StartHead

Attention = Literal["full", "local-draft", "local-block"]
ATTENTION = ("full", "local-draft", "local-block")
TextPosition = Literal["none", "rope"]
TEXT_POSITION = ("none", "rope")
_BASE = 10000.0  # of the rotations, as in LLaMA


class PacerHead(StartHead):
    """Scores the token at depth j of the draft that starts at position i.

    It attends to the states of the prompt and of y_<i, as they are, and to those of the draft's own
    tokens 1 … j, each with the embedding of its depth added (eq. 7). The states come out of the
    draft model's final norm, so one norm of ours is applied to each row by itself and the depth is
    added behind it: projections are then sums of a row's and a depth's, and are shared by all
    drafts that run through a row. The sizes in the paper (Table 9) are those of one decoder
    layer of the draft's family with embeddings of its own; such a layer has rotary positions, which
    `text_position="rope"` adds to queries and keys.

    The packed pass is the masked sequence of the paper's appendix D, with the blocks that the mask
    makes zero left out: keys and values of the text are there once, for all drafts.

    Args:
        width: H, of the draft's states.
        max_depth: deepest token that has an embedding.
        position_embedding: add the depth (off: the paper's ablation, Table 5).
        attention: "full", or only this draft ("local-draft"), or only the current block of it.
        block: b, tokens of a block; only "local-block" uses it.
        text_position: "rope" turns queries and keys by their place in prompt, output and draft;
            with "none" the states alone know it.
    """

    def __init__(
        self,
        width: int,
        max_depth: int = 40,
        position_embedding: bool = True,
        attention: Attention = "full",
        block: int = 4,
        text_position: TextPosition = "rope",
    ) -> None:
        super().__init__()
        self.attention, self.block, self.max_depth = attention, block, max_depth
        self.n_heads = next(n for n in range(max(1, width // 32), 0, -1) if width % n == 0)
        self.norm = nn.LayerNorm(width)
        self.depth = nn.Embedding(max_depth, width) if position_embedding else None
        self.turn = Turn(width // self.n_heads) if text_position == "rope" else None
        self.project = nn.Linear(width, 3 * width, bias=False)
        self.merge = nn.Linear(width, width)
        self.norm_mlp = nn.LayerNorm(width)
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)
        self.norm_out = nn.LayerNorm(width)
        self.out = nn.Linear(width, 1)
        if self.depth is not None:
            nn.init.normal_(self.depth.weight, std=0.02)

    def encode(self, rows: Tensor, first: int = 0) -> tuple[Tensor, Tensor]:
        """See `StartHead`: normed (N, H), and (N, 4, heads, H / heads).

        The four are queries, keys and values, and the keys that rows of the text have there.
        """
        states = self.norm(rows)
        own = self._heads(self.project(states))
        place = torch.arange(first, first + len(rows), device=rows.device)
        return states, torch.cat([own, self._placed(own[:, 1:2], place[:, None, None])], 1)

    def score(self, states: Tensor, heads: Tensor, index: Tensor, n_prefix: Tensor) -> Tensor:
        """See `StartHead`."""
        tokens, own = states[index], heads[index, :3]
        if self.depth is not None:
            depth = self.depth.weight[: index.shape[1]]
            tokens, own = tokens + depth, own + self._heads(self.project(depth))
        n_text = int(n_prefix.max()) if self.attention == "full" else 0
        mixed = self._attend(own, heads[:n_text], n_prefix)
        x = tokens + self.merge(mixed)
        x = x + self.down(functional.silu(self.up(self.norm_mlp(x))))
        return self.out(self.norm_out(x))[..., 0]

    def _heads(self, projected: Tensor) -> Tensor:
        return projected.unflatten(-1, (3, self.n_heads, -1))

    def _placed(self, x: Tensor, place: Tensor) -> Tensor:
        """Rows (..., d) at their places in the text, (...)."""
        return x if self.turn is None else self.turn(x, place)

    def _attend(self, own: Tensor, text: Tensor, n_prefix: Tensor) -> Tensor:
        """Mix the values that each draft token sees.

        Args:
            own: (S, D, 3, heads, d) queries, keys, values of the drafts.
            text: (C, 4, heads, d) of the text, as encoded.
            n_prefix: (S,), how many of these C each draft sees.

        Returns:
            (S, D, H).
        """
        n_drafts, deep = own.shape[:2]
        own = own.permute(2, 3, 0, 1, 4)  # (3, heads, S, D, d)
        place = n_prefix[:, None] + torch.arange(deep, device=own.device)
        (q, k), v = self._placed(own[:2], place), own[2]  # each (heads, S, D, d)
        q = q * q.shape[-1] ** -0.5
        local = (q @ k.mT).masked_fill_(~self._local_mask(deep, q.device), -torch.inf)
        if not len(text):
            mixed = local.softmax(-1) @ v
            return mixed.permute(1, 2, 0, 3).flatten(2)
        text_v, text_k = text[:, 2:].permute(1, 2, 0, 3)  # each (heads, C, d)
        prefix = (q.flatten(1, 2) @ text_k.mT).unflatten(1, (n_drafts, deep))
        beyond = torch.arange(len(text), device=q.device) >= n_prefix[:, None]
        prefix.masked_fill_(beyond[:, None], -torch.inf)
        weight = torch.cat([prefix, local], -1).softmax(-1)  # (heads, S, D, C + D)
        of_text, of_draft = weight.split([len(text), deep], -1)
        mixed = (of_text.flatten(1, 2) @ text_v).unflatten(1, (n_drafts, deep)) + of_draft @ v
        return mixed.permute(1, 2, 0, 3).flatten(2)

    def _local_mask(self, deep: int, device: torch.device) -> Tensor:
        """(D, D) bool: which tokens of its own draft a token sees."""
        depth = torch.arange(deep, device=device)
        sees = depth[:, None] >= depth
        if self.attention == "local-block":
            sees = sees & (depth[:, None] // self.block == depth // self.block)
        return sees


class Turn:
    """Rotary position code: each pair of numbers turned by an angle that grows with the place.

    Args:
        size: d, of the rows; of an odd d the last number stays as it is.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self._known = torch.empty(0, 2, size)

    def __call__(self, x: Tensor, place: Tensor) -> Tensor:
        """Rows (..., d) turned by their places in the text: whole numbers, (...)."""
        half = self.size // 2
        last = int(place.max()) + 1 if place.numel() else 0
        cos, sin = self._table(last, x)[place].unbind(-2)
        a, b, rest = x.split([half, half, self.size - 2 * half], -1)
        return x * cos + torch.cat([b, a, rest], -1) * sin

    def _table(self, n: int, like: Tensor) -> Tensor:
        """(n or more, 2, d): cosines, and sines with the signs of the two halves."""
        known = self._known
        if len(known) < n or known.dtype != like.dtype or known.device != like.device:
            with torch.inference_mode(False):
                self._known = self._made(max(512, 2 * n), like)
        return self._known

    def _made(self, n: int, like: Tensor) -> Tensor:
        half = self.size // 2
        power = torch.arange(half, device=like.device, dtype=like.dtype) / max(1, half)
        place = torch.arange(n, device=like.device, dtype=like.dtype)
        angle = torch.outer(place, _BASE**-power)
        rest = angle.new_zeros(n, self.size - 2 * half)
        cos = torch.cat([angle.cos(), angle.cos(), rest + 1], -1)
        return torch.stack([cos, torch.cat([-angle.sin(), angle.sin(), rest], -1)], 1)


def _build(width: int, options: Mapping[str, Any]) -> nn.Module:
    return PacerHead(width, **options)


PACER = register(
    Kind(
        name="pacer",
        policy="pacer",
        options={
            "max_depth": 40,
            "position_embedding": True,
            "attention": "full",
            "block": 4,
            "text_position": "rope",
        },
        build=_build,
        by_start=True,
        limits={"max_depth": (1, 1024), "block": (1, 1024)},
        words={"attention": ATTENTION, "text_position": TEXT_POSITION},
        learning_rate=2e-3,
    )
)
