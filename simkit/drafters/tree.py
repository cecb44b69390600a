"""What a step sees where a draft is a tree: all its nodes, and the chain of its best children.

Policies that draft trees read `TreeLayout.trees`. To all others a tree is the draft that goes on
with the likeliest token each time, so that chains are replayed on the recording of trees as on any
lattice.
"""

from __future__ import annotations

from contextlib import suppress
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from simkit.drafters.lattice import LatticeLayout
from simkit.errors import ReplayError
from traces import scores
from traces.errors import UserError
from traces.finding import find
from traces.kernels import compiled
from traces.messages import how_many
from traces.trace import Trace
from traces.trees import shapes

_COLUMNS = {
    "draft_entropy": "draft_entropy",  # of what is said behind a token's parent
    "draft_top1_prob": "draft_top1_prob",
    "draft_prob_raw": "draft_top1_prob",  # the chain's token is the likeliest one
    "draft_prob": "",  # 1: it is certain
}


def where_trees(trace: Trace) -> str:
    """What to do, in words, where a trace's drafts are no trees."""
    recording, found = trace.recording or trace, []
    for name in recording.drafters:
        with suppress(UserError):  # half attached
            if recording.path and find(recording.path, name)[1].kind == "tree":
                found.append(name)
    if found:
        return f"name a drafter that has trees with --drafter ({', '.join(found)})"
    return "attach a drafter with --tree (simkit attach), and name it with --drafter"


class Trees(NamedTuple):
    """The recorded trees from all starts, R of them with M nodes in all; roots are nodes too.

    A node's number is that inside its own tree; `traces.trees.forest` has the order of nodes.

    Attributes:
        begin: (R + 1,) int64; nodes begin[r] to begin[r + 1] are those of start r.
        parent: (M,) int32, -1 of a root.
        depth: (M,) int32.
        rank: (M,) int32.
        total: (M,) float64, summed log-probability.
        first: (M,) int32, the first child; -1 where there is none.
        children: (M,) int32, how many.
        path: (M,) bool, see `Forest`.
        entropy: (M,) float32, nats, of what is said behind it; NaN where nothing is.
        room: (R,) int32, levels that T_max leaves.
        ranks: (R, Γ) int32, the rank of the output's token among the children of the output's node
            before it; -1 from where it is none of the recorded ones.
    """

    begin: np.ndarray
    parent: np.ndarray
    depth: np.ndarray
    rank: np.ndarray
    total: np.ndarray
    first: np.ndarray
    children: np.ndarray
    path: np.ndarray
    entropy: np.ndarray
    room: np.ndarray
    ranks: np.ndarray


