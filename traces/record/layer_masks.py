"""What layers of each kind may attend to: all of a text, a window of it, or a chunk.

A mask of our own replaces all of a model's masks, those of its windows too. So each kind of layer
is given the mask that its configuration asks for, by the text positions of tokens, not by their
slots. Whether a model heeds it is left to the proof (`traces.record.proof`).
"""

from __future__ import annotations

from typing import Any, NamedTuple

from torch import Tensor

_WINDOWED = ("sliding_attention", "chunked_attention")


class Reach(NamedTuple):
    """How far back a layer sees: `window` tokens, its own among them, or its `chunk`; 0: all."""

    window: int = 0
    chunk: int = 0

    def cut(self, mask: Tensor, query: Tensor, key: Tensor) -> Tensor:
        """A mask that is True where a token may attend, within this reach.

        Args:
            mask: (B, 1, n, slots) bool.
            query: text positions of the tokens (B, n).
            key: of what stands in the slots (B, slots).
        """
        here, there = query[:, None, :, None], key[:, None, None, :]
        if self.window:
            return mask & (here - there < self.window)
        return mask & (here // self.chunk == there // self.chunk) if self.chunk else mask


def reaches(config: Any) -> dict[str, Reach]:
    """How far the layers of each kind see; one kind "" where all layers share a mask; {}: all."""
    config = config.get_text_config(decoder=True)
    window = getattr(config, "sliding_window", None) or 0
    chunk = getattr(config, "attention_chunk_size", None) or 0
    kinds = getattr(config, "layer_types", None) or []
    if not any(kind in _WINDOWED for kind in kinds):
        off = getattr(config, "use_sliding_window", True) is False or bool(kinds)
        return {"": Reach(window)} if window and not off else {}
    known = {"sliding_attention": Reach(window), "chunked_attention": Reach(chunk=chunk)}
    return {kind: known.get(kind, Reach()) for kind in {"full_attention", *kinds}}
