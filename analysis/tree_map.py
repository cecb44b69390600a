"""Where a tree serves more than a chain: by the nodes of the tree and the requests in flight."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from analysis.serving import ALONE, Curves, closed, curves
from analysis.stats import Estimate
from analysis.study import Study
from simkit.errors import PolicyError
from simkit.policies import parse
from simkit.simulator.arguments import AnyCost

SIZES = (1, 2, 4, 8, 16, 32, 64)
NODES = (2, 4, 8, 16, 30, 60)
CHAINS = tuple(f"fixed({k})" for k in (1, 2, 3, 5, 7))
_WIDTHS = (2, 4, 10)
_DEPTHS = (1, 3, 5)


class MapCell(NamedTuple):
    """Trees of so many nodes with so many requests in flight.

    Attributes:
        nodes: N, that are verified at most, the root apart.
        at: requests in flight.
        tree: spec of the best of them.
        chain: spec of the best chain there.
        ratio: steady tokens a second of that tree over that chain, over the seeds of both.
        alone: the chain's over those without drafts.
    """

    nodes: int
    at: int
    tree: str
    chain: str
    ratio: Estimate
    alone: Estimate


class TreeMap(NamedTuple):
    """All cells, and a line for each controller that is left out."""

    cells: list[MapCell]
    gone: list[str]


def trees_of(nodes: int) -> list[str]:
    """Specs of trees of so many nodes: Sequoia's, and EAGLE-2's of several widths and depths."""
    found = [f"sequoia({nodes})"]
    for top_k in _WIDTHS:
        for depth in _DEPTHS:
            spec = f"eagle2(top_k={top_k}, depth={depth}, total={nodes + 1})"
            try:
                parse(spec)
            except PolicyError:  # fewer nodes than levels
                continue
            if top_k * (1 + depth * top_k) >= nodes:
                found.append(spec)
    return found


def tree_map(
    study: Study,
    cost: AnyCost | None = None,
    sizes: Sequence[int] = SIZES,
    nodes: Sequence[int] = NODES,
    seeds: int = 3,
) -> TreeMap:
    """The best tree of each size over the best chain, by concurrency.

    Args:
        study: of a trace of trees.
        cost: see `simkit.replay`; None: of an H200, `analysis.serving.COST`.
        sizes: requests in flight.
        nodes: of trees.
        seeds: runs of each.

    Raises:
        UserError: see `analysis.serving.curves`.
    """
    loads = closed(sizes, 48)
    wanted = [ALONE, *CHAINS, *(spec for n in nodes for spec in trees_of(n))]
    found = curves(study, wanted, loads, cost, seeds)
    cells = []
    for k, at in enumerate(sizes):
        chain = _best(found, [spec for spec in CHAINS if spec in found.of], k)
        for n in nodes:
            there = [spec for spec in trees_of(n) if spec in found.of]
            if there:
                tree = _best(found, there, k)
                over = found.of[tree].over(found.of[chain], k)
                alone = found.of[chain].over(found.of[ALONE], k)
                cells.append(MapCell(n, at, tree, chain, over, alone))
    return TreeMap(cells, found.gone)


def _best(found: Curves, specs: list[str], k: int) -> str:
    return max(specs, key=lambda spec: found.of[spec].seeds["steady_tokens_s"][k].mean())
