"""Fixed trees: the same rank paths in every step."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from simkit.drafters.tree import TreeLayout
from simkit.errors import PolicyError
from simkit.policies.registry import register
from simkit.trees.base import Outcomes, by_level
from simkit.trees.growing import Growing, GrowingTree
from traces.errors import DrafterError
from traces.kernels import compiled
from traces.trees.shapes import Paths, RankPath, check_paths, inner


class FixedTree(Growing):
    """The same rank paths in every step, whatever their tokens."""

    whole = True

    @abstractmethod
    def rank_paths(self) -> tuple[RankPath, ...]:
        """All of its nodes, each with those that lead to it."""

    @cached_property
    def shape(self) -> Paths:
        """Its nodes."""
        return Paths(self.rank_paths())

    @property
    def levels(self) -> int:
        """See `TreePolicy`."""
        return self.shape.levels

    @property
    def width(self) -> int:
        """See `Growing`."""
        return self.shape.width

    def grows(self, tree: GrowingTree, level: int) -> np.ndarray:
        """See `Growing`."""
        trie = self.shape.trie
        nodes = tree.of_level(level)
        here = numbers_in(trie, tree)[nodes]
        return nodes[(here >= 0) & (trie[here] >= 0).any(axis=1)]

    def chosen(self, tree: GrowingTree) -> np.ndarray:
        """See `Growing`."""
        return 1 + np.flatnonzero(numbers_in(self.shape.trie, tree)[1:] >= 0)

    def outcomes(self, layout: TreeLayout) -> Outcomes:
        """See `TreePolicy`."""
        shape, levels = self.shape, self.shape.levels
        layout.check_within(self, levels, shape.width)
        if layout.drawn:
            self._check_first(shape)
        if layout.paid == "none":
            raise PolicyError(
                f"{self} needs a drafter that proposes every node, and a lookup proposes only"
                " what it finds: take best_first, or a chain"
            )
        upto = np.arange(levels + 1)
        depth = np.array([len(path) for path in shape.paths])
        inside = np.array([len(path) for path in inner(shape.paths)])
        nodes = (depth[:, None] <= upto).sum(0, dtype=np.int32)
        widths = np.bincount(inside, minlength=levels)[:levels].astype(np.int32)
        room = layout.trees.room
        return Outcomes(
            accepted_by(shape.trie, layout.trees.ranks),
            lambda rows: by_level(np.minimum(room[rows], levels), nodes, widths),
        )

    def _check_first(self, shape: Paths) -> None:
        """Refuse a node that has not the first children, where they are drawn one by one.

        Raises:
            PolicyError: as said.
        """
        for path in shape.paths:
            if path[-1] and (*path[:-1], path[-1] - 1) not in set(shape.paths):
                raise PolicyError(
                    f"{self}: {list(path)} needs {[*path[:-1], path[-1] - 1]}, because"
                    " children drawn without replacement are verified in the order of the draws"
                )


@register
@dataclass(frozen=True)
class StaticTree(FixedTree):
    """Draft a fixed tree of rank paths: `[2, 0]` is the best child of the third likeliest token.

    All nodes are drafted and verified in every step, as far as T_max leaves levels, whatever tokens
    they are. Nodes behind an EOS token are never accepted. A chain of k tokens is
    `static([[0], [0, 0], …])`. A tree can be replayed if its paths are no deeper and no wider than
    what was recorded along the output.

    Tripping token: none. Score: none. State: none. Feedback: none.
    Source: Medusa (arXiv 2401.10774), SpecInfer (2305.09781), Sequoia (2402.12374).

    Attributes:
        paths: rank paths of all nodes, each with the paths that lead to it.

    Raises:
        PolicyError: a path is no list of ranks, is named twice, or its parent is missing.
    """

    paths: tuple[RankPath, ...] = ((0,), (1,), (0, 0))

    name = "static"
    unnamed = True

    def __post_init__(self) -> None:
        try:
            check_paths(self.paths)
        except DrafterError as error:
            raise PolicyError(str(error)) from None

    def rank_paths(self) -> tuple[RankPath, ...]:
        """See `FixedTree`."""
        return self.paths


def numbers_in(trie: np.ndarray, tree: GrowingTree) -> np.ndarray:
    """The node of the trie that each node of a tree is, (M,) int32; -1 where it is none."""
    found = np.full(len(tree.parent), -1, np.int32)
    found[0] = 0
    for level in range(1, int(tree.depth[-1]) + 1):
        nodes = tree.of_level(level)
        above, rank = found[tree.parent[nodes]], tree.rank[nodes]
        there = (above >= 0) & (rank < trie.shape[1])
        found[nodes[there]] = trie[above[there], rank[there]]
    return found


@compiled
def accepted_by(trie: np.ndarray, ranks: np.ndarray) -> np.ndarray:
    """How far each row of ranks (R, D), -1 at its end, is a path of the trie; (R,) int32."""
    found = np.zeros(len(ranks), np.int32)
    n, width = trie.shape
    for r in range(len(ranks)):
        node, depth = 0, 0
        while depth < ranks.shape[1]:
            rank = ranks[r, depth]
            if rank < 0 or rank >= width:
                break
            node = trie[node, rank]
            if node < 0:
                break
            depth += 1
        found[r] = depth
    return found