class TreeLayout(LatticeLayout):
    """The trees of a trace, see `Layout`; its chains are those of the best children.

    Attributes:
        drawn: whether children are drawn without replacement, so that a node has the first ones.
        kept: what policies have found of all starts, by what they call it.
    """

    has_trees = True
    drawn = False

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self.kept: dict[Any, Any] = {}
        self._start()
        super().__init__(trace)

    def _start(self) -> None:
        """Find the chains of best children."""
        self._nodes, self._tail = _chains(self.begin, self.trace.column("tree", "parent"))

    def has(self, column: str) -> bool:
        """See `LatticeLayout`."""
        return column in _COLUMNS

    def lag(self, head: str) -> int:
        """See `Layout`: a token is judged from the state that has consumed it."""
        self.scored(head)
        return 1

    def scored(self, head: str) -> np.ndarray:
        """A head's scores of all nodes, (M,) float32; NaN where the draft has read none.

        Raises:
            TraceError: there are none of that name.
        """
        key = "score", head
        if key not in self.kept:
            found = scores.load(self.trace, head)
            assert isinstance(found, scores.NodeScores)
            self.kept[key] = found.values
        return self.kept[key]

    @property
    def readable(self) -> list[str]:
        """See `LatticeLayout`."""
        return list(_COLUMNS)

    @cached_property
    def begin(self) -> np.ndarray:
        """See `Trees`."""
        return self.trace.offsets("tree")

    @cached_property
    def shapes(self) -> list[shapes.Shape]:
        """That were recorded."""
        return [shapes.parse(text) for text in self.trace.manifest.shapes]

    @cached_property
    def trees(self) -> Trees:
        """See there."""
        read = self.trace.column
        parent = read("tree", "parent").astype(np.int32)
        path = read("tree", "on_path")
        total, first, children = _linked(self.begin, parent, read("tree", "log_prob"))
        rank = read("tree", "rank").astype(np.int32)
        depth = read("tree", "depth").astype(np.int32)
        room = (self.trace.max_new_tokens - self.position).astype(np.int32)
        ranks = _ranks(self.begin, first, children, path, rank, self.trace.max_draft)
        entropy = read("tree", "draft_entropy")
        links = parent, depth, rank, total, first, children
        return Trees(self.begin, *links, path, entropy, room, ranks)

    def check_held(self, policy: object, wanted: shapes.Shape) -> None:
        """Refuse a shape whose nodes were not all recorded.

        Raises:
            ReplayError: as said; the message names those that were.
        """
        if not any(shape.holds(wanted) for shape in self.shapes):
            known = _in_words(self.trace.manifest.shapes)
            raise ReplayError(
                f"{policy} drafts nodes that were not recorded; the trees hold {known}"
            )

    def check_within(self, policy: object, levels: int, width: int) -> None:
        """Refuse rank paths that are deeper or wider than what was recorded along the output.

        Raises:
            ReplayError: as said.
        """
        deepest, widest = self.trace.max_draft, self.trace.manifest.width
        if levels > deepest or width > widest:
            raise ReplayError(
                f"{policy} needs {how_many(levels, 'level')} and {width} children of a node;"
                " recorded are"
                f" {how_many(deepest, 'level')} and {widest} children"
            )

    def _lengths(self) -> np.ndarray:
        """See `LatticeLayout`."""
        return np.diff(self._tail)

    def _accepted(self) -> np.ndarray:
        """See `LatticeLayout`."""
        path = np.append(self.trace.column("tree", "on_path")[self._nodes], False)
        rejected = np.flatnonzero(~path)
        begins, ends = self._tail[:-1], self._tail[1:]
        return np.minimum(rejected[np.searchsorted(rejected, begins)], ends) - begins

    def _ended(self) -> np.ndarray:
        """See `LatticeLayout`: by an EOS, or as T_max is reached; of a lookup all are whole."""
        if self.trace.manifest.draft_passes == "none":
            return np.ones(len(self.recorded), bool)
        ended = self.recorded >= self.trace.max_new_tokens - self.position
        some = np.flatnonzero(self.recorded)
        last = self._nodes[self._tail[some + 1] - 1]
        tokens = self.trace.column("tree", "token")[last]
        ended[some] |= np.isin(tokens, self.trace.eos_token_ids)
        return ended

    def _scores(self, head: str) -> np.ndarray:
        """See `LatticeLayout`; 1 where a chain was recorded no deeper: a late rule reads none."""
        own = self.scored(head)[self._nodes]
        return self._by_start(np.where(np.isnan(own), 1, own))

    def _values(self, name: str) -> np.ndarray:
        """See `LatticeLayout`: what was said behind each node's parent."""
        if name == "draft_prob":
            return np.ones(len(self._nodes), np.float32)
        begins = np.repeat(self.begin[:-1], np.diff(self.begin))[self._nodes]
        parents = begins + self.trace.column("tree", "parent")[self._nodes]
        return self.trace.column("tree", _COLUMNS[name])[parents]


def _in_words(names: tuple[str, ...]) -> str:
    """The shapes of a recording; of many, the first and the last."""
    if len(names) <= 4:
        return ", ".join(names)
    return f"{how_many(len(names), 'shape')}, {names[0]} to {names[-1]}"


@compiled
def _chains(begin: np.ndarray, parent: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The nodes of each start's chain of best children, and where each chain begins, (R + 1,)."""
    tail = np.zeros(len(begin), np.int64)
    nodes = np.empty(len(parent), np.int64)
    count = 0
    for r in range(len(begin) - 1):
        here = 0
        for m in range(begin[r], begin[r + 1]):
            if parent[m] == here and m > begin[r]:
                nodes[count] = m
                count += 1
                here = m - begin[r]
        tail[r + 1] = count
    return nodes[:count].copy(), tail


@compiled
def _linked(
    begin: np.ndarray, parent: np.ndarray, log_prob: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Of each node its total, its first child, and how many children it has."""
    total = np.zeros(len(parent))
    first = np.full(len(parent), -1, np.int32)
    children = np.zeros(len(parent), np.int32)
    for r in range(len(begin) - 1):
        low = begin[r]
        for m in range(low + 1, begin[r + 1]):
            above = low + parent[m]
            total[m] = total[above] + np.float64(log_prob[m])
            if children[above] == 0:
                first[above] = m - low
            children[above] += 1
    return total, first, children


@compiled
def _ranks(
    begin: np.ndarray,
    first: np.ndarray,
    children: np.ndarray,
    path: np.ndarray,
    rank: np.ndarray,
    deepest: int,
) -> np.ndarray:
    """See `Trees`."""
    found = np.full((len(begin) - 1, deepest), -1, np.int32)
    for r in range(len(begin) - 1):
        low = begin[r]
        here = low
        for depth in range(deepest):
            if here == begin[r + 1]:
                break
            child = low + first[here]
            last = child + children[here]
            while child < last and not path[child]:
                child += 1
            if child >= last:
                break
            found[r, depth] = rank[child]
            here = child
    return found
