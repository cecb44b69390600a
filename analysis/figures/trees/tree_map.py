"""Where trees serve more than chains do."""

from __future__ import annotations

from matplotlib.colors import TwoSlopeNorm

from analysis.figures.base import Plot, figure
from analysis.figures.drawing.styles import FigureError, small
from analysis.figures.rows import cells
from analysis.serving import COST
from analysis.tree_map import NODES, SIZES
from analysis.tree_map import tree_map as by_nodes
from analysis.trees import name_of
from simkit.simulator.arguments import AnyCost
from traces.messages import how_many


@figure("new", trees=True)
def tree_map(
    plot: Plot,
    cost: AnyCost | None = COST,
    sizes: tuple[int, ...] = SIZES,
    nodes: tuple[int, ...] = NODES,
    seeds: int = 3,
) -> None:
    """Throughput of the best tree relative to the best chain, by tree size and concurrency.

    Args:
        cost: see `simkit.replay`; by default that of an H200, `analysis.serving.COST`.
        sizes: requests in flight, ascending.
        nodes: of trees, ascending.
        seeds: runs of each.
    """
    ax, found = plot.ax, by_nodes(plot.study, cost, sizes, nodes, seeds)
    plot.gone += found.gone
    if not found.cells:
        raise FigureError("tree_map: no tree of these sizes was recorded")
    most = max(abs((one.ratio.value or 1.0) - 1) for one in found.cells)
    norm = TwoSlopeNorm(1, 1 - most - 1e-6, 1 + most + 1e-6)
    for one in found.cells:
        x, y = sizes.index(one.at), nodes.index(one.nodes)
        value = one.ratio.value or 1.0
        ax.pcolormesh([x - 0.5, x + 0.5], [y - 0.5, y + 0.5], [[value]], norm=norm, cmap="RdBu")
        sure = one.ratio.lo is not None and not one.ratio.lo <= 1 <= (one.ratio.hi or 1.0)
        how = {"ha": "center", "va": "center", "fontsize": small()}
        ink = "white" if abs(value - 1) > 0.7 * most else "black"
        ax.text(x, y, f"{value:.2f}{'*' if sure else ''}", color=ink, **how)
        row = {"nodes": one.nodes, "concurrency": one.at, "tree": one.tree, "chain": one.chain}
        row |= cells(one.ratio, "over_chain")
        plot.rows.append(row | cells(one.alone, "chain_over_none"))
    ax.set_xticks(range(len(sizes)), [str(n) for n in sizes])
    ax.set_yticks(range(len(nodes)), [str(n) for n in nodes])
    ax.set(xlabel="requests in flight", ylabel="nodes of the tree")
    ax.grid(visible=False)
    plot.caption(
        "Trees over chains, by load",
        f"{name_of(plot.study)}; tokens/s of the best tree of that size (Sequoia's or EAGLE-2's)"
        f" ÷ those of the best of five fixed chains; *: differs from 1 (95% CI,"
        f" {how_many(seeds, 'run')})."
        f" {COST if cost is None else cost}.",
    )
