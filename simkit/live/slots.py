"""Reads many texts at once, each in a row of its own, so that texts come and go.

Rows begin at slot 0 and are as long as they are: what a text has read is cut by forgetting it, and
a row is moved by copying it. A pass pads shorter blocks behind their end, with slots that no one
sees and the next pass writes over.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from transformers.cache_utils import Cache


class SlotCache(Cache):
    """Keys and values of texts, (rows, heads, slots, width of a head) for each layer.

    Args:
        rows: texts at most.
        slots: tokens of a text at most; one more is there for pads.
    """

    def __init__(self, rows: int, slots: int) -> None:
        super().__init__(layers=[])
        self.rows, self.slots = rows, slots + 1
        self.kept: list[tuple[Tensor, Tensor]] = []
        self.place(slice(0, 0), torch.empty(0, 0, dtype=torch.long))

    def place(self, rows: slice, at: Tensor) -> None:
        """Say where the next pass belongs.

        Args:
            rows: of its texts.
            at: (texts, tokens) int64, slots.
        """
        self._rows, self._at = rows, at
        self._row = torch.arange(rows.start, rows.stop, device=at.device)[:, None]
        self._width = int(at.max()) + 1 if at.numel() else 0

    def update(
        self, key_states: Tensor, value_states: Tensor, layer_idx: int, *more: Any, **options: Any
    ) -> tuple[Tensor, Tensor]:
        """See `Cache`."""
        if layer_idx == len(self.kept):
            heads, width = key_states.shape[1], key_states.shape[3]
            shape = self.rows, heads, self.slots, width
            self.kept.append((key_states.new_zeros(shape), value_states.new_zeros(shape)))
        keys, values = self.kept[layer_idx]
        # (texts, tokens, heads, width of a head) after indexing with two tensors
        keys[self._row, :, self._at] = key_states.transpose(1, 2)
        values[self._row, :, self._at] = value_states.transpose(1, 2)
        return keys[self._rows, :, : self._width], values[self._rows, :, : self._width]

    def get_seq_length(self, layer_idx: int = 0) -> int:
        """See `Cache`; masks and positions are given, so that nobody asks for more."""
        return 0

    def move(self, source: int, to: int, length: int) -> None:
        """Copy a row's first slots over another's."""
        with torch.inference_mode():
            for both in self.kept:
                for kept in both:
                    kept[to, :, :length] = kept[source, :, :length]


class SlotReader:
    """A model and the texts that it reads.

    Args:
        model: a Hugging Face causal LM in eval mode, proved (`traces.record.proof`).
        vocab_size: ids beyond it are cut from the logits.
        rows: texts at most.
        slots: tokens of a text at most.

    Attributes:
        lengths: tokens read of the text in each row.
    """

    def __init__(self, model: nn.Module, vocab_size: int, rows: int, slots: int) -> None:
        self.model, self.vocab_size = model, vocab_size
        weight: Any = model.get_input_embeddings().weight  # pyright: ignore
        self.device, self.dtype = weight.device, weight.dtype
        self._cache = SlotCache(rows, slots)
        self.lengths: list[int] = []

    def open(self) -> None:
        """Begin a text behind the last row."""
        self.lengths.append(0)

    def close(self, row: int) -> None:
        """End a row's text; the last row's takes its place."""
        last = len(self.lengths) - 1
        if row < last:
            self._cache.move(last, row, self.lengths[last])
            self.lengths[row] = self.lengths[last]
        self.lengths.pop()

    def read(self, blocks: list[list[int]], first: int, keep: int) -> Tensor:
        """Append tokens to the texts of some rows, one block each, maybe not equally many.

        Args:
            blocks: of the rows from `first` on.
            first: row.
            keep: places whose logits are wanted.

        Returns:
            (blocks, keep, vocab_size): logits after the last `keep` tokens of the longest block;
            those behind the end of a shorter one mean nothing.
        """
        n, stop = max(map(len, blocks)), first + len(blocks)
        before = torch.tensor(self.lengths[first:stop])
        ids = torch.tensor([block + [0] * (n - len(block)) for block in blocks])
        at = (before[:, None] + torch.arange(n)).clamp_max(self._cache.slots - 1)
        hidden = torch.arange(int(at.max()) + 1) > at[..., None]
        mask = torch.zeros(hidden.shape, dtype=self.dtype)
        mask.masked_fill_(hidden, torch.finfo(self.dtype).min)
        at = at.to(self.device)
        self._cache.place(slice(first, stop), at)
        for row, block in enumerate(blocks, first):
            self.lengths[row] += len(block)
        with torch.inference_mode():
            logits = self.model(
                input_ids=ids.to(self.device),
                position_ids=at.clamp_max(self._cache.slots - 2),
                attention_mask=mask[:, None].to(self.device),
                past_key_values=self._cache,
                use_cache=True,
                logits_to_keep=keep,
            ).logits
        return logits[..., : self.vocab_size]

    def cut(self, lengths: list[int]) -> None:
        """Forget what was read of the first rows' texts beyond so many tokens."""
        for row, length in enumerate(lengths):
            self.lengths[row] = min(self.lengths[row], length)
