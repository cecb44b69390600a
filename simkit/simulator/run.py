"""One policy replayed on one trace."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from simkit.costs.base import Model, RuleTime
from simkit.drafters.layout import Layout, Span, spans
from simkit.errors import ReplayError
from simkit.policies import Branching, Concurrent, NumericPolicy, Policy, Sequential, Setting
from simkit.simulator import plain
from simkit.simulator.charge import PARTS, Charge, add_up, share_text
from simkit.simulator.fitted import advised, fitted
from simkit.simulator.steps import Steps, Sums, extra_passes

COUNTS = ("steps", "drafted", "draft_passes", "proposed", "accepted")
Seconds = dict[str, np.ndarray]
ENOUGH = 2**17  # positions, over which the spread of times is taken
PIECE = 2**20  # positions whose steps are had at a time, see `Run.pieces`


@dataclass(frozen=True, eq=False)
class Run:
    """One policy's sums over the steps of each sequence, arrays of shape (S,).

    Attributes:
        policy: that was replayed.
        bound: the policy as it was fitted to the trace and the cost.
        layout: of the trace.
        charge: the costs; None if there are none.
        first: position of each sequence's first step.
        counts: those of `COUNTS`, emitted, and `tokens`; int64.
        seconds: the parts of the time, and the baseline; None without costs.
    """

    policy: Policy
    bound: Policy
    layout: Layout
    charge: Charge | None
    first: int
    counts: dict[str, np.ndarray]
    seconds: Seconds | None

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
        setting = Setting(self.layout, self.charge, self.first)
        return spread_of(self.bound, setting, opening(self.layout))

    @property
    def rule_time(self) -> RuleTime | None:
        """What a decision was charged, and how that is known; None if nothing was."""
        return self.charge.rule_time(self.bound) if self.charge else None

    @cached_property
    def beyond(self) -> list[str]:
        """In how many steps a pass is over more tokens than any that was timed, in lines."""
        found, n_steps = [], self.counts["steps"].sum()
        for model, reach in self._reach.items():
            most = self.charge.times.most_tokens(model) if self.charge else None
            if most is None or most >= reach:
                continue
            wide = sum(int((self._widest(model, steps) > most).sum()) for steps, _ in self.pieces())
            if wide:
                found.append(
                    f"{self.policy}: in {share_text(wide / n_steps)} of its steps the {model} reads"
                    f" more tokens in a pass than the most timed ({most}): their times are"
                    " extrapolated"
                )
        return found

    @property
    def _reach(self) -> dict[Model, float]:
        """How many tokens a pass of each model may have, at most."""
        if isinstance(self.bound, Branching):
            return {"target": math.inf, "draft": math.inf}
        one = self.layout.paid in ("token", "none") and not self._extra
        return {"target": self.bound.max_draft + 1, "draft": 1 if one else math.inf}

    @property
    def _extra(self) -> int:
        return extra_passes(self.bound, self.layout) if isinstance(self.bound, Sequential) else 0

    def _widest(self, model: Model, steps: Steps) -> np.ndarray:
        """Tokens of a model's widest pass in each step."""
        assert self.charge
        drafting = self.charge.drafting
        return steps.verified if model == "target" else steps.widest(drafting, self._extra)

    def remarks(self) -> list[str]:
        """What a reader should know of this run alone, one line each."""
        names = ("steps", "drafted", "proposed", "accepted")
        steps, drafted, verified, accepted = (int(self.counts[name].sum()) for name in names)
        if not isinstance(self.bound, Branching) or drafted <= verified:
            return []
        return [
            f"{self.policy}: of {drafted / steps:.0f} nodes that are drafted in a step"
            f" {verified / steps:.0f} are verified; {accepted / verified:.1%} of those are accepted"
        ]

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
        return _steps(self.bound, self.layout, self.charge, self.first, span)

    def pieces(self) -> Iterator[tuple[Steps, Seconds | None]]:
        """The steps of `steps`, some sequences at a time, so that long traces take less memory.

        All in one piece where a policy's state lasts the run, its loop is not compiled, or the
        table of its verifications would be too large.
        """
        for span in spans(self.layout.offsets, PIECE) if self._divides else [None]:
            yield self.steps(span)

    @property
    def _divides(self) -> bool:
        return divides(self.bound, Setting(self.layout, self.charge, self.first))


