"""Trees from every start of known texts: all nodes that some shapes can reach.

The draft is asked level by level, one pass for the nodes of a level of all trees of a group. A node
sees the text before its start and the nodes that lead to it. What comes to the host of a pass are
the likeliest tokens behind each node, never a row of the vocabulary. An EOS token has no children,
nor has a node at which T_max is reached.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from traces.errors import RecordError
from traces.record.drafters.nodes import Nodes, nodes_of
from traces.record.drafters.texts import StartGroup, Texts
from traces.record.drafters.vocabulary import named
from traces.record.statistics import widened
from traces.trees.forest import forest, grow, with_room
from traces.trees.shapes import Shape

Columns = dict[str, np.ndarray]
Judge = Callable[[Tensor], np.ndarray]
"""Of states (n, H) of a draft, probabilities (n,) float32."""


class TreeStatistics(NamedTuple):
    """What a draft says behind n nodes, on the host.

    Attributes:
        token: (n, C) int32, its likeliest tokens, of equal ones the lowest id first.
        log_prob: (n, C) float32, raw.
        entropy: (n,) float32, nats.
    """

    token: np.ndarray
    log_prob: np.ndarray
    entropy: np.ndarray


def said(logits: Tensor, width: int, ids: Tensor | None) -> TreeStatistics:
    """The likeliest tokens of rows of logits (n, D), and the rows' entropies.

    Args:
        logits: of a draft.
        width: C, how many tokens.
        ids: see `named`.
    """
    log_q = widened(logits).log_softmax(-1)
    entropy = -(log_q.exp() * log_q.clamp_min(-1e30)).sum(-1)
    column = _likeliest(log_q.float(), min(width, log_q.shape[-1]))
    token = named(column, ids).cpu().numpy().astype(np.int32)
    log_prob = log_q.float().gather(-1, column).cpu().numpy()
    order = np.lexsort((token, -log_prob), axis=-1)
    return TreeStatistics(
        np.take_along_axis(token, order, -1),
        np.take_along_axis(log_prob, order, -1),
        entropy.float().cpu().numpy(),
    )


def _likeliest(log_q: Tensor, many: int) -> Tensor:
    """The `many` likeliest columns of each row, (n, many), in any order; of equal ones the first.

    Which of equal ones `topk` takes is nowhere said; it differs with how many are asked for.
    """
    most, column = log_q.topk(min(many + 1, log_q.shape[-1]), dim=-1)
    edge, column = most[:, many - 1 : many], column[:, :many]
    tied = (most[:, many:] == edge).any(-1).nonzero()[:, 0]
    if len(tied):
        rows, edge = log_q[tied], edge[tied]
        above, equal = rows > edge, rows == edge
        taken = above | (equal & (equal.cumsum(-1) <= many - above.sum(-1, keepdim=True)))
        column = column.index_copy(0, tied, taken.nonzero()[:, 1].view(-1, many))
    return column


class TreeBed:
    """The trees of one group of starts as they grow; arrays (S, M) beside those of the forest.

    Args:
        last: (S,) the last known token of each start.
        nodes: room in each tree at first.

    Attributes:
        trees: the nodes.
        token: of each node.
        log_prob: of each node behind its parent.
        entropy: of what is said behind each node; NaN where nothing is.
        top1: of the likeliest token behind each node.
        asked: the number of each node in the last pass of the draft; -1 where it was not in it.
        scores: by judge, what it says of each node's state; NaN where there is none.
    """

    def __init__(self, last: np.ndarray, nodes: int, judges: Iterable[str] = ()) -> None:
        shape = len(last), nodes
        self.trees = forest(*shape)
        self.token = np.full(shape, -1, np.int32)
        self.token[:, 0] = last
        self.log_prob = np.zeros(shape, np.float32)
        self.entropy = np.full(shape, np.nan, np.float32)
        self.top1 = self.entropy.copy()
        self.asked = np.full(shape, -1, np.int64)
        self.scores = {name: self.entropy.copy() for name in judges}

    def extend(self, tree: np.ndarray, node: np.ndarray, found: TreeStatistics) -> np.ndarray:
        """Give nodes the children that were found; the children's columns, (n, C)."""
        n_new = found.token.shape[1]
        self._make_room(int(self.trees.size.max()) + int(np.bincount(tree).max()) * n_new)
        grow(self.trees, tree, node, found.log_prob)
        self.entropy[tree, node] = found.entropy
        self.top1[tree, node] = np.exp(found.log_prob[:, 0])
        column = self.trees.first[tree, node][:, None] + np.arange(n_new)
        self.token[tree[:, None], column] = found.token
        self.log_prob[tree[:, None], column] = found.log_prob
        return column

    def _make_room(self, nodes: int) -> None:
        self.trees = with_room(self.trees, nodes)
        more = self.trees.parent.shape[1] - self.token.shape[1]
        wider = partial(_padded, more=more)
        for name in ("token", "log_prob", "entropy", "top1", "asked"):
            setattr(self, name, wider(getattr(self, name)))
        self.scores = {name: wider(values) for name, values in self.scores.items()}

    def rows(self, sequence: np.ndarray, start: np.ndarray) -> Columns:
        """The table's columns; a root without children is none."""
        trees = self.trees
        size = np.where(trees.size > 1, trees.size, 0)
        there = np.arange(trees.parent.shape[1]) < size[:, None]
        tree, node = np.nonzero(there)
        return {
            "sequence": sequence[tree].astype(np.int32),
            "start": start[tree].astype(np.int32),
            "node": node.astype(np.int32),
            "parent": trees.parent[there].astype(np.int16),
            "depth": trees.depth[there].astype(np.int16),
            "rank": trees.rank[there].astype(np.int16),
            "token": self.token[there],
            "log_prob": self.log_prob[there],
            "on_path": trees.path[there],
            "draft_entropy": self.entropy[there],
            "draft_top1_prob": self.top1[there],
            **{f"score:{name}": values[there] for name, values in self.scores.items()},
        }


