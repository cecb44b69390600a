"""Where trees serve more than chains do."""

from __future__ import annotations

from typing import Any

from matplotlib.axes import Axes
from matplotlib.colors import TwoSlopeNorm

from analysis.figures.base import Drawn, FigureError, caption, cells, figure, frame, small
from analysis.serving import COST
from analysis.study import Study
from analysis.tree_map import NODES, SIZES
from analysis.tree_map import tree_map as by_nodes
from analysis.trees import name_of, tree_study
from simkit.simulator.arguments import AnyCost


@figure("new", trees=True)
def tree_map(
    study: Study,
    ax: Axes,
    cost: AnyCost | None = COST,
    sizes: tuple[int, ...] = SIZES,
    nodes: tuple[int, ...] = NODES,
    seeds: int = 3,
) -> Drawn:
    """Throughput of the best tree of so many nodes over that of the best chain, by concurrency.

    Args:
        study: of a trace of trees, or of a recording that has some attached.
        ax: to draw on; None makes one.
        cost: see `simkit.replay`; by default that of an H200, `analysis.serving.COST`.
        sizes: requests in flight, ascending.
        nodes: of trees, ascending.
        seeds: runs of each.
    """
    found = by_nodes(tree_study(study), cost, sizes, nodes, seeds)
    if not found.cells:
        raise FigureError("tree_map: no tree of these sizes was recorded")
    rows = []
    most = max(abs((one.ratio.value or 1.0) - 1) for one in found.cells)
    norm = TwoSlopeNorm(1, 1 - most - 1e-6, 1 + most + 1e-6)
    for one in found.cells:
        x, y = sizes.index(one.at), nodes.index(one.nodes)
        value = one.ratio.value or 1.0
        how: dict[str, Any] = {"ha": "center", "va": "center", "fontsize": small()}
        ax.pcolormesh([x - 0.5, x + 0.5], [y - 0.5, y + 0.5], [[value]], norm=norm, cmap="RdBu")
        sure = one.ratio.lo is not None and not one.ratio.lo <= 1 <= (one.ratio.hi or 1.0)
        dark = abs(value - 1) > 0.7 * most
        ax.text(
            x, y, f"{value:.2f}{'*' if sure else ''}", color="white" if dark else "black", **how
        )
        row = {"nodes": one.nodes, "concurrency": one.at, "tree": one.tree, "chain": one.chain}
        rows.append(row | cells(one.ratio, "over_chain") | cells(one.alone, "chain_over_none"))
    ax.set_xticks(range(len(sizes)), [str(n) for n in sizes])
    ax.set_yticks(range(len(nodes)), [str(n) for n in nodes])
    ax.set(xlabel="requests in flight", ylabel="nodes of the tree")
    ax.grid(visible=False)
    caption(
        ax,
        "Trees over chains, by load",
        f"{name_of(study)}; tokens/s of the best tree of so many nodes (Sequoia's, EAGLE-2's) ÷ of"
        f" the best of five fixed chains; *: {seeds} runs tell it from 1 (95%)."
        f" {COST if cost is None else cost}.",
    )
    return Drawn("tree_map", frame(rows), ax, tuple(found.gone))
