"""The likeliest nodes of all."""

from __future__ import annotations

import heapq
import math
from dataclasses import dataclass

import numpy as np

from simkit.drafters.tree import TreeLayout, Trees
from simkit.policies.arguments import real_number, whole_number
from simkit.policies.registry import register
from simkit.trees.base import Outcomes, TreeWork
from simkit.trees.growing import Growing, GrowingTree
from traces.kernels import compiled
from traces.trees.shapes import DEEPEST, MOST_NODES, WIDEST, BestFirst


@register
@dataclass(frozen=True)
class BestFirstTree(Growing):
    """Draft the `budget` likeliest nodes of a tree, without those less likely than `least`.

    A node's probability is that of its whole path from the root. Nodes are found level by level:
    those among the `budget` likeliest so far get their `top_k` children in the next pass. A drafter
    that proposes every depth in one pass needs no more passes. Of equally likely nodes the one of
    the lower level comes first, and within a level the one with the earlier rank path. An EOS token
    has no children.

    Tripping token: none. Score: none. State: none. Feedback: none.
    Source: DDTree on parallel drafters; the trees of suffix decoding (arXiv 2411.04975).

    Attributes:
        budget: largest number of verified nodes, without the root.
        least: lowest probability of a verified node.
        top_k: children of a node.
        depth: number of levels.

    Raises:
        PolicyError: an argument is out of range.
    """

    budget: int = whole_number(60, 1, MOST_NODES)
    least: float = real_number(0.0, 0, 1)
    top_k: int = whole_number(10, 1, WIDEST)
    depth: int = whole_number(8, 1, DEEPEST)

    name = "best_first"
    unnamed = True

    @property
    def levels(self) -> int:
        """See `TreePolicy`."""
        return self.depth

    @property
    def width(self) -> int:
        """See `Growing`."""
        return self.top_k

    def grows(self, tree: GrowingTree, level: int) -> np.ndarray:
        """See `Growing`: those of the level among the best so far."""
        if level == 0:
            return np.zeros(1, np.int64)
        best = self.chosen(tree)
        return best[tree.depth[best] == level]

    def chosen(self, tree: GrowingTree) -> np.ndarray:
        """See `Growing`."""
        likely = np.arange(1, len(tree.parent))
        least = math.log(self.least) if self.least > 0 else -math.inf
        return tree.likeliest(likely[tree.total[1:] >= least], self.budget)

    @property
    def shape(self) -> BestFirst:
        """Its nodes."""
        return BestFirst(self.budget, self.least, self.top_k, self.depth)

    def outcomes(self, layout: TreeLayout) -> Outcomes:
        """See `TreePolicy`."""
        layout.check_held(self, self.shape)
        rows = len(layout.trees.room)
        counts = np.zeros((3, rows), np.int32)
        widths = np.zeros((rows, self.depth), np.int32)
        least = math.log(self.least) if self.least > 0 else -math.inf
        _fill(layout.trees, self.budget, least, self.top_k, counts, widths)
        drafted, verified, accepted = counts
        passes = (widths > 0).sum(1, dtype=np.int32)
        none = np.zeros(rows, np.int32)

        def work(some: np.ndarray) -> TreeWork:
            made, kept = drafted[some], verified[some]
            return TreeWork(made, kept, passes[some], none[some], lambda: widths[some])

        return Outcomes(accepted, work)


@compiled
def _fill(
    trees: Trees,
    budget: int,
    least: float,
    top_k: int,
    counts: np.ndarray,
    widths: np.ndarray,
) -> None:
    """Grow each start's tree, and count nodes drafted, verified and accepted."""
    for r in range(len(trees.room)):
        low, high = trees.begin[r], trees.begin[r + 1]
        if low == high:
            continue
        heap = [(np.inf, 1)]  # of the best so far, the worst first; the root is none of them
        heap.pop()
        usable = np.zeros(high - low, np.bool_)
        usable[0] = True
        begin, end = 0, 1
        for level in range(min(widths.shape[1], trees.room[r])):
            for node in range(begin, end):
                if not usable[node] or trees.children[low + node] == 0:
                    continue
                if level and not _is_best(heap, trees.total[low + node], node, least):
                    continue
                many = min(top_k, trees.children[low + node])
                widths[r, level] += 1
                counts[0, r] += many
                first = trees.first[low + node]
                usable[first : first + many] = True
            begin = end
            while end < high - low and trees.depth[low + end] == level + 1:
                if usable[end]:
                    heapq.heappush(heap, (float(trees.total[low + end]), -end))
                    if len(heap) > budget:
                        heapq.heappop(heap)
                end += 1
        for total, _ in heap:
            counts[1, r] += total >= least
        node = 0
        while True:
            child, last = trees.first[low + node], trees.first[low + node]
            last += trees.children[low + node]
            while child < last and not trees.path[low + child]:
                child += 1
            if child >= last or not usable[child]:
                break
            if not _is_best(heap, trees.total[low + child], child, least):
                break
            counts[2, r] += 1
            node = child


@compiled
def _is_best(heap: list, total: float, node: int, least: float) -> bool:
    """Whether a node is among the best, and likely enough."""
    return total >= least and (total, -node) >= heap[0]