def _padded(values: np.ndarray, more: int) -> np.ndarray:
    fill: Any = np.nan if values.dtype.kind == "f" else -1
    return np.pad(values, ((0, 0), (0, more)), constant_values=fill)


class Planter:
    """Grows the trees of a batch of texts.

    Args:
        texts: of the batch.
        shapes: that are recorded.
        eos: tokens that have no children.
        max_new_tokens: T_max.
        ids: see `said`.
        judges: by name, of the state behind each node that is asked.
    """

    def __init__(
        self,
        texts: Texts,
        shapes: Sequence[Shape],
        eos: Sequence[int],
        max_new_tokens: int,
        ids: Tensor | None,
        judges: Mapping[str, Judge] | None = None,
    ) -> None:
        self.shapes, self.ids, self.judges = shapes, ids, judges or {}
        self.width = max(shape.width for shape in shapes)
        self.levels = max(shape.levels for shape in shapes)
        self._text, self._begin = texts.tokens.cpu().numpy(), texts.start
        self._n_output = texts.n_output.cpu().numpy()
        self._eos, self._longest = np.array(eos, np.int64), max_new_tokens
        self._device = texts.tokens.device

    def plant(self, group: StartGroup, nodes: Nodes) -> Columns:
        """The rows of a group's trees, by tree and node; `sequence` counts from 0."""
        alive = group.alive.cpu().numpy()
        sequence, start = np.nonzero(alive)[0], group.start.cpu().numpy()[alive]
        last = self._text[sequence, self._begin + start - 2]
        bed = TreeBed(last, 1 + self.width, self.judges)
        carried = [shape.begin(len(start)) for shape in self.shapes]
        for level in range(self.levels):
            tree, node = self._marked(bed, level, carried, self._longest - start)
            if not len(tree):
                break
            found = self._ask(bed, nodes, tree, node, level)
            bed.asked[:] = -1
            bed.asked[tree, node] = np.arange(len(tree)) if level else tree
            self._judge(bed, nodes, tree, node, level)
            column = bed.extend(tree, node, found)
            at = start[tree] + level  # the children's position in the output
            y = self._text[sequence[tree], np.minimum(self._begin + at, self._text.shape[1]) - 1]
            known = bed.trees.path[tree, node] & (at <= self._n_output[sequence[tree]])
            bed.trees.path[tree[:, None], column] = known[:, None] & (found.token == y[:, None])
        return bed.rows(sequence, start)

    def _marked(
        self, bed: TreeBed, level: int, carried: list[np.ndarray], room: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """The nodes of a level that get children: some shape's, and the output's own."""
        trees = bed.trees
        marks = np.zeros(trees.parent.shape, np.bool_)
        for shape, mine in zip(self.shapes, carried, strict=True):
            shape.mark(trees, level, mine, marks)
        marks |= trees.path & (trees.depth == level)
        marks &= (np.arange(marks.shape[1]) < trees.size[:, None]) & (level < room)[:, None]
        if level:
            marks &= ~np.isin(bed.token, self._eos)
        tree, node = np.nonzero(marks)
        return tree, node

    def _judge(
        self, bed: TreeBed, nodes: Nodes, tree: np.ndarray, node: np.ndarray, level: int
    ) -> None:
        """Have the states judged from which the last pass spoke; the root's are of all trees."""
        if not self.judges:
            return
        states = nodes.states
        if states is None:
            raise RecordError("this drafter has no states of its nodes: no head can judge them")
        states = states if level else states[torch.from_numpy(tree).to(states.device)]
        for name, judge in self.judges.items():
            bed.scores[name][tree, node] = judge(states)

    def _ask(
        self, bed: TreeBed, nodes: Nodes, tree: np.ndarray, node: np.ndarray, level: int
    ) -> TreeStatistics:
        """What the draft says behind nodes of one level; of nodes that are told the same, once."""
        same: np.ndarray | slice = slice(None)
        if nodes.alike:
            _, first, same = np.unique(tree, return_index=True, return_inverse=True)
            tree, node = tree[first], node[first]
        if level == 0:
            logits = nodes.roots()[torch.from_numpy(tree).to(self._device)]
        else:
            parent = bed.asked[tree, bed.trees.parent[tree, node]]
            of_tree, above, token = (
                torch.from_numpy(x).to(self._device)
                for x in (tree, parent, bed.token[tree, node].astype(np.int64))
            )
            logits = nodes.below(of_tree, above, token, level)
        found = said(logits, self.width, self.ids)
        return TreeStatistics(*(part[same] for part in found))


def trees_of(
    network: Any,
    texts: Texts,
    shapes: Sequence[Shape],
    eos: Sequence[int],
    max_new_tokens: int,
    judges: Mapping[str, Judge] | None = None,
) -> Columns:
    """The rows of the trees from every start of a batch, in order; `sequence` counts from 0.

    Args:
        network: see `nodes_of`.
        texts: with the target's states where the network reads them.
        shapes: that are recorded.
        eos: tokens that end an output.
        max_new_tokens: T_max.
        judges: see `Planter`; each gives a column `score:` and its name.

    Raises:
        RecordError: there are judges, and no states that they could judge.
    """
    planter = Planter(texts, shapes, eos, max_new_tokens, network.ids, judges)
    rows = 2 * planter.width
    parts = [
        planter.plant(group, nodes)
        for group, nodes in nodes_of(network, texts, planter.levels, rows)
    ]
    joined = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    order = np.lexsort([joined[key] for key in ("node", "start", "sequence")])
    return {name: value[order] for name, value in joined.items()}
