"""The bound of all trees: nodes along the output alone."""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass, replace

import numpy as np

from simkit.drafters.tree import TreeLayout
from simkit.errors import PolicyError
from simkit.policies.arguments import whole_number
from simkit.policies.base import MAX_DRAFT, Setting
from simkit.policies.registry import register
from simkit.trees.base import Outcomes, TreePolicy, by_level


@register
@dataclass(frozen=True)
class TreeProphet(TreePolicy):
    """Draft only nodes on the output, as many as make the total time shortest; needs the future.

    On every level it drafts the node that will be accepted, if this node is among the recorded
    children. So no recorded tree of as many levels emits more tokens in a step. No tree that emits
    as many takes less time, if a pass over fewer tokens does not take longer. The number of levels
    of each step is a shortest path over starts, see `simkit.simulator.shortest_path`.

    Tripping token: none. Score: none. State: none; the lengths are fitted to a trace and its cost.
    Feedback: none.
    Source: ours.

    Attributes:
        deepest: largest number of levels.

    Raises:
        PolicyError: an argument is out of range; or there is no cost.
    """

    deepest: int = whole_number(MAX_DRAFT)

    name = "tree_prophet"
    needs_future = True

    @property
    def levels(self) -> int:
        """See `TreePolicy`."""
        return self.deepest

    def bind(self, setting: Setting) -> TreeProphet:
        """See `Policy`."""
        setting.costs(self.name)
        assert isinstance(setting.layout, TreeLayout)
        along = copy(setting.layout)
        along.ahead = (setting.layout.trees.ranks >= 0).sum(1).astype(np.int32)
        bound = replace(self)
        vars(bound)["lengths"] = setting._replace(layout=along).shortest(self.deepest)
        return bound

    def outcomes(self, layout: TreeLayout) -> Outcomes:
        """See `TreePolicy`."""
        lengths = vars(self).get("lengths")
        if lengths is None:
            raise PolicyError(f"{self.name} must be fitted to a trace and a cost: replay it")
        each = np.arange(int(lengths.max(initial=0)) + 1, dtype=np.int32)
        widths = np.ones(len(each) - 1, np.int32)
        return Outcomes(lengths, lambda rows: by_level(lengths[rows], each, widths))
