"""Fixed trees: the same rank paths in every step."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from simkit.drafters.tree import TreeLayout
from simkit.errors import PolicyError
from simkit.policies.registry import register
from simkit.trees.base import Outcomes
from simkit.trees.growing import Growing, Tree
from traces.errors import DrafterError
from traces.kernels import compiled
from traces.trees.shapes import Paths, RankPath, check_paths


@register
@dataclass(frozen=True)
class StaticTree(Growing):
    """A fixed set of rank paths: `[2, 0]` is the likeliest child of the third likeliest token.

    All of them are drafted and verified in every step, as far as T_max leaves levels, whatever
    tokens they turn out to be; what stands behind an EOS token is never accepted. A chain of k
    tokens is `static([[0], [0, 0], …])`. Any such tree can be replayed whose paths are no deeper
    and no wider than what was recorded along the output.

    State: none. Feedback: none.
    Source: Medusa (arXiv 2401.10774), SpecInfer (2305.09781), Sequoia (2402.12374).

    Attributes:
        paths: all nodes by their rank paths, each with those that lead to it.

    Raises:
        PolicyError: a path is no list of ranks, is named twice, or is an orphan.
    """

    paths: tuple[RankPath, ...]

    name = "static"
    unnamed = True
    whole = True

    def __post_init__(self) -> None:
        try:
            check_paths(self.paths)
        except DrafterError as error:
            raise PolicyError(str(error)) from None

    @cached_property
    def shape(self) -> Paths:
        """Its nodes."""
        return Paths(self.paths)

    @property
    def levels(self) -> int:
        """See `TreePolicy`."""
        return self.shape.levels

    @property
    def width(self) -> int:
        """See `Growing`."""
        return self.shape.width

    def grows(self, tree: Tree, level: int) -> np.ndarray:
        """See `Growing`."""
        trie = self.shape.trie
        nodes = tree.of_level(level)
        here = numbers_in(trie, tree)[nodes]
        return nodes[(here >= 0) & (trie[here] >= 0).any(axis=1)]

    def chosen(self, tree: Tree) -> np.ndarray:
        """See `Growing`."""
        return 1 + np.flatnonzero(numbers_in(self.shape.trie, tree)[1:] >= 0)

    def outcomes(self, layout: TreeLayout) -> Outcomes:
        """See `TreePolicy`."""
        layout.check_within(self, self.levels, self.shape.width)
        return fixed_outcomes(layout, self.paths, self.shape.trie)


def fixed_outcomes(layout: TreeLayout, paths: tuple[RankPath, ...], trie: np.ndarray) -> Outcomes:
    """What a fixed tree does at every start.

    Args:
        layout: of the trace.
        paths: of its nodes.
        trie: see `traces.trees.shapes.trie_of`.
    """
    trees, levels = layout.trees, max(map(len, paths))
    accepted = accepted_by(trie, trees.ranks)
    depth = np.array([len(path) for path in paths])
    inside = np.array([len(path) for path in {path[:-1] for path in paths}])
    level = np.minimum(trees.room, levels)
    upto = np.arange(levels + 1)
    nodes = (depth[:, None] <= upto).sum(0).astype(np.int32)[level]
    width = np.bincount(inside, minlength=levels)[:levels].astype(np.int32)
    widths = np.where(upto[:-1] < level[:, None], width, 0)
    none = np.zeros(len(level), np.int32)
    return Outcomes(nodes, nodes, accepted, widths, none)


def numbers_in(trie: np.ndarray, tree: Tree) -> np.ndarray:
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
