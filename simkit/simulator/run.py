"""One policy replayed on one trace."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from simkit.costs.base import Model, RuleTime
from simkit.drafters.layout import Layout, Span, spans
from simkit.errors import ReplayError
from simkit.policies import Policy, Setting
from simkit.simulator.beyond import Beyond, of_passes
from simkit.simulator.binding import fitted
from simkit.simulator.step_costs import PARTS, Charge
from simkit.simulator.total import Seconds, adds_up, divides, each, total
from simkit.steps.depth import advised
from simkit.steps.family import family_of
from simkit.steps.steps import COUNTS, Steps, Sums
from simkit.steps.work import Work

ENOUGH = 2**17  # positions, over which the spread of times is taken
PIECE = 2**20  # positions whose steps are had at a time, see `Run.pieces`


@dataclass(frozen=True, eq=False)
class Run:
    """One policy's sums over the steps of each sequence, arrays of shape (S,).

    Attributes:
        policy: that was replayed.
        bound: the policy as it was fitted to the trace and the cost.
        setting: that it was replayed in.
        counts: those of `COUNTS`, emitted, and `tokens`; int64.
        seconds: the parts of the time, and the baseline; None without costs.
    """

    policy: Policy
    bound: Policy
    setting: Setting
    counts: dict[str, np.ndarray]
    seconds: Seconds | None

    @property
    def layout(self) -> Layout:
        """What its steps see."""
        return self.setting.layout

    @property
    def charge(self) -> Charge | None:
        """The costs; None if there are none."""
        return self.setting.charge

    @property
    def total_s(self) -> np.ndarray:
        """Seconds of each sequence, all parts together."""
        assert self.seconds is not None
        return np.sum([self.seconds[part] for part in PARTS], axis=0)

    @cached_property
    def spread(self) -> Spread | None:
        """By how much the seconds change under times drawn anew; None: that is not known."""
        if self.charge is None or self.seconds is None or not self.total_s.any():
            return None
        return spread_of(self.bound, self.setting, opening(self.layout))

    @property
    def rule_time(self) -> RuleTime | None:
        """What a decision was charged, and how that is known; None if nothing was."""
        return self.charge.rule_time(self.bound) if self.charge else None

    def work(self, steps: Steps) -> Work:
        """What steps of this run did."""
        return family_of(self.bound).work(self.bound, steps, self.layout)

    @cached_property
    def wide(self) -> list[Wide]:
        """The steps in which a pass is over more tokens than any that was timed."""
        if self.charge is None:
            return []
        timed: dict[Model, int] = {}
        for model, most in family_of(self.bound).reach(self.bound, self.layout).items():
            known = self.charge.times.most_tokens(model)
            timed |= {model: known} if known is not None and known < most else {}
        steps = {model: 0 for model in timed}
        for some, _ in self.pieces() if timed else ():
            widest = self.charge.widest(self.work(some))
            for model, most in timed.items():
                steps[model] += int((widest[model] > most).sum())
        return [Wide(model, most, steps[model]) for model, most in timed.items()]

    @property
    def beyond(self) -> list[Beyond]:
        """In how many steps a pass is over more tokens than any that was timed."""
        n = self.counts["steps"].sum()
        return [
            of_passes(str(self.policy), float(one.steps / n), one.model, one.timed)
            for one in self.wide
            if one.steps
        ]

    def remarks(self) -> list[str]:
        """What a reader should know of this run alone, one line each."""
        steps = int(self.counts["steps"].sum())
        names = ("drafted", "proposed", "accepted")
        means = {name: float(self.counts[name].sum()) / steps for name in names} if steps else {}
        return family_of(self.bound).remarks(self.policy, means) if means else []

    @property
    def is_loss(self) -> bool:
        """Whether it is slower than the target alone, and would not be without its own time."""
        if self.seconds is None:
            return False
        baseline_s, total_s = self.seconds["baseline_s"].sum(), self.total_s.sum()
        return bool(total_s > baseline_s >= total_s - self.seconds["policy_s"].sum())

    def steps(self, span: Span | None = None) -> tuple[Steps, Seconds | None]:
        """Every step, replayed anew, and the seconds of each.

        Args:
            span: sequences; None means all.

        Raises:
            ReplayError: there is a span, and the policy cannot be cut, see `divides`.
        """
        if span and not self._divides:
            raise ReplayError(f"{self.policy} cannot be replayed on some sequences alone")
        return each(self.bound, self.setting, span)

    def pieces(self) -> Iterator[tuple[Steps, Seconds | None]]:
        """The steps of `steps`, some sequences at a time, so that long traces take less memory.

        All in one piece where a policy's state lasts the run, its loop is not compiled, or the
        table of its verifications would be too large.
        """
        for span in spans(self.layout.offsets, PIECE) if self._divides else [None]:
            yield self.steps(span)

    @property
    def _divides(self) -> bool:
        return divides(self.bound, self.setting)


class Wide(NamedTuple):
    """Steps in which a model's pass is over more tokens than any that was timed.

    Attributes:
        model: in words.
        timed: the most tokens of a pass that was timed.
        steps: how many, 0 included.
    """

    model: str
    timed: int
    steps: int


class Spread(NamedTuple):
    """Seconds of all prompts under times drawn anew over those under the times themselves.

    A draw changes the seconds of all prompts by nearly the same factor, so one is kept for all.

    Attributes:
        total: of a policy, (D,); draw d is the same for all policies.
        baseline: of the target alone, (D,).
    """

    total: np.ndarray
    baseline: np.ndarray


def opening(layout: Layout) -> Span:
    """The sequences over which the spread of times is taken."""
    return spans(layout.offsets, ENOUGH)[0]


def spread_of(bound: Policy, setting: Setting, span: Span) -> Spread | None:
    """The spread of a policy's seconds over some of the prompts; None: that is not known.

    Args:
        bound: to the setting.
        setting: with a cost.
        span: sequences; of a policy that cannot be cut, all are taken.
    """
    charges = setting.charge.drawn_anew if setting.charge else []
    if not charges:
        return None
    price = _pricing(bound, setting, span)
    totals = np.array([price(charge) for charge in [setting.charge, *charges] if charge])
    return Spread(*(totals[1:] / totals[0]).T)


def _pricing(
    bound: Policy, setting: Setting, span: Span
) -> Callable[[Charge], tuple[float, float]]:
    """What gives a policy's seconds and the baseline's under a charge."""

    def summed(seconds: Seconds) -> tuple[float, float]:
        parts = sum(float(seconds[part].sum()) for part in PARTS)
        return parts, float(seconds["baseline_s"].sum())

    some = span if divides(bound, setting) else None
    if adds_up(bound, setting):

        def by_sums(charge: Charge) -> tuple[float, float]:
            seconds = total(bound, setting._replace(charge=charge), some)[1]
            assert seconds is not None
            return summed(seconds)

        return by_sums
    steps = family_of(bound).walk(bound, setting.layout, setting.first, some)
    return lambda charge: summed(charge.of_steps(bound, steps))


def rules_of(runs: Iterable[Run]) -> list[tuple[Policy, RuleTime]]:
    """The policies that decide while they draft, where there are times, with their decisions'."""
    found = ((run.policy, run.rule_time) for run in runs)
    return [(policy, taken) for policy, taken in found if taken]