class Replayable(Setting):
    """A setting in which a policy can be fitted to what replays of it take."""

    __slots__ = ()

    def shortest(self, max_draft: int) -> np.ndarray:
        """See `Setting`."""
        from simkit.simulator.shortest_path import shortest

        return shortest(self.layout, self.costs("the shortest path"), self.first, max_draft)

    def spent_s(self, policy: Policy) -> float:
        """See `Setting`."""
        self.costs(str(policy))
        _, seconds = total(policy, *self)
        assert seconds is not None
        return sum(float(seconds[part].sum()) for part in PARTS if part != "prefill_s")


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
    layout, first = setting.layout, setting.first

    def summed(seconds: Seconds) -> tuple[float, float]:
        parts = sum(float(seconds[part].sum()) for part in PARTS)
        return parts, float(seconds["baseline_s"].sum())

    if isinstance(bound, NumericPolicy) and divides(bound, setting):

        def by_sums(charge: Charge) -> tuple[float, float]:
            seconds = total(bound, layout, charge, first, span)[1]
            assert seconds is not None
            return summed(seconds)

        return by_sums
    steps, _ = _steps(bound, layout, None, first, span if isinstance(bound, Concurrent) else None)

    def by_steps(charge: Charge) -> tuple[float, float]:
        return summed(_seconds(bound, steps, charge))

    return by_steps


def rules_of(runs: Iterable[Run]) -> list[tuple[Policy, RuleTime]]:
    """The policies that decide while they draft, where there are times, with their decisions'."""
    found = ((run.policy, run.rule_time) for run in runs)
    return [(policy, taken) for policy, taken in found if taken]


def run(policy: Policy, layout: Layout, charge: Charge | None, first: int) -> Run:
    """Replay a policy.

    Raises:
        UserError: see `walk`; or a time is negative or not finite; or the policy lacks what it
            must be fitted to.
    """
    setting = Replayable(layout, charge, first)
    bound = fitted(policy, setting)
    compact = not isinstance(bound, Concurrent)  # of others every step is made to be summed
    cuts = [None] if compact else spans(layout.offsets, PIECE)
    with advised(policy, layout.trace.max_draft):
        parts = [total(bound, *setting, span) for span in cuts]
    return gather(policy, bound, setting, parts)


def gather(
    policy: Policy, bound: Policy, setting: Setting, parts: list[tuple[Sums, Seconds | None]]
) -> Run:
    """A run from what `total` gave for spans of sequences, in order, that cover all of them."""

    def joined(field: str) -> np.ndarray:
        return np.concatenate([getattr(sums, field) for sums, _ in parts])

    counts = {field: joined(field) for field in COUNTS}
    counts["emitted"] = setting.layout.n_output - setting.first + 1
    counts["tokens"] = tokens(bound, counts["accepted"], counts["steps"], counts["emitted"])
    times = [seconds for _, seconds in parts if seconds]
    seconds = {part: np.concatenate([t[part] for t in times]) for part in times[0]} if times else {}
    return Run(policy, bound, *setting, counts, seconds or None)


def tokens(policy: Policy, accepted: np.ndarray, steps: Any, emitted: np.ndarray) -> np.ndarray:
    """What tokens_per_step counts: a + 1 in a step, though an accepted EOS leaves no bonus token.

    Where draft and target work in parallel, what a step emits: there is no bonus token as a rule.
    """
    return emitted if isinstance(policy, Concurrent) else accepted + steps


