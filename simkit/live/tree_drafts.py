"""Drafters of a live decoder that say what comes behind nodes of a tree.

A pass of a level runs the nodes that get children, each of which sees the text and its own
forbears. After a verification a feature drafter encodes what was accepted anew, with the target's
features; a draft model keeps what it has read of it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedModel

from traces.record.drafters.feature import Feature
from traces.record.forward import LastStates
from traces.record.reader import Reader, Slots


class TreeDraft(ABC):
    """What drafts trees behind one text, batch size 1.

    Rows of a tree are numbered in the order in which `below` has run them, the root has none.

    Attributes:
        layers: of the target whose states it reads; none for most.
        ids: what its columns of logits stand for, see `traces.record.drafters.vocabulary.named`.
    """

    layers: tuple[int, ...] = ()
    ids: Tensor | None = None
    slots: Slots

    def forget(self) -> None:
        """Start a new text."""
        self.slots.begin()
        self.slots.open()

    def take(self, states: Tensor) -> None:  # noqa: B027 (most read none)
        """The target's states (u, F) behind the next u tokens of the text."""

    @property
    @abstractmethod
    def states(self) -> Tensor:
        """The states (n, H) behind the nodes of the last pass, which a head may judge."""

    @abstractmethod
    def unread(self, text: Sequence[int]) -> int:
        """How many of its tokens the next pass has to read, the last one of all among them."""

    @abstractmethod
    def prefill(self, text: Sequence[int]) -> None:
        """Read a text, all that is needed of it before a token behind it is known."""

    @abstractmethod
    def roots(self, text: Sequence[int]) -> Tensor:
        """Logits (1, D) behind a text; what was not read of it is read."""

    @abstractmethod
    def below(
        self, parent: np.ndarray, tokens: Sequence[int], depth: int, sees: np.ndarray
    ) -> Tensor:
        """Logits (n, D) behind nodes of one level, 1 or more.

        Args:
            parent: (n,) rows of their parents; -1 is the root.
            tokens: their own.
            depth: of the level.
            sees: (n, rows so far + n) bool, see `simkit.live.growing_tree.lines`.
        """

    def keep(self, rows: Sequence[int]) -> None:
        """The tree is over.

        Args:
            rows: of accepted nodes, from the root down, as far as it has read them.
        """
        self.slots.keep(())


class ModelDraft(TreeDraft):
    """An autoregressive draft model.

    Args:
        model: a causal LM in eval mode.
        vocab_size: ids that it and the target share.
    """

    def __init__(self, model: PreTrainedModel, vocab_size: int) -> None:
        self.reader = Reader(model, vocab_size, states=LastStates(model))
        self.slots = self.reader.slots

    @property
    def states(self) -> Tensor:
        """See `TreeDraft`: those of its last norm."""
        return self.reader.states[-self._rows :]

    def unread(self, text: Sequence[int]) -> int:
        """See `TreeDraft`."""
        return len(text) - self.slots.lengths[0]

    def prefill(self, text: Sequence[int]) -> None:
        """See `TreeDraft`."""
        self.reader.read([text])

    def roots(self, text: Sequence[int]) -> Tensor:
        """See `TreeDraft`."""
        self._rows = 1
        return self.reader.read([text[self.slots.lengths[0] :]])[0]

    def below(
        self, parent: np.ndarray, tokens: Sequence[int], depth: int, sees: np.ndarray
    ) -> Tensor:
        """See `TreeDraft`; its own position is one less than what stands behind it."""
        self._rows = len(tokens)
        return self.reader.branch(tokens, np.full(len(tokens), depth - 1), sees)

    def keep(self, rows: Sequence[int]) -> None:
        """See `TreeDraft`."""
        self.slots.keep(rows)


class FeatureDraft(TreeDraft):
    """A feature drafter: pairs of a token and the features behind the token before it.

    Args:
        net: loaded.
    """

    def __init__(self, net: Feature) -> None:
        self.net, self.layers, self.ids = net, net.layers, net.ids
        self.slots = Slots(1)
        self.forget()

    def forget(self) -> None:
        """See `TreeDraft`."""
        super().forget()
        self._waiting: list[Tensor] = []  # states of the target that no pair was made of yet
        self._features = torch.empty(0)
        self._rows = 0

    @property
    def states(self) -> Tensor:
        """See `TreeDraft`: its features."""
        return self._features[-self._rows :]

    def take(self, states: Tensor) -> None:
        """See `TreeDraft`."""
        self._waiting.append(states)

    def unread(self, text: Sequence[int]) -> int:
        """See `TreeDraft`; a text of one token has no pair, and is read by itself."""
        return max(len(text) - 1 - self.slots.lengths[0], 1)

    @torch.inference_mode()
    def prefill(self, text: Sequence[int]) -> None:
        """See `TreeDraft`."""
        if len(text) > 1:
            self._pairs(text)

    @torch.inference_mode()
    def roots(self, text: Sequence[int]) -> Tensor:
        """See `TreeDraft`."""
        if len(text) > 1:
            self._features = self._pairs(text)[-1:]
        else:
            none = self.net.embedded.new_zeros(1, self.net.embedded.shape[1])
            own = np.ones((1, 1), np.bool_)
            self._features = self._step(text, none, np.zeros(1, np.int64), own)
        self._root, self._rows = self.slots.cache.length, 1
        return self._logits(self._features)

    def _pairs(self, text: Sequence[int]) -> Tensor:
        """Read the pairs of a text that were not read yet; the features behind each."""
        read = self.slots.lengths[0]
        tokens = text[1 + read :]
        states = torch.cat(self._waiting)
        self._waiting = [states[len(tokens) :]]
        before = self.net.net.fused(states[: len(tokens)].to(self.net.embedded))
        n = len(tokens)
        found = self._step(tokens, before, np.arange(read, read + n), np.tri(n, dtype=np.bool_))
        self.slots.lengths[0] = read + n
        return found

    @torch.inference_mode()
    def below(
        self, parent: np.ndarray, tokens: Sequence[int], depth: int, sees: np.ndarray
    ) -> Tensor:
        """See `TreeDraft`."""
        before = self._features[torch.from_numpy(1 + parent)]
        behind = self._root - self.slots.lengths[0]  # 1 where the root is in no pair, which all see
        sees = np.pad(sees, ((0, 0), (behind, 0)), constant_values=True)
        position = np.full(len(tokens), self._root - 1 + depth)
        features = self._step(tokens, before, position, sees)
        self._rows = len(tokens)
        self._features = torch.cat([self._features, features])
        return self._logits(features)

    def _step(
        self, tokens: Sequence[int], before: Tensor, position: np.ndarray, sees: np.ndarray
    ) -> Tensor:
        """Features (n, H) behind pairs of features (n, H) and tokens."""
        device = before.device
        rows = torch.tensor([tokens], device=device), before[None]
        place = torch.from_numpy(position)[None].to(device), self.slots.mask(sees).to(device)
        return self.net.step(*rows, *place, self.slots.cache)[0]

    def _logits(self, features: Tensor) -> Tensor:
        found = self.net.net.logits(features[None], self.net.output)
        return found[0, :, : self.net.vocab_size]