def run(policy: Policy, layout: Layout, charge: Charge | None, first: int) -> Run:
    """Replay a policy.

    Raises:
        UserError: see `Family.walk`; a time is negative or not finite; or the policy lacks what
            it must be fitted to.
    """
    setting = Setting(layout, charge, first)
    bound = fitted(policy, setting)
    cuts = spans(layout.offsets, PIECE) if family_of(bound).in_pieces else [None]
    with advised(policy):
        parts = [total(bound, setting, span) for span in cuts]
    return gather(policy, bound, setting, parts)


def gather(
    policy: Policy, bound: Policy, setting: Setting, parts: list[tuple[Sums, Seconds | None]]
) -> Run:
    """A run from what `total` gave for spans of sequences, in order, that cover all of them."""

    def joined(field: str) -> np.ndarray:
        return np.concatenate([getattr(sums, field) for sums, _ in parts])

    counts = {field: joined(field) for field in COUNTS}
    counts["emitted"] = setting.layout.n_output - setting.first + 1
    summed = (counts[name] for name in ("accepted", "steps", "emitted"))
    counts["tokens"] = family_of(bound).tokens(*summed)
    times = [seconds for _, seconds in parts if seconds]
    seconds = {part: np.concatenate([t[part] for t in times]) for part in times[0]} if times else {}
    return Run(policy, bound, setting, counts, seconds or None)
