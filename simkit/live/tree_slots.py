"""One text in a cache, and rows of a tree behind it, each of which sees its own forbears.

The rows of a tree stand in the cache in the order of the passes, wherever they stand in the tree; a
mask says who sees whom, a position is the text's length and the node's depth. What is accepted is
moved to where text stands, and the rest is forgotten.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedModel

from traces.record.cache import Buffer
from traces.record.drafters.layers import Layers
from traces.record.forward import as_bias
from traces.record.pair import embedding

ROOM = 512  # slots at first


class TreeSlots:
    """The cache of a network of some layers, batch size 1.

    Attributes:
        cache: as transformers takes it.
        text: slots that hold text; rows of a tree stand behind them.
    """

    def __init__(self, n_layers: int) -> None:
        self.cache = Buffer(n_layers, ROOM)
        self.text = 0

    def forget(self) -> None:
        """Start a new text."""
        self.cache.cut(0)
        self.text = 0

    def mask(self, sees: np.ndarray) -> Tensor:
        """What each row of a pass may attend to, (1, n, slots so far + n) bool; makes room for it.

        Args:
            sees: (n, rows of the tree so far + n) bool; the text is seen by all.
        """
        n, behind = sees.shape
        self.cache.reserve(self.text + behind)
        found = np.ones((1, n, self.text + behind), np.bool_)
        found[0, :, self.text :] = sees
        return torch.from_numpy(found)

    @torch.inference_mode()
    def keep(self, rows: Sequence[int]) -> None:
        """Make text of some rows of the tree, in ascending order, and forget the others."""
        places = [self.text + row for row in rows]
        end = self.text + len(places)
        if places and places[-1] >= end:
            moved = torch.tensor(places)
            for buffer in self.cache.buffers:
                keys, values = buffer.keys, buffer.values
                assert keys is not None and values is not None
                there = moved.to(keys.device)
                keys[:, :, self.text : end] = keys.index_select(2, there)
                values[:, :, self.text : end] = values.index_select(2, there)
        self.cut(end)

    def cut(self, length: int) -> None:
        """Keep so many slots, as text."""
        self.cache.cut(length)
        self.text = length


class TreeReader:
    """A causal LM that reads a text piece by piece, and trees behind it.

    Args:
        model: in eval mode, proved (`traces.record.proof`).
        vocab_size: ids beyond it are cut from the logits.
        layers: whose states it keeps, see `Layers`.

    Attributes:
        slots: its cache.
        states: (n, F) of the last pass, of those layers.
    """

    def __init__(self, model: PreTrainedModel, vocab_size: int, layers: Sequence[int] = ()) -> None:
        self.model, self.vocab_size = model, vocab_size
        self.device = embedding(model).weight.device
        self.slots = TreeSlots(model.config.num_hidden_layers)
        self.states = torch.empty(0)
        self._layers = Layers(model, layers) if layers else None

    def read(self, tokens: Sequence[int], keep: int = 1) -> Tensor:
        """Append text; the logits (keep, V) behind its last tokens."""
        self.slots.cache.reserve(self.slots.text + len(tokens))
        found = self._pass(tokens, keep, None, None)
        self.slots.text += len(tokens)
        return found

    def branch(self, tokens: Sequence[int], depth: np.ndarray, sees: np.ndarray) -> Tensor:
        """Run rows of a tree; the logits (n, V) behind each.

        Args:
            tokens: n of them.
            depth: (n,), 0 of what stands right behind the text.
            sees: see `TreeSlots.mask`.
        """
        bias = as_bias(self.slots.mask(sees), self.model.dtype)[None].to(self.device)
        position = torch.from_numpy(depth.astype(np.int64) + self.slots.text)[None]
        return self._pass(tokens, len(tokens), bias, position.to(self.device))

    def _pass(
        self, tokens: Sequence[int], keep: int, bias: Tensor | None, position: Tensor | None
    ) -> Tensor:
        with torch.inference_mode(), self._layers or nullcontext() as layers:
            logits = self.model(
                input_ids=torch.tensor([tokens], device=self.device),
                attention_mask=bias,
                position_ids=position,
                past_key_values=self.slots.cache,
                use_cache=True,
                logits_to_keep=keep,
            ).logits
        if layers is not None:
            self.states = layers.joined()[0]
        return logits[0, :, : self.vocab_size]


def lines(parent: np.ndarray, nodes: np.ndarray, row: np.ndarray, n_rows: int) -> np.ndarray:
    """Which rows each node sees: those of its forbears, and its own; (n, n_rows) bool.

    Args:
        parent: (M,) of a tree; -1 of its root.
        nodes: (n,) of it.
        row: (M,) where each of its nodes stands among the rows; -1 where it does not.
        n_rows: of the tree in the cache, these among them.
    """
    found = np.zeros((len(nodes), n_rows), np.bool_)
    which, here = np.arange(len(nodes)), np.asarray(nodes)
    while len(here):
        there = row[here] >= 0
        found[which[there], row[here[there]]] = True
        here = parent[here]
        which, here = which[here >= 0], here[here >= 0]
    return found
