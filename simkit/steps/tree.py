"""Policies that draft a tree and have some of its nodes verified."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from simkit.costs.base import Model
from simkit.drafters.layout import Layout, Span
from simkit.drafters.tree import TreeLayout, where_trees
from simkit.policies import PolicyError
from simkit.steps.family import Family
from simkit.steps.steps import Steps
from simkit.steps.work import Work
from simkit.trees.base import TreePolicy, TreeWork
from traces.drafters.passes import Opening


@dataclass(frozen=True, eq=False)
class TreeSteps(Steps):
    """Steps that draft trees.

    `drafted` counts the nodes that the draft proposed, `proposed` those that the target was given,
    `accepted` those of them along the output; `asked` counts levels where one pass yields them all.

    Attributes:
        work: what each step drafted.
    """

    work: TreeWork

    @cached_property
    def widths(self) -> np.ndarray:
        """Nodes in each pass of the draft, (N, P) int32; a pass that yields all of them is one."""
        return self.work.widths()[:, : int(self.draft_passes.max(initial=0))]


class TreeFamily(Family[TreePolicy, TreeSteps]):
    """See the module."""

    def walk(
        self, policy: TreePolicy, layout: Layout, first: int, span: Span | None = None
    ) -> TreeSteps:
        """See `Family`; a span costs as much as all sequences do."""
        assert isinstance(layout, TreeLayout)
        low, high = span or (0, len(layout.n_output))
        rows, offsets, accepted, grown = policy.visit(layout, first, (low, high))
        ends = layout.offsets[low + 1 : high + 1]
        emitted = accepted + np.int32(1)
        last = offsets[1:][np.diff(offsets) > 0] - 1
        emitted[last] = np.minimum(emitted[last], (ends[np.diff(offsets) > 0] - rows[last]))
        passes = grown.passes
        if layout.paid == "none":
            passes = np.zeros_like(passes)
        elif layout.paid in ("draft", "block"):
            passes = np.minimum(passes, 1)
        whole = layout.deepest is not None
        asked = _levels(policy, layout, rows, grown) if whole else grown.drafted
        counts = (grown.drafted, passes, grown.verified, accepted, emitted, asked)
        return TreeSteps(offsets, *counts, first, grown, low=low)

    def work(self, policy: TreePolicy, steps: TreeSteps, layout: Layout) -> Work:
        """See `Family`.

        The draft makes a pass a level over the nodes that get children. The first is over the
        tokens that it has not read yet; where one pass yields a whole draft, it is that pass.
        """
        paid = layout.paid
        whole = paid in ("draft", "block") or (isinstance(paid, Opening) and not paid.each)
        return Work(
            steps.known(layout),
            steps.proposed + 1,
            steps.asked if whole else (steps.draft_passes > 0).astype(np.int64),
            steps.unread if layout.reads_back else 1,
            steps.work.calls,
            steps.widths[:, 1:],
        )

    def reach(self, policy: TreePolicy, layout: Layout) -> dict[Model, float]:
        """See `Family`."""
        return {"target": np.inf, "draft": np.inf}

    def check(self, policy: TreePolicy, layout: Layout) -> None:
        """See `Family`."""
        if not layout.has_trees:
            raise PolicyError(
                f"{policy} drafts trees, and {layout.trace.manifest.spec or 'this trace'} holds"
                f" none: {where_trees(layout.trace)}"
            )

    def remarks(self, policy: TreePolicy, means: dict[str, float]) -> list[str]:
        """See `Family`."""
        drafted, verified = means["drafted"], means["proposed"]
        if drafted <= verified:
            return []
        return [
            f"{policy}: of {drafted:.0f} nodes that are drafted in a step {verified:.0f} are"
            f" verified; {means['accepted'] / verified:.1%} of those are accepted"
        ]


def _levels(
    policy: TreePolicy, layout: TreeLayout, rows: np.ndarray, grown: TreeWork
) -> np.ndarray:
    """That one pass is asked for which yields a whole draft, as of a chain; (N,) int32."""
    if policy.needs_future:
        return grown.passes
    assert layout.deepest is not None
    longest = np.minimum(layout.trees.room[rows], min(policy.levels, layout.deepest))
    return np.where(grown.passes > 0, longest, np.int32(0)).astype(np.int32)


FAMILY = TreeFamily()
