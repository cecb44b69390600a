"""The best fixed tree of so many nodes for a trace."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from simkit.drafters.tree import TreeLayout
from simkit.errors import PolicyError
from simkit.policies.arguments import one_of, whole_number
from simkit.policies.base import Setting
from simkit.policies.registry import register
from simkit.trees.static import FixedTree
from traces.trees.shapes import DEEPEST, MOST_NODES, RankPath


@register
@dataclass(frozen=True)
class Sequoia(FixedTree):
    """Draft the fixed tree of `budget` nodes from which the most tokens are accepted on the trace.

    By "paths": each rank path counts as often as the output takes it, over all starts. The tree of
    the most frequent paths has exactly the highest mean of accepted tokens over all starts. By
    "ranks", as in Sequoia: the chance that the k-th child is the output's token does not depend on
    where its parent stands. A path's worth is the product of these chances, and the best tree holds
    the paths of the highest worth, whichever children these are. Sequoia's dynamic programme gives
    a node its first children only. Its tree has the same worth if no rank has a higher rate than
    the one before it. If one has, its tree can be worth less: on the bundled traces, with budgets
    of 4 to 60 nodes, by up to 0.005 tokens a step.

    The tree is fitted to the trace that it is replayed on, as deep and as wide as was recorded. A
    replay starts only where steps end, so another tree can take a few steps less.

    Tripping token: none. Score: none. State: none. Feedback: none.
    Source: Sequoia (arXiv 2402.12374), section 4.1.

    Attributes:
        budget: number of nodes, without the root.
        by: "paths" or "ranks".
        depth: largest number of levels; 0: as many as were recorded.

    Raises:
        PolicyError: an argument is out of range.
    """

    budget: int = whole_number(16, 1, MOST_NODES)
    by: str = one_of("paths", ("paths", "ranks"))
    depth: int = whole_number(0, 0, DEEPEST)

    name = "sequoia"
    unnamed = True

    def rank_paths(self) -> tuple[RankPath, ...]:
        """See `FixedTree`; `bind` finds them."""
        found = vars(self).get("_paths")
        if found is None:
            raise PolicyError(f"{self.name} must be fitted to a trace: replay it")
        return found

    def bind(self, setting: Setting) -> Sequoia:
        """See `Policy`."""
        assert isinstance(setting.layout, TreeLayout)
        ranks = setting.layout.trees.ranks
        if self.depth:
            ranks = ranks[:, : self.depth]
        width, drawn = setting.layout.trace.manifest.width, setting.layout.drawn
        bound = replace(self)
        if self.by == "paths":
            vars(bound)["_paths"] = most_taken(ranks, self.budget, width, drawn)
        else:
            asked = None if drawn else _asked(setting.layout)
            vars(bound)["_paths"] = most_worth(ranks, self.budget, width, asked, drawn)
        return bound

    def remark(self, setting: Setting) -> str:
        """See `Policy`."""
        return f"{self} is fitted to the prompts that it is replayed on"


def most_taken(
    ranks: np.ndarray, budget: int, width: int, in_order: bool = False
) -> tuple[RankPath, ...]:
    """The paths that the most rows of ranks (R, D), -1 at their ends, begin with.

    Of equal ones the shorter, then the earlier one. Where fewer are ever taken, the first children
    that are not there yet fill the tree up.

    Args:
        ranks: see above.
        budget: how many paths.
        width: ranks are below it.
        in_order: a node has its first children, as those that are drawn without replacement; then
            the tree is the best one where a child is no more often the output's than those before.
    """
    counts: dict[RankPath, float] = {}
    for depth in range(1, ranks.shape[1] + 1):
        there = ranks[ranks[:, depth - 1] >= 0, :depth]
        some, many = np.unique(there, axis=0, return_counts=True)
        counts |= {tuple(p): float(n) for p, n in zip(some.tolist(), many.tolist(), strict=True)}
    bounds = budget, width, ranks.shape[1], in_order
    return _best(lambda path: counts.get(path, 0.0), *bounds)


def most_worth(
    ranks: np.ndarray,
    budget: int,
    width: int,
    asked: np.ndarray | None = None,
    in_order: bool = False,
) -> tuple[RankPath, ...]:
    """The paths of the highest product of their ranks' acceptance rates; see `most_taken`."""
    rates = acceptance_by_rank(ranks, width, asked)
    bounds = budget, width, ranks.shape[1], in_order
    return _best(lambda path: float(np.prod(rates[list(path)])), *bounds)


def acceptance_by_rank(
    ranks: np.ndarray, width: int, asked: np.ndarray | None = None
) -> np.ndarray:
    """How often the k-th child is the output's token, (width,) float64.

    Over all nodes of the output that have children; where it is none of them, or the output ends,
    no child is.

    Args:
        ranks: see `most_taken`.
        width: ranks are below it.
        asked: (R,) how many nodes of the output have children, from each start; None: all do.
    """
    deep = ranks.shape[1]
    tried = np.minimum((ranks >= 0).sum(1) + 1 if asked is None else asked, deep)
    taken = np.bincount(ranks[ranks >= 0], minlength=width)[:width]
    return taken / max(1, int(tried.sum()))


def _asked(layout: TreeLayout) -> np.ndarray:
    """How many nodes of the output have children; an EOS token has none, nor has T_max."""
    trees = layout.trees
    start = np.repeat(np.arange(len(trees.room)), np.diff(trees.begin))
    return np.bincount(start[trees.path & (trees.children > 0)], minlength=len(trees.room))


def _best(
    worth: Callable[[RankPath], float], budget: int, width: int, deepest: int, in_order: bool
) -> tuple[RankPath, ...]:
    """The `budget` paths of the highest worth, where none is worth more than what leads to it."""
    found: list[RankPath] = []
    heap: list[tuple[float, int, RankPath]] = []

    def offer(parent: RankPath, ranks: range) -> None:
        for rank in ranks:
            path = (*parent, rank)
            heapq.heappush(heap, (-worth(path), len(path), path))

    every = range(1 if in_order else width)
    offer((), every)
    while heap and len(found) < budget:
        path = heapq.heappop(heap)[2]
        found.append(path)
        if in_order and path[-1] + 1 < width:
            offer(path[:-1], range(path[-1] + 1, path[-1] + 2))
        if len(path) < deepest:
            offer(path, every)
    return tuple(found)
