"""What a draft says behind nodes of trees: a pass a level, in which each sees its own forbears."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor
from transformers import PreTrainedModel

from traces.manifest import ModelInfo
from traces.record.cache import Buffer
from traces.record.drafters.feature import Feature
from traces.record.drafters.parallel import Parallel
from traces.record.drafters.texts import StartGroup, Texts, at_slots, groups
from traces.record.forward import Forward, check_excess, visible
from traces.record.header import model_info

Place = tuple[Tensor, Tensor]
"""Where n nodes stand in a pass: rows (n,) and columns (n,)."""


class Nodes(ABC):
    """A draft that is asked behind the nodes of the trees of one group of starts.

    Attributes:
        alike: whether all nodes of a level of one tree are told the same.
        states: the draft's (n, H) behind the nodes of the last call; None where it has none.
    """

    alike: bool = False
    states: Tensor | None = None

    @abstractmethod
    def roots(self) -> Tensor:
        """Logits (S, D) behind the last known token of every start."""

    @abstractmethod
    def below(self, tree: Tensor, parent: Tensor, token: Tensor, depth: int) -> Tensor:
        """Logits (n, D) behind nodes of one level.

        Args:
            tree: (n,) of each, ascending.
            parent: (n,) of its parent, the number among the nodes of the last call.
            token: (n,) its own.
            depth: of the level, 1 or more.
        """


class NodeNetwork(Nodes):
    """Nodes of a draft that runs a pass a level, in which each sees its own forbears.

    Args:
        texts: of the batch.
        group: of starts.
        seen: (B, R, W) what the last known token of a start sees of the text.
        position: (B, R) of that token.
        cache: that its passes fill.
    """

    def __init__(
        self, texts: Texts, group: StartGroup, seen: Tensor, position: Tensor, cache: Buffer
    ) -> None:
        self.cache = cache
        self._batch = len(group.start)
        self._sequence, self._place = group.alive.nonzero(as_tuple=True)
        self._token = texts.tokens.gather(1, group.slot)[group.alive]
        self._position, self._mask = position[group.alive], seen[group.alive]

    def roots(self) -> Tensor:
        """See `Nodes`."""
        tree = torch.arange(len(self._sequence), device=self._token.device)
        return self._pass(tree, None, self._token, 0)

    def below(self, tree: Tensor, parent: Tensor, token: Tensor, depth: int) -> Tensor:
        """See `Nodes`."""
        return self._pass(tree, parent, token, depth)

    def _pass(self, tree: Tensor, parent: Tensor | None, token: Tensor, depth: int) -> Tensor:
        """Lay the nodes out, a row of the batch for each sequence, and run them."""
        sequence = self._sequence[tree]
        many = torch.bincount(sequence, minlength=self._batch)
        widest = int(many.max())
        self.cache.reserve(self.cache.length + widest)
        column = torch.arange(len(tree), device=tree.device) - (many.cumsum(0) - many)[sequence]
        place = sequence, column
        seen = self._mask if parent is None else self._mask[parent]
        itself = torch.eye(widest, dtype=torch.bool, device=tree.device)
        mask = torch.zeros(self._batch, widest, seen.shape[1] + widest, dtype=torch.bool)
        mask = mask.to(tree.device)
        mask[:, :, seen.shape[1] :] = itself
        mask[sequence, column, : seen.shape[1]] = seen
        shape = self._batch, widest
        tokens = token.new_zeros(shape).index_put(place, token)
        positions = token.new_zeros(shape).index_put(place, self._position[tree] + depth)
        self._mask = mask[place]
        return self._run(tokens, positions, mask, place, parent)

    @abstractmethod
    def _run(
        self, tokens: Tensor, positions: Tensor, mask: Tensor, place: Place, parent: Tensor | None
    ) -> Tensor:
        """Logits (n, D) of the rows at `place`, below nodes of the last call; sets `states`."""


class FeatureNodes(NodeNetwork):
    """Nodes of a feature drafter: each takes its parent's features, the root the target's."""

    def __init__(
        self, net: Feature, texts: Texts, before: Tensor, cache: Buffer, group: StartGroup
    ) -> None:
        seen = visible(texts.pads + 1, group.slot, texts.tokens.shape[1])
        position = (texts.text_positions.gather(1, group.slot) - 1).clamp_min(0)
        super().__init__(texts, group, seen, position, cache)
        self._net = net
        self.states = self._features = at_slots(before, group.slot)[group.alive]

    def _run(
        self, tokens: Tensor, positions: Tensor, mask: Tensor, place: Place, parent: Tensor | None
    ) -> Tensor:
        """See `NodeNetwork`; states are its features."""
        mine = self._features if parent is None else self._features[parent]
        before = mine.new_zeros(*tokens.shape, mine.shape[-1]).index_put(place, mine)
        features = self._net.step(tokens, before, positions, mask, self.cache)[place]
        self.states = self._features = features
        return self._net.net.logits(features, self._net.output)[:, : self._net.vocab_size]


class ModelNodes(NodeNetwork):
    """Nodes of an autoregressive draft model."""

    def __init__(self, forward: Forward, texts: Texts, group: StartGroup) -> None:
        seen = visible(texts.pads, group.slot, texts.tokens.shape[1])
        position = texts.text_positions.gather(1, group.slot)
        super().__init__(texts, group, seen, position, forward.cache)
        self._forward = forward

    def _run(
        self, tokens: Tensor, positions: Tensor, mask: Tensor, place: Place, parent: Tensor | None
    ) -> Tensor:
        """See `NodeNetwork`; states are those of the last norm."""
        logits = self._forward.pass_(tokens, positions, mask[:, None])
        self.states = self._forward.hidden[place]
        return logits[place]


class MarginalNodes(Nodes):
    """Nodes of a drafter that says in one pass what comes at every depth, whatever came before.

    Args:
        logits: (S, K, D) from every start.
    """

    alike = True

    def __init__(self, logits: Tensor) -> None:
        self._logits = logits

    def roots(self) -> Tensor:
        """See `Nodes`."""
        return self._logits[:, 0]

    def below(self, tree: Tensor, parent: Tensor, token: Tensor, depth: int) -> Tensor:
        """See `Nodes`."""
        return self._logits[tree, depth]


class NodeModel(NamedTuple):
    """An autoregressive draft model whose trees are asked for.

    Attributes:
        model: a causal LM in eval mode.
        vocab_size: ids that it and the target share.
        ids: its columns of logits stand for all of them.
        layers: it reads none of the target's.
    """

    model: PreTrainedModel
    vocab_size: int
    ids: None = None
    layers: tuple[int, ...] = ()

    def describe(self) -> ModelInfo:
        """What a manifest says of it."""
        return model_info(self.model)


def nodes_of(
    network: Any, texts: Texts, levels: int, rows: int
) -> Iterator[tuple[StartGroup, Nodes]]:
    """A drafter's nodes, a group of starts at a time.

    Args:
        network: `Feature`, `Parallel` or `NodeModel`.
        texts: of the batch.
        levels: deepest level whose nodes' children are asked for.
        rows: nodes of a start in one pass, about.
    """
    if isinstance(network, Parallel):
        for group, drafts in network.grouped(texts, levels):
            yield group, MarginalNodes(drafts.logits)
        return
    width = texts.tokens.shape[1]
    n_columns = network.vocab_size if network.ids is None else len(network.ids)
    parts = list(groups(texts, rows, n_columns))
    if isinstance(network, Feature):
        cache = Buffer(1, width)
        before, _ = network.read(texts, cache)
        with torch.inference_mode():
            for group in parts:
                yield group, FeatureNodes(network, texts, before, cache, group)
                cache.cut(width)
        return
    forward = Forward(network.model, network.vocab_size, width, keep_hidden=True)
    forward.pass_(texts.tokens, texts.text_positions, texts.mask, 1)
    for group in parts:
        yield group, ModelNodes(forward, texts, group)
        check_excess(forward, "drafter")
        forward.cache.cut(width)
