"""The acceptance head on EAGLE-2's trees, as in its paper and as in its public code."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from simkit.drafters.tree import TreeLayout
from simkit.policies.arguments import head_named, one_of, real_number
from simkit.policies.registry import register
from simkit.trees.beams import Grown
from simkit.trees.exits import Exit
from simkit.trees.growing import GrowingTree
from simkit.trees.judged import judged, lane_products, least_product

VARIANTS = ("paper", "code")


@register
@dataclass(frozen=True)
class TreeAcceptanceHead(Exit):
    """Stop growing EAGLE-2's tree when a head predicts a rejection: 1 - Π P̂ > h along branches.

    P̂ is the head's score of a node's token, from the state that has consumed it. The draft's pass
    over a beam proposes the next level and has read the beam's tokens. So after level l the head
    judges the branches to the nodes that were read at level l - 1; the first decision is after the
    second level. The level that the pass has proposed is kept. With a beam of one node it is
    `acceptance_head` on the chain of best children.

    With `variant=paper` growth stops as soon as 1 - Π P̂ of any branch exceeds h (eqs. 6 and 7: "if
    any branch's rejection probability exceeds the threshold"). With `variant=code` it stops once
    all lanes exceed h (`rej_prob.min() > 0.96`). A lane is a place in the beam, likeliest first.
    Its running product begins with the score of the root, which is the verified token. After each
    further level it is multiplied by the score of the parent of the node that is in that place
    then. From the third level on this mixes branches, since products do not follow their parents.

    Tripping token: kept, like all nodes of its level. Score: of the level before the newest one.
    State: for the variant "code" the lanes' products, reset each step. Feedback: none.
    Source: "Acceptance-guided adaptive speculative decoding", eqs. 4 to 7, and its public code
    (cnets_head.py). It sweeps h over 0.94-0.96 and the longest draft over 5-7.

    Attributes:
        h: threshold in [0, 1].
        variant: paper or code.
        head: name of the scores of nodes to read; "" means the policy's own name.
        top_k: see `Eagle2`.
        depth: see `Eagle2`.
        total: see `Eagle2`.

    Raises:
        PolicyError: an argument is out of range.
    """

    h: float = real_number(0.95, 0, 1)
    variant: str = one_of("paper", VARIANTS)
    head: str = head_named("acceptance_head")
    top_k: int = 10
    depth: int = 7
    total: int = 60

    name = "tree_acceptance_head"
    lag: ClassVar[int] = 1

    @property
    def timed_as(self) -> str:
        """See `Policy`: as the rule of chains, whose head judges one token a call."""
        return "acceptance_head"

    def asks(self, level: int) -> bool:
        """See `Growing`: behind the first level no token of the draft has been read."""
        return level > 1

    def stops(self, layout: TreeLayout, found: Grown) -> np.ndarray:
        """See `Exit`."""
        said = judged(layout, self.top_k, found.made.shape[1], self.head)
        return 1 - (said.least if self.variant == "paper" else said.lanes) > self.h

    def stops_live(self, tree: GrowingTree, level: int) -> bool:
        """See `Exit`."""
        if self.variant == "paper":
            read = self.beams.grows(tree, level - 1)
            return bool(1 - least_product(tree.score, tree.parent, read) > self.h)
        lanes = np.full(self.top_k, np.float64(tree.score[0]))
        beam = np.zeros(0, np.int64)
        for below in range(2, level + 1):
            beam = tree.descending(tree.of_level(below), self.top_k)
            lanes = lane_products(tree.score, tree.parent, beam, lanes)
        return bool(1 - lanes[: len(beam)].max(initial=0) > self.h)
