"""Trees of many sizes in turn, so that passes over any number of nodes are timed in place."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from simkit.drafters.tree import TreeLayout
from simkit.errors import ReplayError
from simkit.trees.base import Outcomes
from simkit.trees.growing import Growing, GrowingTree

_SCALE = 2**20


@dataclass(frozen=True)
class TreeLadder(Growing):
    """Each tree has its own widths and its own size, which its first number chooses.

    It is no policy to decode with, and cannot be replayed; it serves calibration only. The
    log-probability of the likeliest first token stands for a random number: a policy is a function
    of the tree.

    Attributes:
        turn: shifts which tree has which widths and which size.
        widths: nodes in a pass of the draft.
        sizes: nodes in a verification.
        depth: levels.
    """

    turn: int = 0
    widths: tuple[int, ...] = (1, 2, 3, 4, 5, 6, 8, 10)
    sizes: tuple[int, ...] = (1, 2, 4, 6, 9, 13, 18, 26, 38, 60)
    depth: int = 6

    name = "tree_ladder"

    @property
    def levels(self) -> int:
        """See `TreePolicy`."""
        return self.depth

    @property
    def width(self) -> int:
        """See `Growing`."""
        return max(self.widths)

    def grows(self, tree: GrowingTree, level: int) -> np.ndarray:
        """See `Growing`."""
        width = self.widths[(_number(tree) + self.turn + level) % len(self.widths)]
        return tree.likeliest(tree.of_level(level), width)

    def chosen(self, tree: GrowingTree) -> np.ndarray:
        """See `Growing`."""
        size = (_number(tree) // len(self.widths) + self.turn) % len(self.sizes)
        return tree.likeliest(np.arange(1, len(tree.parent)), self.sizes[size])

    def outcomes(self, layout: TreeLayout) -> Outcomes:
        """See `TreePolicy`.

        Raises:
            ReplayError: always.
        """
        raise ReplayError(f"{self} times passes: it is not replayed")

    def __str__(self) -> str:
        return f"{self.name}({self.turn})"


def _number(tree: GrowingTree) -> int:
    return int(-tree.total[1] * _SCALE) if len(tree.total) > 1 else 0
