"""What a head says of the beams of trees, at all starts of a trace, by level."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from simkit.drafters.tree import TreeLayout, Trees
from traces.kernels import compiled, compiled_part
from traces.trees.forest import best_children


class JudgedTree(NamedTuple):
    """Predicted probabilities that branches are accepted, behind each level; R starts, L levels.

    A level is behind when its nodes are proposed. The pass that has proposed it has read the nodes
    of the level before, which are what is judged; behind the first one only the root has been read.
    Without any it is NaN.

    Attributes:
        least: (R, L) float64, of the branches to the nodes that the pass has read, the least
            product of the scores along it.
        lanes: (R, L) float64, the largest of the public code's products, see `lane_products`.
    """

    least: np.ndarray
    lanes: np.ndarray


def judged(layout: TreeLayout, top_k: int, levels: int, head: str) -> JudgedTree:
    """What a head says of beams of this width, as deep as was recorded of them; kept."""
    key = "judged", top_k, levels, head
    if key not in layout.kept:
        shape = len(layout.trees.room), levels
        found = JudgedTree(np.full(shape, np.nan), np.full(shape, np.nan))
        _fill(layout.trees, layout.scored(head), top_k, found)
        layout.kept[key] = found
    return layout.kept[key]


def least_product(score: np.ndarray, parent: np.ndarray, nodes: np.ndarray) -> float:
    """The least product of scores along the branches to some nodes of a tree, the root apart.

    Args:
        score: (M,) of the tree's nodes; NaN where a node was not read.
        parent: (M,).
        nodes: that are looked at; those that were not read are left out.
    """
    least = np.nan
    for node in nodes:
        product, here = 1.0, node
        if np.isnan(score[node]):
            continue
        while here > 0:
            product *= np.float64(score[here])
            here = parent[here]
        if not product >= least:
            least = product
    return least


def lane_products(
    score: np.ndarray, parent: np.ndarray, beam: np.ndarray, lanes: np.ndarray
) -> np.ndarray:
    """The running products of the public code, a level further.

    A lane is a place in the beam, likeliest first. Each level multiplies a lane's product with the
    score of the parent of the node that stands there now, whichever stood there before.

    Args:
        score: (M,) of the tree's nodes.
        parent: (M,).
        beam: of the level that was proposed, the likeliest first.
        lanes: (top_k,) float64, at first the root's score; of those beyond the beam nothing is
            read.
    """
    for lane in range(len(beam)):
        lanes[lane] *= np.float64(score[parent[beam[lane]]])
    return lanes


_least_product = compiled_part(least_product)
_lane_products = compiled_part(lane_products)


@compiled
def _fill(trees: Trees, scores: np.ndarray, top_k: int, found: JudgedTree) -> None:
    heads, out = np.zeros(top_k, np.int32), np.zeros(top_k, np.int32)
    lanes = np.zeros(top_k)
    for r in range(len(trees.begin) - 1):
        low, high = trees.begin[r], trees.begin[r + 1]
        if low == high:
            continue
        total, first = trees.total[low:high], trees.first[low:high]
        children, parent = trees.children[low:high], trees.parent[low:high]
        score = scores[low:high]
        lanes[:] = np.float64(score[0])
        out[0], n = 0, 1
        for level in range(found.least.shape[1]):
            read = out[:n].copy()
            n = best_children(total, first, children, read, n, top_k, heads, out)
            if n == 0:
                break
            if level == 0:
                continue
            found.least[r, level] = _least_product(score, parent, read)
            _lane_products(score, parent, out[:n], lanes)
            found.lanes[r, level] = lanes[:n].max()
