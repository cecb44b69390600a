"""One decoder with several drafters: in each step one of them drafts (`simkit.drafters.route`)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from simkit.drafters.layout import Layout, Span
from simkit.drafters.route import Routing
from simkit.errors import ReplayError
from simkit.policies import Fixed, Policy, parse
from simkit.simulator.arguments import AnyCost, setting
from simkit.simulator.routed_steps import RoutedArm, RoutedSteps, armed, passes_of, walk
from simkit.simulator.run import COUNTS, Run, Seconds, Spread, tokens
from simkit.simulator.steps import extra_passes
from traces.trace import Trace


def routed(
    choice: Routing,
    traces: Sequence[Trace],
    policies: Iterable[Policy],
    cost: AnyCost | None = None,
    first_token: str = "draft",
) -> list[RoutedRun]:
    """Replay policies as those of the last of several drafters.

    Args:
        choice: of the drafters.
        traces: the recording with the drafts of each of them, in order.
        policies: of the last one; those before it follow the choice's own.
        cost: see `simkit.replay`.
        first_token: see `simkit.replay`.

    Raises:
        UserError: see `armed` and `run`.
    """
    settings = [setting(trace, cost, first_token) for trace in traces]
    before = [
        armed(name, _policy_of(choice, where.layout), where)
        for name, where in zip(choice.drafters[:-1], settings, strict=False)
    ]
    return [run(choice, [*before, armed(choice.drafters[-1], p, settings[-1])]) for p in policies]


def _policy_of(choice: Routing, layout: Layout) -> Policy:
    """What the drafters before the last follow; all that they propose, unless it says otherwise."""
    deepest = layout.trace.max_draft
    return parse(choice.policy) if choice.policy else Fixed(deepest, max_draft=deepest)


def run(choice: Routing, arms: Sequence[RoutedArm]) -> RoutedRun:
    """Replay a choice of drafters.

    Args:
        choice: that was parsed.
        arms: its drafters, in order; the last one's policy is the one that is replayed.

    Raises:
        UserError: as `simkit.simulator.run.run` does.
        ReplayError: a drafter lacks what the choice asks.
    """
    steps = walk(choice, arms)
    last = arms[-1]
    n, which = len(steps.counts), steps.sequence
    counts = {
        name: np.bincount(which, getattr(steps, name), n).astype(np.int64)
        for name in COUNTS
        if name != "steps"
    }
    counts = {"steps": steps.counts, **counts}
    counts["emitted"] = last.layout.n_output - last.setting.first + 1
    counts["tokens"] = tokens(last.bound, counts["accepted"], counts["steps"], counts["emitted"])
    timed = all(arm.setting.charge for arm in arms)
    seconds = _summed(arms, steps) if timed else None
    charge = last.setting.charge if timed else None
    named = (last.policy, last.bound, last.layout, charge, last.setting.first)
    return RoutedRun(*named, counts, seconds, arms=tuple(arms), walked=steps)


@dataclass(frozen=True, eq=False)
class RoutedRun(Run):
    """A policy replayed as that of the last of several drafters; see `Run`.

    Attributes:
        arms: the drafters.
        walked: the steps.
    """

    arms: tuple[RoutedArm, ...] = field(kw_only=True)
    walked: RoutedSteps = field(kw_only=True)

    def steps(self, span: Span | None = None) -> tuple[RoutedSteps, Seconds | None]:
        """See `Run`."""
        if span:
            raise ReplayError(f"{self.policy} cannot be replayed on some sequences alone")
        return self.walked, seconds_of(self.arms, self.walked) if self.seconds else None

    @cached_property
    def spread(self) -> Spread | None:
        """See `Run`."""
        if self.seconds is None or not self.total_s.any():
            return None
        drawn = [arm.charge.drawn_anew for arm in self.arms]
        if not drawn[-1] or len({len(charges) for charges in drawn}) > 1:
            return None
        totals = []
        for charges in zip(*drawn, strict=True):
            arms = [
                arm._replace(setting=arm.setting._replace(charge=charge))
                for arm, charge in zip(self.arms, charges, strict=True)
            ]
            seconds = _summed(arms, self.walked)
            baseline_s = seconds.pop("baseline_s").sum()
            totals.append((sum(part.sum() for part in seconds.values()), baseline_s))
        total_s, baseline_s = np.array(totals).T
        return Spread(total_s / self.total_s.sum(), baseline_s / self.seconds["baseline_s"].sum())

    @property
    def _divides(self) -> bool:
        return False

    def remarks(self) -> list[str]:
        """See `Run`: how often each drafter drafted, and what is not known of their times."""
        shares = np.bincount(self.walked.by, minlength=len(self.arms)) / max(1, len(self.walked))
        parts = [f"{arm.name} in {share:.0%}" for arm, share in zip(self.arms, shares, strict=True)]
        found = [f"who drafts under {self.policy}: {', '.join(parts)} of the steps"]
        if self.seconds is None:
            return found
        found += [line for arm in self.arms for line in arm.charge.remarks]
        if any(self._untimed(arm, k) for k, arm in enumerate(self.arms)):
            found.append(
                "no draft pass over several tokens was timed: one that takes in what another"
                " drafter's steps kept is charged as one over a single token"
            )
        return found

    def _untimed(self, arm: RoutedArm, k: int) -> bool:
        """Whether passes were longer after others' steps, by what the cost does not know."""
        if not _catches_up(arm) or arm.charge.times.knows_blocks:
            return False
        reads = self.walked.worked[:, k] > 0
        return bool((_missed(self.walked, k, reads)[reads] > 0).any())


