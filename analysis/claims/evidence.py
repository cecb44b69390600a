"""What claims are tested on: a trace, its times, and replays that are kept."""

from __future__ import annotations

from functools import cached_property

import numpy as np

from analysis.replays import Replays
from analysis.stats import Estimate
from analysis.stats.loops import Outside, in_loop, outside
from analysis.study import FirstToken, MissingError, Study
from simkit.simulator.arguments import AnyCost
from traces.trace import Trace


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

    @cached_property
    def outside(self) -> Outside:
        """What of the outputs lies outside of verbatim loops.

        Raises:
            Untestable: nothing does.
        """
        tokens = self.trace.sequences["output_tokens"].combine_chunks().flatten().to_numpy()
        found = outside(in_loop(tokens, self.layout.offsets), self.layout.offsets)
        if len(found.rows) and not found.rows.any():
            raise Untestable("all of the outputs lie in loops")
        return found

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
