"""A key-value cache in buffers: appended to and cut back without copying.

Rows grow together, or each to its own length: a pass then says where each token belongs.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from transformers.cache_utils import Cache, CacheLayerMixin


class SlotPlace(NamedTuple):
    """Where the tokens of a pass belong.

    Attributes:
        rows: of the cache, those of the pass.
        row: (rows, 1) int64, their numbers.
        slots: (rows, tokens) int64.
        width: slots that the pass may see.
    """

    rows: slice
    row: Tensor
    slots: Tensor
    width: int


class BufferLayer(CacheLayerMixin):
    """Keys and values of one layer, (batch, heads, capacity, head width), filled to `length`.

    Args:
        capacity: tokens that fit, a row.
        rows: of the batch; None: as many as the first pass has.
    """

    is_sliding = False
    is_croppable = True

    def __init__(self, capacity: int, rows: int | None = None):
        super().__init__()
        self.capacity, self.rows, self.length = capacity, rows, 0
        self.place: SlotPlace | None = None

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        """Take the buffers' shape, dtype and device from the first states."""
        self.dtype, self.device = key_states.dtype, key_states.device
        self.keys, self.values = (
            s.new_zeros(self.rows or s.shape[0], s.shape[1], self.capacity, s.shape[3])
            for s in (key_states, value_states)
        )
        self.is_initialized = True

    def update(
        self, key_states: Tensor, value_states: Tensor, *args: object, **kwargs: object
    ) -> tuple[Tensor, Tensor]:
        """Append, or write where the pass belongs; all that it may see."""
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        assert self.keys is not None and self.values is not None
        if self.place is not None:
            rows, row, slots, width = self.place
            # (rows, tokens, heads, head width) after indexing with two tensors
            self.keys[row, :, slots] = key_states.transpose(1, 2)
            self.values[row, :, slots] = value_states.transpose(1, 2)
            return self.keys[rows, :, :width], self.values[rows, :, :width]
        start, new = self.length, key_states.shape[2]
        self.keys.narrow(2, start, new).copy_(key_states)
        self.values.narrow(2, start, new).copy_(value_states)
        self.length = end = start + new
        return self.keys.narrow(2, 0, end), self.values.narrow(2, 0, end)

    def reserve(self, length: int) -> None:
        """Make room for so many tokens, more than there is: twice as much as before at least."""
        before, self.capacity = self.capacity, max(length, 2 * self.capacity)
        if self.is_initialized:
            assert self.keys is not None and self.values is not None
            keys, values = self.keys, self.values
            self.lazy_initialization(keys, values)
            self.keys[:, :, :before], self.values[:, :, :before] = keys, values

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        """Length and offset of the keys that a query of this length sees."""
        return self.length + query_length, 0

    def get_seq_length(self) -> int:
        """Tokens in the cache."""
        return self.length

    def get_max_length(self) -> int:
        """Tokens that fit."""
        return self.capacity

    get_max_cache_shape = get_max_length  # the name before transformers 5.20


class Buffer(Cache):
    """One `BufferLayer` for each of a model's layers.

    Args:
        n_layers: of the model.
        capacity: tokens that fit, a row.
        rows: of the batch; None: as many as the first pass has.
    """

    def __init__(self, n_layers: int, capacity: int, rows: int | None = None):
        self.buffers = [BufferLayer(capacity, rows) for _ in range(n_layers)]
        self._positions: Tensor | None = None
        super().__init__(layers=list(self.buffers))

    @property
    def length(self) -> int:
        """Tokens in the cache."""
        return self.buffers[0].length

    def stand(self, tokens: Tensor, positions: Tensor | None) -> Tensor:
        """Where in their texts the tokens of all slots stand (B, slots), those of a pass too.

        Args:
            tokens: of the pass, which comes now (B, n).
            positions: of them; None: behind what is cached.
        """
        place, begin, rows = self.buffers[0].place, self.length, self.buffers[0].rows
        end = begin + tokens.shape[1] if place is None else place.width
        if positions is None:
            positions = torch.arange(begin, end, device=tokens.device)[None]
        known = self._positions
        if known is None or known.shape[1] < end:
            wider = max(end, self.buffers[0].capacity)
            fresh = torch.arange(wider, device=positions.device).repeat(rows or len(tokens), 1)
            if known is not None:
                fresh[:, : known.shape[1]] = known
            self._positions = known = fresh
        if place is None:
            known[:, begin:end] = positions
            return known[:, :end]
        known[place.row, place.slots] = positions
        return known[place.rows, :end]

    def cut(self, length: int) -> None:
        """Forget all tokens from `length` on."""
        for buffer in self.buffers:
            buffer.length = length

    def reserve(self, length: int) -> None:
        """Make room for so many tokens; what is cached is copied if there is too little."""
        if length > self.buffers[0].capacity:
            for buffer in self.buffers:
                buffer.reserve(length)

    def copy(self, row: int, slots: Tensor, to_row: int, to: slice) -> None:
        """Copy what a row has in some slots (indices) to as many slots of a row."""
        for buffer in self.buffers:
            for kept in (buffer.keys, buffer.values):
                if kept is not None:
                    kept[to_row, :, to] = kept[row][:, slots.to(kept.device)]
        if self._positions is not None:
            self._positions[to_row, to] = self._positions[row, slots.to(self._positions.device)]

    def keep(self, rows: Tensor) -> None:
        """Forget all sequences but `rows` (indices); their order is the new one."""
        for buffer in self.buffers:
            if buffer.keys is None or buffer.values is None:
                continue  # a layer that reads another one's
            there = rows.to(buffer.keys.device)
            buffer.keys, buffer.values = buffer.keys[there], buffer.values[there]
        if self._positions is not None:
            self._positions = self._positions[rows.to(self._positions.device)]
