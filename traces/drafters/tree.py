"""A drafter that proposes several tokens behind each one: a tree from every start.

What is recorded of a start is the union of all nodes that some named shapes can reach
(`traces.trees.shapes`), and the children of every node on the output's path, so that any fixed set
of rank paths can be told its outcome. Children are deterministic: the likeliest of what the draft
says. A node is accepted if it and all before it are the output's tokens, in either coupling.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from traces import schema
from traces.checks_tree import check_tree
from traces.drafters.kind import DrafterKind, Shard, register, run_offsets
from traces.errors import DrafterError, TraceError
from traces.messages import how_many

if TYPE_CHECKING:
    from traces.manifest import Manifest
    from traces.trace import Trace


@register
class Tree(DrafterKind):
    """A row for each (start, node); see `DrafterKind`."""

    name = stored = "tree"
    layout = "simkit.drafters.tree:TreeLayout"
    own = ("shapes", "width")
    known_outputs = False
    lacks = {
        "path": "the trace holds trees: it has no rows on a path",
        "select": "the trace holds trees: only of a trace of rows can prompts be selected",
        "live": "the trace holds trees: a live decoder that drafts them is `simkit.live.trees`",
    }
    noun = ("node", "tree")

    def widest(self) -> dict[str, pa.Schema]:
        """See `DrafterKind`."""
        return {"tree": schema.TREE}

    def check_header(self, manifest: Manifest) -> None:
        """See `DrafterKind`."""
        from traces.trees import shapes  # compiles, which readers of other kinds need not load

        if manifest.width < 1 or not manifest.shapes:
            raise TraceError("a trace of trees must name its shapes, and its width")
        try:
            known = [shapes.parse(text) for text in manifest.shapes]
        except DrafterError as error:
            raise TraceError(f"shapes: {error}") from None
        deepest = max(shape.levels for shape in known)
        if deepest > manifest.max_draft:
            raise TraceError(
                f"shapes reach {how_many(deepest, 'level')}, max_draft is {manifest.max_draft}"
            )

    def check_shard(self, shard: Shard) -> Iterator[str]:
        """See `DrafterKind`."""
        (table,) = self.tables(shard.manifest).items()
        yield from check_tree(shard.rows(*table), shard.sequences, shard.manifest)

    def offsets(self, trace: Trace, table: str) -> np.ndarray:
        """See `DrafterKind`: of the tree from each position; the last one of T_max has none."""
        return run_offsets(trace, table, "start", ("node", 0))

    def outcomes(self, trace: Trace) -> tuple[str, np.ndarray]:
        """See `DrafterKind`: the best children along the path, as a chain would draft them."""
        parent, node = trace.column("tree", "parent"), trace.column("tree", "node")
        begins = np.arange(len(node)) - node
        on_path = trace.column("tree", "on_path")
        reached = (parent >= 0) & (trace.column("tree", "rank") == 0)
        chain = node == 0  # nodes of the chain of best children
        for depth in range(1, trace.max_draft + 1):
            here = reached & (trace.column("tree", "depth") == depth)
            chain[here] = chain[begins[here] + parent[here]]
        known = reached & chain
        known[known] = on_path[begins[known] + parent[known]]
        return "tree", known

    def uses(self, manifest: Manifest) -> str:
        """See `DrafterKind`."""
        return f"tree policies within {', '.join(manifest.shapes)}, and chains of best children"
