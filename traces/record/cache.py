"""A key-value cache in buffers of fixed size: appended to and cut back without copying."""

from __future__ import annotations

import torch
from torch import Tensor
from transformers.cache_utils import Cache, CacheLayerMixin


class BufferLayer(CacheLayerMixin):
    """Keys and values of one layer, (batch, heads, capacity, head width), filled to `length`."""

    is_sliding = False
    is_croppable = True

    def __init__(self, capacity: int):
        super().__init__()
        self.capacity, self.length = capacity, 0

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        """Take the buffers' shape, dtype and device from the first states."""
        self.dtype, self.device = key_states.dtype, key_states.device
        self.keys, self.values = (
            torch.zeros(*s.shape[:2], self.capacity, s.shape[3], dtype=s.dtype, device=s.device)
            for s in (key_states, value_states)
        )
        self.is_initialized = True

    def update(
        self, key_states: Tensor, value_states: Tensor, *args: object, **kwargs: object
    ) -> tuple[Tensor, Tensor]:
        """Append, and return all that is cached."""
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        assert self.keys is not None and self.values is not None
        start, end = self.length, self.length + key_states.shape[2]
        self.keys[:, :, start:end] = key_states
        self.values[:, :, start:end] = value_states
        self.length = end
        return self.keys[:, :, :end], self.values[:, :, :end]

    def reserve(self, length: int) -> None:
        """Make room for so many tokens, twice as many as before at least if there is too little."""
        if length <= self.capacity:
            return
        self.capacity = max(length, 2 * self.capacity)
        if self.is_initialized:
            assert self.keys is not None and self.values is not None
            old = self.keys, self.values
            self.lazy_initialization(*old)
            self.keys[:, :, : self.length] = old[0][:, :, : self.length]
            self.values[:, :, : self.length] = old[1][:, :, : self.length]

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
        capacity: tokens that fit, a sequence.
    """

    def __init__(self, n_layers: int, capacity: int):
        self.buffers = [BufferLayer(capacity) for _ in range(n_layers)]
        super().__init__(layers=list(self.buffers))

    @property
    def length(self) -> int:
        """Tokens in the cache."""
        return self.buffers[0].length

    def cut(self, length: int) -> None:
        """Forget all tokens from `length` on."""
        for buffer in self.buffers:
            buffer.length = length

    def reserve(self, length: int) -> None:
        """Make room for so many tokens; what is cached is copied if there is too little."""
        for buffer in self.buffers:
            buffer.reserve(length)

    def keep(self, rows: Tensor) -> None:
        """Forget all sequences but `rows` (indices); their order is the new one."""
        for buffer in self.buffers:
            assert buffer.keys is not None and buffer.values is not None
            there = rows.to(buffer.keys.device)
            buffer.keys, buffer.values = buffer.keys[there], buffer.values[there]