def total(
    policy: Policy,
    layout: Layout,
    charge: Charge | None,
    first: int,
    span: Span | None = None,
) -> tuple[Sums, Seconds | None]:
    """The sums of each sequence, and its seconds.

    Args:
        policy: as `bind` gave it.
        layout: of the trace.
        charge: the costs.
        first: see `Run`.
        span: sequences to replay; None means all. Only a policy that `divides` can be cut so.
    """
    if isinstance(policy, NumericPolicy):
        from simkit.simulator import compiled

        prices = _prices(policy, layout, charge)
        if compiled.compiles(policy) and prices is not None:
            sums = compiled.total(policy, layout, first, prices, span)
            return sums, charge.of_sums(policy, sums, span) if charge else None
    steps, seconds = _steps(policy, layout, charge, first, span)
    return add_up(policy, steps, seconds, charge)


def divides(policy: Policy, setting: Setting) -> bool:
    """Whether a span of sequences can be replayed alone, in a compiled loop.

    Args:
        policy: as `bind` gave it.
        setting: what it was bound to.
    """
    from simkit.simulator import compiled

    if isinstance(policy, Concurrent):
        return True
    if not isinstance(policy, NumericPolicy) or policy.carried == "run":
        return False
    return compiled.compiles(policy) and _prices(policy, setting.layout, setting.charge) is not None


def walk(policy: Sequential, layout: Layout, first: int, span: Span | None = None) -> Steps:
    """Every step of a policy, by the fastest way there is for it.

    Args:
        policy: as `bind` gave it.
        layout: of the trace.
        first: see `Run`.
        span: see `total`; only of a policy that `divides`.

    Raises:
        ReplayError: the policy wants a row that was not recorded.
        PolicyError: the policy does not hold under the trace's sampler.
        TraceError: a column that it reads was not recorded.
    """
    if isinstance(policy, NumericPolicy):
        from simkit.simulator import compiled

        if compiled.compiles(policy):
            return compiled.walk(policy, layout, first, span)
    return plain.walk(policy, layout, first)


def _steps(
    policy: Policy,
    layout: Layout,
    charge: Charge | None,
    first: int,
    span: Span | None = None,
) -> tuple[Steps, Seconds | None]:
    if isinstance(policy, Concurrent):
        from simkit.simulator import concurrent

        steps: Steps = concurrent.walk(policy, layout, first, span)
    elif isinstance(policy, Branching):
        from simkit.simulator import branching

        steps = branching.walk(policy, layout, first, span)
    else:
        assert isinstance(policy, Sequential)
        steps = walk(policy, layout, first, span)
    return steps, _seconds(policy, steps, charge) if charge else None


def _seconds(policy: Policy, steps: Steps, charge: Charge) -> Seconds:
    if isinstance(policy, Concurrent):
        from simkit.simulator import concurrent

        assert isinstance(steps, concurrent.ConcurrentSteps)
        return concurrent.seconds(policy, steps, charge)
    if isinstance(policy, Branching):
        from simkit.simulator import branching

        assert isinstance(steps, branching.TreeSteps)
        return branching.seconds(policy, steps, charge)
    assert isinstance(policy, Sequential)
    return charge.of_steps(policy, steps)


def _prices(policy: NumericPolicy, layout: Layout, charge: Charge | None) -> Any:
    """The loop's tables; None if they are too large, or a kind of drafter has passes of its own."""
    from simkit.simulator.arrays import NO_PRICES, Prices

    if callable(layout.paid):
        return None
    if charge is None:
        return NO_PRICES
    table = charge.verify_table(min(policy.max_draft, layout.trace.max_new_tokens - 1))
    if table is None:
        return None
    drafting, longest = charge.drafting, layout.trace.max_new_tokens
    opening, blocks = drafting.opening, None
    if opening:
        blocks = drafting.blocks(opening.tokens(layout.deepest or 0, longest))
        if blocks is None:
            return None
    extra = None
    if extra_passes(policy, layout):
        tokens = np.arange(min(policy.max_draft, longest - 1) + 1) + 1
        extra = drafting.block(tokens, charge.contexts[:, None])
    sums = drafting.sum_s, drafting.before_s
    return Prices(layout.n_prompt, *sums, table, opening, blocks, extra)
