"""The replay of a tree policy: its outcomes at all starts, and the steps that get there."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from simkit.costs.drafting import Drafting
from simkit.drafters.layout import Layout, Span
from simkit.drafters.tree import TreeLayout
from simkit.policies import Branching
from simkit.simulator.charge import Charge
from simkit.simulator.steps import Steps
from simkit.trees.base import TreePolicy, Work


@dataclass(frozen=True, eq=False)
class TreeSteps(Steps):
    """Steps that draft trees.

    `drafted` counts the nodes that the draft proposed, `proposed` those that the target was given,
    `accepted` those of them along the output; `asked` counts levels where one pass yields them all.

    Attributes:
        work: of each step.
    """

    work: Work

    @cached_property
    def widths(self) -> np.ndarray:
        """Nodes in each pass of the draft, (N, P) int32; a pass that says all is one."""
        widths = self.work.widths()
        return widths[:, : int(self.draft_passes.max(initial=0))]

    def widest(self, drafting: Drafting, extra: int) -> np.ndarray:
        """See `Steps`."""
        return np.maximum(super().widest(drafting, extra), self.widths[:, 1:].max(1, initial=0))


def walk(policy: Branching, layout: Layout, first: int, span: Span | None = None) -> TreeSteps:
    """Replay a policy step by step.

    Args:
        policy: as `bind` gave it.
        layout: of the trace.
        first: position of each sequence's first step: 1, or 2 if the prefill emits a token.
        span: sequences to replay; None means all.

    Raises:
        ReplayError: nodes that it drafts were not recorded.
    """
    assert isinstance(policy, TreePolicy) and isinstance(layout, TreeLayout)
    low, high = span or (0, len(layout.n_output))
    rows, offsets, accepted, work = policy.visit(layout, first, (low, high))
    ends = layout.offsets[low + 1 : high + 1]
    emitted = accepted + np.int32(1)
    last = offsets[1:][np.diff(offsets) > 0] - 1
    emitted[last] = np.minimum(emitted[last], (ends[np.diff(offsets) > 0] - rows[last]))
    passes = work.passes
    if layout.paid == "none":
        passes = np.zeros_like(passes)
    elif layout.paid in ("draft", "block"):
        passes = np.minimum(passes, 1)
    asked = work.drafted if layout.deepest is None else _levels(policy, layout, rows, work)
    counts = (work.drafted, passes, work.verified, accepted, emitted, asked)
    return TreeSteps(offsets, *counts, first, work, low=low)


def seconds(policy: Branching, steps: TreeSteps, charge: Charge) -> dict[str, np.ndarray]:
    """The parts and the baseline of each step, in seconds; the parts sum to the step's time.

    The draft makes a pass a level over the nodes that get children, the first one over the tokens
    that it has not read yet, or where one pass yields a whole draft, that pass. The target verifies
    the nodes and the token before them in one pass.
    """
    assert isinstance(policy, TreePolicy)
    context = charge.context(steps)
    return {
        **charge.common(steps, context),
        "draft_s": _draft_s(policy, steps, charge, context),
        "verify_s": charge.verify(steps.proposed + 1, context),
        "policy_s": steps.work.calls * charge.call_s(policy),
    }


def _draft_s(
    policy: TreePolicy, steps: TreeSteps, charge: Charge, context: np.ndarray
) -> np.ndarray:
    drafting = charge.drafting
    once_s = drafting.once_s[context]
    if not steps.widths.shape[1]:
        return once_s
    begun = (steps.widths[:, 0] > 0).astype(np.int64)
    unread = steps.unread if drafting.by_unread else 1
    whole = drafting.opening is not None and not drafting.opening.each
    asked = steps.asked if whole else begun
    found = once_s + drafting.seconds(context, asked, unread)
    for level in range(1, steps.widths.shape[1]):
        width = steps.widths[:, level]
        there = np.flatnonzero(width)
        if len(there):
            found[there] += drafting.block(width[there], context[there] + level)
    return found


def _levels(policy: TreePolicy, layout: TreeLayout, rows: np.ndarray, work: Work) -> np.ndarray:
    """That one pass is asked for which yields a whole draft, as of a chain; (N,) int32."""
    if policy.needs_future:
        return work.passes
    assert layout.deepest is not None
    longest = np.minimum(layout.trees.room[rows], min(policy.levels, layout.deepest))
    return np.where(work.passes > 0, longest, np.int32(0)).astype(np.int32)
