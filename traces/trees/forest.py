"""Trees of draft tokens in arrays, as they grow and once they are whole.

Node 0 of a tree is its root, the last known token. The children of a node stand together, the
likeliest first; those of an earlier node come before those of a later one. So nodes are in order of
their depth, and those of one depth in order of their rank paths: of two nodes that are as good as
each other the earlier one wins, whatever else was recorded.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from traces.kernels import compiled, compiled_part

NONE = -1


class Forest(NamedTuple):
    """S trees of up to M nodes each.

    Attributes:
        size: (S,) int32, nodes of each tree, the root among them.
        parent: (S, M) int32; -1 of a root.
        depth: (S, M) int32; 0 of a root.
        rank: (S, M) int32, among its siblings, from 0.
        total: (S, M) float64, summed log-probability from the root on, whose own is 0.
        first: (S, M) int32, the first child; -1 where a node has none.
        children: (S, M) int32, how many it has.
        path: (S, M) bool, whether it and all before it are tokens of the output.
    """

    size: np.ndarray
    parent: np.ndarray
    depth: np.ndarray
    rank: np.ndarray
    total: np.ndarray
    first: np.ndarray
    children: np.ndarray
    path: np.ndarray


def forest(trees: int, nodes: int) -> Forest:
    """So many roots, with room for so many nodes in each tree."""
    shape = trees, nodes
    found = Forest(
        size=np.ones(trees, np.int32),
        parent=np.full(shape, NONE, np.int32),
        depth=np.zeros(shape, np.int32),
        rank=np.zeros(shape, np.int32),
        total=np.zeros(shape),
        first=np.full(shape, NONE, np.int32),
        children=np.zeros(shape, np.int32),
        path=np.zeros(shape, np.bool_),
    )
    found.path[:, 0] = True
    return found


def with_room(trees: Forest, nodes: int) -> Forest:
    """The same trees, with room for so many nodes in each."""
    held = trees.parent.shape[1]
    if nodes <= held:
        return trees
    found = forest(len(trees.size), max(nodes, 2 * held))
    for old, new in zip(trees[1:], found[1:], strict=True):
        new[:, :held] = old
    return found._replace(size=trees.size)


@compiled
def grow(trees: Forest, tree: np.ndarray, node: np.ndarray, log_prob: np.ndarray) -> None:
    """Give nodes their children, as many each; there must be room.

    Args:
        trees: to change; `path` of the children is not set.
        tree: (n,) of each node, ascending.
        node: (n,) ascending in each tree.
        log_prob: (n, C) float32 of the children, C >= 1, the likeliest first.
    """
    many = log_prob.shape[1]
    for k in range(len(tree)):
        s, parent = tree[k], node[k]
        trees.first[s, parent] = trees.size[s]
        trees.children[s, parent] = many
        for rank in range(many):
            at = trees.size[s]
            trees.parent[s, at] = parent
            trees.depth[s, at] = trees.depth[s, parent] + 1
            trees.rank[s, at] = rank
            trees.total[s, at] = trees.total[s, parent] + np.float64(log_prob[k, rank])
            trees.size[s] = at + 1


@compiled_part
def best_children(
    total: np.ndarray,
    first: np.ndarray,
    children: np.ndarray,
    beam: np.ndarray,
    n_beam: int,
    width: int,
    heads: np.ndarray,
    out: np.ndarray,
) -> int:
    """The likeliest children of a beam's nodes, in descending order of their totals.

    Of equal ones the earlier node comes first.

    Args:
        total: (M,) of one tree, as `first` and `children`.
        first: see `Forest`.
        children: see `Forest`.
        beam: nodes, in any order.
        n_beam: how many.
        width: of the likeliest children of each, and of all, so many count.
        heads: room for `n_beam` numbers.
        out: room for `width` nodes.

    Returns:
        how many there are.
    """
    for b in range(n_beam):
        heads[b] = 0
    found = 0
    while found < width:
        best, at = -1, -1
        for b in range(n_beam):
            node = beam[b]
            if heads[b] < min(width, children[node]):
                child = first[node] + heads[b]
                if best < 0 or total[child] > total[best]:
                    best, at = child, b
                elif total[child] == total[best] and child < best:
                    best, at = child, b
        if best < 0:
            break
        heads[at] += 1
        out[found] = best
        found += 1
    return found
