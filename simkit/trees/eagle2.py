"""EAGLE-2's dynamic trees: beams, and the best of all nodes that they proposed."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from simkit.drafters.layout import Span
from simkit.drafters.tree import TreeLayout
from simkit.errors import PolicyError
from simkit.policies.arguments import whole_number
from simkit.policies.registry import register
from simkit.trees.base import Outcomes, Visit
from simkit.trees.beams import beam_outcomes, beams_of, visit_beams
from simkit.trees.growing import Growing, GrowingTree
from traces.trees.shapes import DEEPEST, WIDEST, Beams

_SGLANG = ("num_steps", "num_draft_tokens")
_TENSORRT = ("max_draft_len", "max_total_draft_tokens")


@register
@dataclass(frozen=True)
class Eagle2(Growing):
    """Draft EAGLE-2's tree: the `total` - 1 likeliest nodes that beams of `top_k` nodes propose.

    Level 1 is the root's `top_k` children. Each of the `depth` further levels is the children,
    `top_k` each, of the beam: the `top_k` likeliest nodes of the level before, by summed
    log-probability. The likeliest of all these nodes are verified. They form a tree, since no node
    is likelier than its parent. Of equally likely nodes the one of the lower level comes first, and
    within a level the one with the earlier rank path. An EOS token has no children.

    Engines count differently. In EAGLE, `depth` d means d + 1 levels and passes, and `total` counts
    the root. SGLang's `num_steps` counts levels, and its `num_draft_tokens` counts the root.
    TensorRT-LLM's `max_draft_len` counts levels, and its `max_total_draft_tokens` does not count
    the root. Give the arguments of one engine only.

    Tripping token: none. Score: none. State: none. Feedback: none.
    Source: EAGLE-2 (arXiv 2406.16858), section 4 and its code, whose defaults these are.

    Attributes:
        top_k: nodes of a beam, and children of each.
        depth: levels below the first.
        total: nodes of a verification, the root included.
        num_steps: SGLang's argument; 0: not given.
        num_draft_tokens: SGLang's argument; 0: not given.
        max_draft_len: TensorRT-LLM's argument; 0: not given.
        max_total_draft_tokens: TensorRT-LLM's argument; 0: not given.

    Raises:
        PolicyError: an argument is out of range, arguments of two engines are mixed, or fewer nodes
            would be verified than there are levels.
    """

    top_k: int = whole_number(10, 1)
    depth: int = whole_number(7)
    total: int = whole_number(60, 2)
    num_steps: int = whole_number(0)
    num_draft_tokens: int = whole_number(0)
    max_draft_len: int = whole_number(0)
    max_total_draft_tokens: int = whole_number(0)

    name = "eagle2"

    def __post_init__(self) -> None:
        super().__post_init__()
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

    def grows(self, tree: GrowingTree, level: int) -> np.ndarray:
        """See `Growing`: the beam."""
        return tree.likeliest(tree.of_level(level), self.top_k)

    def chosen(self, tree: GrowingTree) -> np.ndarray:
        """See `Growing`."""
        return tree.likeliest(np.arange(1, len(tree.parent)), self.nodes)

    def outcomes(self, layout: TreeLayout) -> Outcomes:
        """See `TreePolicy`."""
        layout.check_held(self, Beams(self.top_k, self.levels - 1))
        level = np.minimum(layout.trees.room, self.levels)
        return beam_outcomes(beams_of(layout, self.top_k), level, self.nodes)

    def visit(self, layout: TreeLayout, first: int, span: Span) -> Visit:
        """See `TreePolicy`: only starts of steps are looked at."""
        layout.check_held(self, Beams(self.top_k, self.levels - 1))
        return visit_beams(layout, self.top_k, self.levels, self.nodes, first, span)
