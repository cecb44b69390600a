"""The tree of one step, node by node."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from analysis.replays import of
from analysis.study import MissingError, Study
from analysis.trees import STEPS, beams, eagle2, layout_of_trees
from simkit.drafters.tree import TreeLayout
from simkit.trees.growing import Growing, GrowingTree


class StepTree(NamedTuple):
    """The nodes of one step that are drawn, M of them; the root comes first.

    Attributes:
        sequence: index of the output.
        start: 1-based position in it.
        spec: of the policy.
        drafted: nodes in all, the root apart; verified likewise.
        verified: see above.
        parent: (M,) int64, -1 of the root.
        depth: (M,) int64.
        token: (M,) int64.
        chance: (M,) float64, probability behind the root.
        accepted: (M,) bool, along the output.
    """

    sequence: int
    start: int
    spec: str
    drafted: int
    verified: int
    parent: np.ndarray
    depth: np.ndarray
    token: np.ndarray
    chance: np.ndarray
    accepted: np.ndarray


def step_tree(
    study: Study,
    policy: str | None = None,
    sequence: int | None = None,
    start: int | None = None,
    most: int = 24,
) -> StepTree:
    """The verified nodes of one step; of more than `most` the accepted and the likeliest ones.

    Args:
        study: of a trace of trees.
        policy: its spec; None: EAGLE-2's widest beams with 16 nodes, or Sequoia's tree of as many.
        sequence: index of an output; None: that of the step with the longest accepted path beside
            which a node was rejected; of several, that in which a chain gets least far.
        start: position in it at which the policy's replay need not start a step; None: likewise.
        most: nodes, the root apart.

    Raises:
        MissingError: there is no such position, or no such step; or the policy's trees cannot be
            grown node by node.
        UserError: see `simkit.replay`.
    """
    beam = beams(study)
    spec = policy or (eagle2(beam.widths[-1], beam.depth + 1, 17) if beam else "sequoia(16)")
    at, layout = of(study, STEPS), layout_of_trees(study)
    (wanted,) = at.within(spec)
    bound = wanted.bind(at.where)
    if not isinstance(bound, Growing):
        raise MissingError(f"{wanted} does not grow its trees level by level")
    row = _row(study, spec, bound, sequence, start)
    nodes = verified(bound, layout, row)
    kept = _kept(layout, row, nodes, most)
    trees, low = layout.trees, layout.trees.begin[row]
    place = {int(node): k for k, node in enumerate(kept)}
    tokens = layout.trace.column("tree", "token")[low + kept]
    which = int(np.searchsorted(layout.offsets, row, "right")) - 1
    return StepTree(
        sequence=which,
        start=int(row - layout.offsets[which]) + 1,
        spec=str(wanted),
        drafted=int(bound.outcomes(layout).work(np.array([row])).drafted[0]),
        verified=len(nodes),
        parent=np.array([place.get(int(p), -1) for p in trees.parent[low + kept]]),
        depth=trees.depth[low + kept].astype(np.int64),
        token=tokens.astype(np.int64),
        chance=np.exp(trees.total[low + kept]),
        accepted=trees.path[low + kept],
    )


def verified(policy: Growing, layout: TreeLayout, row: int) -> np.ndarray:
    """The recorded nodes that a policy verifies from a start, (n,) int64 ascending, no root.

    They are found as a live decoder does: level by level, the policy asked in between.
    """
    trees, low = layout.trees, int(layout.trees.begin[row])
    kept, width = np.zeros(1, np.int64), policy.width
    for level in range(min(policy.levels, int(trees.room[row]))):
        grown = kept[policy.grows(_tree(layout, low, kept, policy.head), level)]
        new = [
            trees.first[low + node] + np.arange(min(width, int(trees.children[low + node])))
            for node in grown
            if trees.children[low + node]
        ]
        if not new:
            break
        kept = np.concatenate([kept, *new])
    return kept[policy.chosen(_tree(layout, low, kept, policy.head))] if len(kept) > 1 else kept[:0]


def _tree(layout: TreeLayout, low: int, kept: np.ndarray, head: str | None) -> GrowingTree:
    """Some nodes of a recorded tree, as policies see them that read a head, if they do."""
    trees, at = layout.trees, low + kept
    place = np.full(int(kept[-1]) + 1, -1, np.int32)
    place[kept] = np.arange(len(kept))
    parent = np.append(np.int32(-1), place[trees.parent[at[1:]]]).astype(np.int32)
    total = trees.total[at]
    log_prob = np.append(0.0, total[1:] - total[parent[1:]]).astype(np.float32)
    asked = np.bincount(parent[1:], minlength=len(kept))
    tokens = layout.trace.column("tree", "token")[at]
    ended = np.isin(tokens, layout.trace.eos_token_ids)
    ended[0] = False
    entropy = np.where(asked > 0, trees.entropy[at], np.nan).astype(np.float32)
    said = layout.scored(head)[at] if head else np.full(len(kept), np.nan, np.float32)
    return GrowingTree(
        parent=parent,
        depth=trees.depth[at],
        rank=trees.rank[at],
        total=total,
        children=asked.astype(np.int32),
        ended=ended,
        log_prob=log_prob,
        entropy=entropy,
        score=np.where(asked > 0, said, np.nan).astype(np.float32),
    )


def _kept(layout: TreeLayout, row: int, nodes: np.ndarray, most: int) -> np.ndarray:
    """The root and up to so many nodes: those along the output, and the likeliest with them."""
    trees, low = layout.trees, layout.trees.begin[row]
    own = trees.path[low + nodes]
    order = np.lexsort((nodes, -trees.total[low + nodes], ~own))[:most]
    return np.append(0, np.sort(nodes[order]))


def _row(study: Study, spec: str, policy: Growing, sequence: int | None, start: int | None) -> int:
    """The start that is drawn."""
    layout = layout_of_trees(study)
    n = layout.n_output
    if sequence is not None and not 0 <= sequence < len(n):
        raise MissingError(f"there is no sequence {sequence}: there are {len(n)}")
    if start is not None:
        which = sequence or 0
        if not 1 <= start <= n[which]:
            raise MissingError(f"sequence {which} has no position {start}: it has {n[which]}")
        return int(layout.offsets[which]) + start - 1
    steps = [piece for piece, _ in of(study, STEPS).run(spec).pieces()]
    rows = np.concatenate([layout.offsets[s.sequence] + s.start - 1 for s in steps])
    accepted = np.concatenate([s.accepted for s in steps])
    if sequence is not None:
        mine = (rows >= layout.offsets[sequence]) & (rows < layout.offsets[sequence + 1])
        rows, accepted = rows[mine], accepted[mine]
    for k in np.lexsort((rows, layout.ahead[rows], -accepted)):
        nodes = verified(policy, layout, int(rows[k]))
        if len(nodes) > accepted[k] > 0:
            return int(rows[k])
    raise MissingError(f"no step of {spec} accepts a node beside one that is rejected")
