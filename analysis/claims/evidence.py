"""What claims are tested on: a trace, its times, and replays that are kept."""

from __future__ import annotations

from functools import cached_property

import numpy as np

from analysis.replays import Replays
from analysis.stats import Estimate, depth, drafts
from analysis.stats.loops import Outside, outside
from analysis.study import FirstToken, MissingError, Study
from analysis.trained import Trained
from simkit.simulator.arguments import FIRST, AnyCost
from traces.trace import Trace

BEST_FIXED = "against the best fixed length"  # beside a paper's baseline of one length


class Untestable(MissingError):
    """A claim that this trace says nothing about; the message says why."""


class Evidence(Replays):
    """A trace under a cost.

    Args:
        trace: a recorded pair, or a study of it.
        cost: see `simkit.replay`.
        sampled: the same of a sampled recording of the pair, for claims about sampling.
        first_token: see `simkit.replay`.
    """

    def __init__(
        self,
        trace: Trace | Study,
        cost: AnyCost | None = None,
        sampled: Evidence | None = None,
        first_token: FirstToken = "draft",
    ) -> None:
        super().__init__(trace, cost, first_token)
        self.sampled = sampled

    def make_room(self) -> None:
        """Let go of what figures and claims before have kept; see `Study.make_room`."""
        for one in (self, *([] if self.sampled is None else [self.sampled])):
            one.study.make_room()

    @cached_property
    def outside(self) -> Outside:
        """What of the outputs lies outside of verbatim loops.

        Raises:
            Untestable: nothing does.
        """
        layout, found = self.layout, self.study.loops
        if len(found.rows) and found.rows.all():
            raise Untestable("all of the outputs lie in loops")
        return found.outside or outside(found.rows, layout.offsets)

    @cached_property
    def trained(self) -> Trained:
        """Drafters that were trained to differ in one setting.

        Raises:
            Untestable: none were measured on this trace.
        """
        try:
            return Trained(self.study)
        except MissingError as error:
            raise Untestable(str(error)) from None

    def by_depth(
        self, draft_length: int, deepest: int, ahead: np.ndarray | None = None
    ) -> dict[str, np.ndarray]:
        """Drafts at risk, then rejected, at each depth, (S, 2 D), outside of loops and with them.

        Over the steps of fixed(draft_length). Outside, each stretch between loops is a text of its
        own: a draft begins at its start, wherever the steps of the whole output would be, and none
        reaches beyond it.

        Args:
            draft_length: of a step.
            deepest: D.
            ahead: tokens accepted in a row from each position on, (R,); None: the trace's own.
        """
        layout, left = self.layout, self.outside
        ahead = layout.ahead if ahead is None else ahead
        ends, first = (self.trace.max_new_tokens, draft_length), FIRST[self.study.first_token]
        begins = left.first(first, layout.offsets)
        found = {
            "outside of loops": left.by_prompt(
                drafts.fixed_steps(left.cut(ahead), left.offsets, *ends, begins)
            ),
            "with loops": drafts.fixed_steps(ahead, layout.offsets, *ends, first),
        }
        tables = {name: depth.table(some, deepest) for name, some in found.items()}
        return {name: np.concatenate(one, 1).astype(float) for name, one in tables.items()}

    def head_s(self, head: str) -> float:
        """Seconds of a call of a head.

        Raises:
            MissingError: there are no times.
            Untestable: the cost has none of this head.
        """
        seconds = self.charge.times.head(head)
        if seconds == 0:
            raise Untestable(f"this cost has no time of the head {head}")
        return seconds


def less(one: Estimate, other: Estimate) -> Estimate:
    """The difference of two independent estimates, its interval from theirs.

    Zou and Donner (2008), "Construction of confidence intervals about functions of parameters",
    eq. 3: each end takes the arms that lie on its side. Too wide where the two rise together.
    """
    ends = (one.lo, one.hi, other.lo, other.hi)
    n = min(one.n_prompts, other.n_prompts)
    note = one.note or other.note
    if one.value is None or other.value is None:
        return Estimate(None, None, None, n, note)
    gap = one.value - other.value
    if None in ends:
        return Estimate(gap, None, None, n, note)
    lo1, hi1, lo2, hi2 = (float(end) for end in ends if end is not None)
    below = np.hypot(one.value - lo1, hi2 - other.value)
    above = np.hypot(hi1 - one.value, other.value - lo2)
    return Estimate(gap, float(gap - below), float(gap + above), n, note)
