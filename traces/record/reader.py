"""A model that reads texts in the rows of one cache, so that they come, go and are cut.

Rows begin at slot 0 and are as long as they are: what was read of a text is cut by forgetting it. A
pass over several texts pads shorter blocks behind their end, with slots that no one sees and the
next pass writes over.

Behind a text that is alone in its cache stand the rows of a tree, in the order of the passes,
wherever they stand in the tree: a mask says who sees whom, a position is the text's length and the
node's depth. What is accepted is moved to where text stands, and the rest is forgotten. A chain is
a tree of width one, which needs no mask.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedModel

from traces.record.cache import Buffer, SlotPlace
from traces.record.forward import embedding, packed_pass

ROOM = 512  # slots at first


class Slots:
    """The cache of a network of some layers, and how far the texts in its rows go.

    Args:
        n_layers: of the network.

    Attributes:
        cache: as transformers takes it.
        rows: texts at most.
        lengths: slots that hold text, of each row in use; rows of a tree stand behind them.
    """

    def __init__(self, n_layers: int) -> None:
        self.cache, self.n_layers, self.rows = Buffer(n_layers, ROOM, 1), n_layers, 1
        self.lengths: list[int] = []

    def begin(self, rows: int = 1, room: int = ROOM) -> None:
        """Forget all texts; as many as `rows` may come, of `room` tokens or more."""
        self.lengths.clear()
        if rows > self.rows:
            self.cache, self.rows = Buffer(self.n_layers, room, rows), rows
        self.cache.cut(0)
        self.cache.reserve(room)

    def open(self) -> None:
        """Begin a text behind the last row."""
        self.lengths.append(0)
        if self.rows == 1:
            self.cache.cut(0)

    def close(self, row: int) -> None:
        """End a row's text; the last row's takes its place."""
        last = len(self.lengths) - 1
        if row < last:
            length = self.lengths[row] = self.lengths[last]
            with torch.inference_mode():
                self.cache.copy(last, torch.arange(length), row, slice(length))
        self.lengths.pop()

    def cut(self, lengths: Sequence[int]) -> None:
        """Forget what was read of the first rows' texts beyond so many tokens, and trees."""
        for row, length in enumerate(lengths):
            self.lengths[row] = min(self.lengths[row], length)
        if self.rows == 1:
            self.cache.cut(self.lengths[0])

    def place(
        self, first: int, widths: Sequence[int], device: torch.device
    ) -> tuple[Tensor, Tensor]:
        """Say where a pass over blocks of some rows belongs; makes room for it.

        Args:
            first: of the rows.
            widths: (B,) of their blocks, n at most.
            device: where the pass begins.

        Returns:
            the positions of the tokens (B, n), pads at those of the tokens before them; and what
            each may attend to, (B, 1, n, slots) bool.
        """
        before = torch.tensor(self.lengths[first : first + len(widths)])[:, None]
        own, n = torch.tensor(widths)[:, None], max(widths)
        slots = before + torch.arange(n)
        width = int(slots.max()) + 1
        self.cache.reserve(width)
        rows = slice(first, first + len(widths))
        row = torch.arange(rows.start, rows.stop, device=device)[:, None]
        place = SlotPlace(rows, row, slots.to(device), width)
        for buffer in self.cache.buffers:
            buffer.place = place
        mask = torch.arange(width) <= slots[..., None]
        return torch.minimum(slots, before + (own - 1).clamp_min(0)), mask[:, None]

    def mask(self, sees: np.ndarray) -> Tensor:
        """What each row of a tree's pass may attend to, (1, n, slots) bool; makes room for it.

        Args:
            sees: (n, rows of the tree so far + n) bool; the text is seen by all.
        """
        n, behind = sees.shape
        (text,) = self.lengths
        self.cache.reserve(text + behind)
        found = np.ones((1, n, text + behind), np.bool_)
        found[0, :, text:] = sees
        return torch.from_numpy(found)

    @torch.inference_mode()
    def keep(self, rows: Sequence[int]) -> None:
        """Make text of some rows of the tree, in ascending order, and forget the others."""
        (text,) = self.lengths
        places = [text + row for row in rows]
        end = self.lengths[0] = text + len(places)
        if places and places[-1] >= end:
            self.cache.copy(0, torch.tensor(places), 0, slice(text, end))
        self.cache.cut(end)


class Reader:
    """A causal LM, and the texts that it reads.

    Args:
        model: in eval mode, proved (`traces.record.proof`).
        vocab_size: ids beyond it are cut from the logits.
        states: what keeps states of the passes, `LastStates` or `Layers`; None: nothing.

    Attributes:
        slots: its cache.
        lengths: tokens read of the text in each row.
    """

    def __init__(self, model: PreTrainedModel, vocab_size: int, states: Any = None) -> None:
        self.model, self.vocab_size = model, vocab_size
        self.device = embedding(model).weight.device
        self.slots = Slots(model.config.num_hidden_layers)
        self.lengths = self.slots.lengths
        self._states = states

    @property
    def states(self) -> Tensor:
        """Those of the last pass, (n, F) of its first text."""
        return self._states.joined()[0]

    def read(self, blocks: Sequence[Sequence[int]], keep: int = 1, first: int = 0) -> Tensor:
        """Append tokens to the texts of some rows, one block each, maybe not equally many.

        Args:
            blocks: of the rows from `first` on.
            keep: places whose logits are wanted.
            first: row.

        Returns:
            (B, keep, V): logits after the last `keep` tokens of the longest block; those behind
            the end of a shorter one mean nothing.
        """
        if self.slots.rows == 1:
            length = self.lengths[0] + len(blocks[0])
            self.slots.cache.reserve(length)
            found = self._pass(blocks, keep, None, None)
            self.lengths[0] = length
            return found
        widths = list(map(len, blocks))
        n = max(widths)
        positions, mask = self.slots.place(first, widths, self.device)
        padded = [[*block] + [0] * (n - len(block)) for block in blocks]
        found = self._pass(padded, keep, positions, mask)
        for row, width in enumerate(widths, first):
            self.lengths[row] += width
        return found

    def behind(self, blocks: Sequence[Sequence[int]], first: int = 0) -> Tensor:
        """As `read`, but the logits (B, V) after the end of each block that is not empty."""
        if len(blocks) == 1:
            return self.read(blocks, 1, first)[:, 0]
        widths = [max(1, len(block)) for block in blocks]
        shorter = max(widths) - min(widths)
        logits = self.read(blocks, shorter + 1, first)
        if not shorter:
            return logits[:, 0]
        last = torch.tensor(widths, device=logits.device) - min(widths)
        return logits[torch.arange(len(blocks), device=logits.device), last]

    def branch(self, tokens: Sequence[int], depth: np.ndarray, sees: np.ndarray) -> Tensor:
        """Run rows of a tree behind the only text; the logits (n, V) behind each.

        Args:
            tokens: n of them.
            depth: (n,), 0 of what stands right behind the text.
            sees: see `Slots.mask`.
        """
        position = torch.from_numpy(depth.astype(np.int64) + self.lengths[0])[None]
        return self._pass([tokens], len(tokens), position, self.slots.mask(sees)[None])[0]

    def _pass(
        self,
        blocks: Sequence[Sequence[int]],
        keep: int,
        positions: Tensor | None,
        mask: Tensor | None,
    ) -> Tensor:
        tokens = torch.tensor(blocks, device=self.device)
        with torch.inference_mode(), self._states or nullcontext():
            logits = packed_pass(self.model, self.slots.cache, tokens, positions, mask, keep)
        return logits[..., : self.vocab_size]