def seconds_of(arms: Sequence[RoutedArm], steps: RoutedSteps) -> Seconds:
    """The parts and the baseline of each step, in seconds; a first step pays the prefill.

    Each drafter pays for what it was asked, in vain or not. What the target does, and a step's
    overhead, is the same whoever drafts.
    """
    charge, n, which = arms[-1].charge, len(steps.counts), steps.sequence
    draft_s, policy_s, prefill_s = (np.zeros(len(steps)) for _ in range(3))
    for k, arm in enumerate(arms):
        draft_s += _draft_s(arm, k, steps)
        calls = arm.bound.calls(steps.drafted)
        policy_s += np.where(steps.by == k, calls * arm.charge.call_s(arm.bound), 0.0)
        passes = np.bincount(which, passes_of(arm, k, steps.worked, steps.by), n)
        opens = (steps.number == 1) & (passes[which] > 0)
        prefill_s += np.where(opens, arm.charge.prefill["draft"][which], 0.0)
    context = charge.context(steps)
    common = charge.common(replace(steps, draft_passes=0 * steps.by), context)
    verify_s = charge.verify(steps.proposed + 1, context)
    parts = {"draft_s": draft_s, "verify_s": verify_s, "policy_s": policy_s}
    return {**common, **parts, "prefill_s": common["prefill_s"] + prefill_s}


def _summed(arms: Sequence[RoutedArm], steps: RoutedSteps) -> Seconds:
    """The parts and the baseline of each sequence."""
    n, charge = len(steps.counts), arms[-1].charge
    each = seconds_of(arms, steps)
    found = {
        name: np.bincount(steps.sequence, part, n).astype(np.float64) for name, part in each.items()
    }
    idle = steps.counts == 0  # the prompt is read all the same
    found["prefill_s"][idle] = charge.prefill["target"][idle]
    return found | {"baseline_s": charge.baseline_s}


def _draft_s(arm: RoutedArm, k: int, steps: RoutedSteps) -> np.ndarray:
    """Seconds of drafter k in each step.

    One that drafts token by token takes in with its first pass what was kept since its last one
    while others drafted; one that drafts in one pass reads all known tokens that it has not read.
    """
    drafting, context = arm.charge.drafting, arm.charge.context(steps)
    asked, start = steps.worked[:, k], steps.start
    extra = (steps.by == k) & bool(extra_passes(arm.bound, arm.layout))
    tokens = np.maximum(asked, 0)
    missed = _missed(steps, k, (tokens > 0) | extra)
    unread = 1 + missed
    if not extra.any():
        unread = start - steps.read_before(np.where(tokens > 0, start, -1))
    found = drafting.once_s[context] + drafting.seconds(context, tokens, unread)
    if extra.any():
        found = found + np.where(extra, drafting.block(steps.proposed + 1, context), 0.0)
    if _catches_up(arm) and arm.charge.times.knows_blocks:
        late = (tokens > 0) & (missed > 0)
        one_s = drafting.sum_s[context + 1] - drafting.sum_s[context]
        more_s = drafting.block(1 + missed, np.maximum(context - missed, 0)) - one_s
        found = found + np.where(late, more_s, 0.0)
    return np.where(asked >= 0, found, 0.0)


def _catches_up(arm: RoutedArm) -> bool:
    """Whether each token has a pass, the first of which is longer after others' steps."""
    return arm.layout.paid == "token"


def _missed(steps: RoutedSteps, k: int, reads: np.ndarray) -> np.ndarray:
    """Output tokens of others' steps that drafter k has not read before each step, (N,).

    Args:
        steps: of all drafters.
        k: the drafter.
        reads: the steps in which it reads all that is known.
    """
    others = np.where(steps.by == k, 0, steps.emitted).astype(np.int64)
    before = np.cumsum(others) - others
    last = np.maximum.accumulate(np.where(reads, np.arange(len(reads)), -1))
    last = np.concatenate([[-1], last[:-1]]) if len(last) else last
    begin = np.repeat(steps.offsets[:-1], steps.counts)
    return before - before[np.maximum(last, begin)]
