"""Tree policies in a live decoder: asked level by level, they see the tree as far as it has grown.

`TreePolicy.outcomes` says what a policy does at all starts of a trace; `grows` and `chosen` say the
same of one tree, to `simkit.live.trees`. A policy that can run live, which needs nothing of the
output to come, derives from `Growing` in place of `TreePolicy` and adds

    width            children that it has the draft propose behind each node that it grows
    grows(tree, l)   the nodes of level l that get children in the next pass, l = 0 the root's;
                     none: the draft is over (a rule that exits gives none)
    chosen(tree)     the nodes that are verified

and says by `whole` and `looks` what kind it is. The live decoder keeps the rest of the rules: no
level beyond what T_max leaves, no children of an EOS token unless the tree is drafted `whole`.
`tests/test_trees_exact.py` holds the two sides of every registered policy against each other.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar, NamedTuple

import numpy as np

from simkit.trees.base import TreePolicy


class GrowingTree(NamedTuple):
    """One tree as it grows, M nodes so far, in the order of `traces.trees.forest`.

    Attributes:
        parent: (M,) int32; -1 of the root.
        depth: (M,) int32.
        rank: (M,) int32, among its siblings.
        total: (M,) float64, summed log-probability.
        children: (M,) int32, how many it has.
        ended: (M,) bool, whether its token is an EOS.
        log_prob: (M,) float32, raw, behind its parent.
        entropy: (M,) float32, nats, of what is said behind it; NaN where the draft was not asked.
        score: (M,) float32, of the policy's head; NaN where the draft has not read the node, or
            where there is no head.
    """

    parent: np.ndarray
    depth: np.ndarray
    rank: np.ndarray
    total: np.ndarray
    children: np.ndarray
    ended: np.ndarray
    log_prob: np.ndarray
    entropy: np.ndarray
    score: np.ndarray

    def of_level(self, level: int) -> np.ndarray:
        """Its nodes of a level, ascending."""
        return np.flatnonzero(self.depth == level)

    def likeliest(self, nodes: np.ndarray, most: int) -> np.ndarray:
        """The `most` likeliest of some ascending nodes, ascending; of equal ones the earlier."""
        return np.sort(self.descending(nodes, most))

    def descending(self, nodes: np.ndarray, most: int) -> np.ndarray:
        """The same, the likeliest first."""
        return nodes[np.argsort(-self.total[nodes], kind="stable")[:most]]


class Growing(TreePolicy):
    """A tree policy that can run live; both sides of it must do the same.

    Attributes:
        whole: the same nodes are drafted and verified in every step, whatever their tokens; those
            that stand behind an EOS token, too.
        looks: `grows` is a rule whose time is charged by the call (`Outcomes.calls`), as the rules
            of chains are; else its time is a part of the draft's pass.
        live: whether it can; else it is fitted to what only a replay has.
    """

    whole: ClassVar[bool] = False
    looks: ClassVar[bool] = False
    live: ClassVar[bool] = True

    def asks(self, level: int) -> bool:
        """Of a policy that `looks`: whether its rule is asked behind a level, 1 or more."""
        return True

    @property
    @abstractmethod
    def width(self) -> int:
        """Children of each node that gets any."""

    @abstractmethod
    def grows(self, tree: GrowingTree, level: int) -> np.ndarray:
        """Nodes of a level that get children, ascending; none: no deeper.

        Args:
            tree: its nodes of that level are there.
            level: below `levels`.
        """

    @abstractmethod
    def chosen(self, tree: GrowingTree) -> np.ndarray:
        """The nodes that are verified, ascending, each with its parent; the root is not named.

        Args:
            tree: whole.
        """
