"""One tree of a live decoder, as it grows: what a policy sees of it, and its tokens."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np

from simkit.trees.growing import GrowingTree
from traces.record.drafters.trees import TreeStatistics
from traces.trees.forest import forest, grow, with_room


class Sapling:
    """A root, and what grows of it.

    Args:
        root: the last known token.
        eos: tokens that end an output.

    Attributes:
        token: of each node.
    """

    def __init__(self, root: int, eos: Collection[int]) -> None:
        self._trees, self._eos = forest(1, 16), np.array(sorted(eos), np.int64)
        self.token = np.array([root], np.int64)
        self._log_prob = np.zeros(1, np.float32)
        self._entropy = np.full(1, np.nan, np.float32)
        self._ended = np.zeros(1, np.bool_)
        self._score = self._entropy.copy()

    @property
    def tree(self) -> GrowingTree:
        """As far as it has grown."""
        trees, size = self._trees, len(self.token)
        return GrowingTree(
            parent=trees.parent[0, :size],
            depth=trees.depth[0, :size],
            rank=trees.rank[0, :size],
            total=trees.total[0, :size],
            children=trees.children[0, :size],
            ended=self._ended,
            log_prob=self._log_prob,
            entropy=self._entropy,
            score=self._score,
        )

    def extend(self, nodes: np.ndarray, found: TreeStatistics) -> None:
        """Give nodes the children that the draft has found, the same number each.

        Args:
            nodes: (n,) of the last level, ascending.
            found: of each.
        """
        n, many = found.token.shape
        self._trees = with_room(self._trees, len(self.token) + n * many)
        grow(self._trees, np.zeros(n, np.int64), nodes, found.log_prob)
        self._entropy[nodes] = found.entropy
        new = found.token.reshape(-1).astype(np.int64)
        self.token = np.concatenate([self.token, new])
        self._log_prob = np.concatenate([self._log_prob, found.log_prob.reshape(-1)])
        self._entropy = np.concatenate([self._entropy, np.full(n * many, np.nan, np.float32)])
        self._score = np.concatenate([self._score, np.full(n * many, np.nan, np.float32)])
        self._ended = np.isin(self.token, self._eos)
        self._ended[0] = False

    def judge(self, nodes: np.ndarray, score: np.ndarray) -> None:
        """Take up what a head says of nodes that the draft has read."""
        self._score[nodes] = score


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
