"""EAGLE-2's dynamic trees: beams, and the best of all nodes that they proposed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from simkit.drafters.tree import TreeLayout, Trees
from simkit.errors import PolicyError
from simkit.policies.arguments import check_whole
from simkit.policies.registry import register
from simkit.trees.base import Outcomes, Work
from simkit.trees.growing import Growing, Tree
from traces.kernels import compiled
from traces.trees.forest import best_children
from traces.trees.shapes import DEEPEST, WIDEST, Beams

_SGLANG = ("num_steps", "num_draft_tokens")
_TENSORRT = ("max_draft_len", "max_total_draft_tokens")


@register
@dataclass(frozen=True)
class Eagle2(Growing):
    """The `total` - 1 likeliest nodes of those that beams of `top_k` nodes propose.

    Level 1 are the root's `top_k` children. Each of the `depth` further levels is the children,
    `top_k` each, of the beam, which is the `top_k` likeliest nodes of the level before, by summed
    log-probability. Of all of them the likeliest are verified; they form a tree, since no node is
    likelier than its parent. Of equal ones the one of the lower level, and there of the earlier
    rank path, comes first. An EOS token has no children.

    Engines count differently: `depth` d are d + 1 levels and passes, and `total` counts the root
    (EAGLE). SGLang's `num_steps` are levels, its `num_draft_tokens` counts the root. TensorRT-LLM's
    `max_draft_len` are levels, its `max_total_draft_tokens` counts no root. Those of one engine
    alone may be given.

    Tripping token: none. Score: none. State: none. Feedback: none.
    Source: EAGLE-2 (arXiv 2406.16858), section 4 and its code, whose defaults these are.

    Attributes:
        top_k: nodes of a beam, and children of each.
        depth: levels below the first.
        total: nodes of a verification, the root among them.
        num_steps: see above; 0: not given.
        num_draft_tokens: see above.
        max_draft_len: see above.
        max_total_draft_tokens: see above.

    Raises:
        PolicyError: an argument is out of range, two engines' are mixed, or fewer nodes would be
            verified than there are levels.
    """

    top_k: int = 10
    depth: int = 7
    total: int = 60
    num_steps: int = 0
    num_draft_tokens: int = 0
    max_draft_len: int = 0
    max_total_draft_tokens: int = 0

    name = "eagle2"

    def __post_init__(self) -> None:
        check_whole(self, "top_k", 1)
        check_whole(self, "depth", 0)
        check_whole(self, "total", 2)
        for name in (*_SGLANG, *_TENSORRT):
            check_whole(self, name, 0)
        given = {name for name in (*_SGLANG, *_TENSORRT) if getattr(self, name)}
        if given and given not in (set(_SGLANG), set(_TENSORRT)):
            raise PolicyError(
                f"{self.name}: give {' and '.join(_SGLANG)} together, or {' and '.join(_TENSORRT)}"
            )
        own = Eagle2.depth, Eagle2.total
        if given and (self.depth, self.total) != own:
            raise PolicyError(f"{self.name}: depth and total do not go with {min(given)}")
        if self.top_k > WIDEST or self.levels > DEEPEST:
            raise PolicyError(
                f"{self.name}: at most {WIDEST} nodes in a beam and {DEEPEST} levels, not"
                f" {self.top_k} and {self.levels}"
            )
        if self.nodes < self.levels:
            raise PolicyError(
                f"{self.name}: {self.nodes} nodes are fewer than its {self.levels} levels: the"
                " deepest ones could never be verified"
            )

    @property
    def levels(self) -> int:
        """See `TreePolicy`."""
        return self.num_steps or self.max_draft_len or self.depth + 1

    @property
    def nodes(self) -> int:
        """That are verified at most, the root apart."""
        if self.max_total_draft_tokens:
            return self.max_total_draft_tokens
        return (self.num_draft_tokens or self.total) - 1

    @property
    def width(self) -> int:
        """See `Growing`."""
        return self.top_k

    def grows(self, tree: Tree, level: int) -> np.ndarray:
        """See `Growing`: the beam."""
        return tree.likeliest(tree.of_level(level), self.top_k)

    def chosen(self, tree: Tree) -> np.ndarray:
        """See `Growing`."""
        return tree.likeliest(np.arange(1, len(tree.parent)), self.nodes)

    def outcomes(self, layout: TreeLayout) -> Outcomes:
        """See `TreePolicy`."""
        layout.check_held(self, Beams(self.top_k, self.levels - 1))
        level = np.minimum(layout.trees.room, self.levels)
        return beam_outcomes(beams_of(layout, self.top_k), level, self.nodes)


class Grown(NamedTuple):
    """What beams of one width propose at each of R starts, by level, of which there are L.

    Attributes:
        made: (R, L) int32, nodes of each level.
        passed: (R, L) int32, nodes that the pass has which proposes that level.
        mass: (R, L) float64, the probability of all nodes of the beam that a level leaves.
        entropy: (R, L) float32, nats, of what is said behind the best node of the beam that
            proposes a level; NaN where none does.
        ahead: (R, L, D) int32; of all nodes up to a level, those that are likelier than the j-th of
            the output's own, where they come first if equal; very many if that one is not there.
    """

    made: np.ndarray
    passed: np.ndarray
    mass: np.ndarray
    entropy: np.ndarray
    ahead: np.ndarray

    def down_to(self, levels: int) -> Grown:
        """The first levels alone, so that what was recorded below them makes no difference."""
        made, passed, mass, entropy, ahead = (values[:, :levels] for values in self)
        return Grown(made, passed, mass, entropy, ahead[:, :, :levels])


def beam_outcomes(
    found: Grown,
    level: np.ndarray,
    nodes: int,
    asked: np.ndarray | None = None,
    room: np.ndarray | None = None,
) -> Outcomes:
    """What comes of beams that go on for so many levels, and of the best of their nodes.

    Args:
        found: what they propose.
        level: (R,) levels at each start.
        nodes: that are verified at most.
        asked: (L + 1,) int32, decisions behind so many levels and those before them; None: there
            are none.
        room: (R,) int32, levels that T_max leaves, which are not asked about behind the last one.
    """
    last = np.maximum(level, 1) - 1
    every = np.arange(len(level))
    ahead = found.ahead[every, last]
    within = (ahead < nodes) & (np.arange(ahead.shape[1]) < level[:, None])

    def work(rows: np.ndarray) -> Work:
        mine = level[rows]
        there = np.arange(found.passed.shape[1]) < mine[:, None]
        widths = np.where(there, found.passed[rows], 0)
        drafted = np.where(there, found.made[rows], 0).sum(1, dtype=np.int32)
        passes = (widths > 0).sum(1, dtype=np.int32)
        calls = np.zeros_like(mine)
        if asked is not None and room is not None:
            calls = asked[np.clip(room[rows] - 1, 0, passes)]
        return Work(drafted, np.minimum(drafted, np.int32(nodes)), passes, calls, lambda: widths)

    return Outcomes(within.sum(1, dtype=np.int32), work)


NEVER = np.iinfo(np.int32).max // 2


def beams_of(layout: TreeLayout, top_k: int) -> Grown:
    """What beams propose, as deep as was recorded; kept, since depths and totals share it."""
    key = "beams", top_k
    if key not in layout.kept:
        held = [s for s in layout.shapes if isinstance(s, Beams) and s.top_k == top_k]
        layout.kept[key] = _grow(layout.trees, top_k, max(s.levels for s in held))
    return layout.kept[key]


def _grow(trees: Trees, top_k: int, levels: int) -> Grown:
    shape = len(trees.room), levels
    found = Grown(
        np.zeros(shape, np.int32),
        np.zeros(shape, np.int32),
        np.zeros(shape),
        np.full(shape, np.nan, np.float32),
        np.full((*shape, levels), NEVER, np.int32),
    )
    _fill(trees, top_k, found)
    return found


@compiled
def _fill(trees: Trees, top_k: int, found: Grown) -> None:
    """Step the beams of all starts, and count who is ahead of the output's own nodes."""
    levels = found.made.shape[1]
    heads, out = np.zeros(top_k, np.int32), np.zeros(top_k, np.int32)
    beam = np.zeros(top_k, np.int32)
    beams = np.zeros((levels, top_k), np.int32)
    sizes = np.zeros(levels, np.int32)
    own = np.zeros(levels, np.int32)
    for r in range(len(trees.room)):
        low, high = trees.begin[r], trees.begin[r + 1]
        if low == high:
            continue
        total, first = trees.total[low:high], trees.first[low:high]
        children, path = trees.children[low:high], trees.path[low:high]
        out[0], n = 0, 1
        n_own, deepest = 0, 0
        for level in range(levels):
            beam[:n] = out[:n]
            sizes[level] = n
            beams[level, :n] = beam[:n]
            for b in range(n):
                many = min(top_k, children[beam[b]])
                found.made[r, level] += many
                found.passed[r, level] += many > 0
                if n_own == level and path[beam[b]]:
                    for rank in range(many):
                        child = first[beam[b]] + rank
                        if path[child]:
                            own[n_own] = child
                            n_own += 1
                            break
            deepest = level
            if found.made[r, level] == 0:
                break
            found.entropy[r, level] = trees.entropy[low + beam[0]]
            n = best_children(total, first, children, beam, n, top_k, heads, out)
            for b in range(n):
                found.mass[r, level] += np.exp(total[out[b]])
        for j in range(n_own):
            ahead = 0
            for level in range(deepest + 1):
                for b in range(sizes[level]):
                    node = beams[level, b]
                    child, last = first[node], first[node] + min(top_k, children[node])
                    while child < last and (
                        total[child] > total[own[j]]
                        or (total[child] == total[own[j]] and child < own[j])
                    ):
                        ahead += 1
                        child += 1
                found.ahead[r, level, j] = ahead if level >= j else NEVER
            for level in range(deepest + 1, levels):
                found.ahead[r, level, j] = ahead
