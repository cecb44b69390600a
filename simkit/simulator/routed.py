"""One decoder with several drafters: in each step one of them drafts (`simkit.drafters.route`)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import cast

import numpy as np

from simkit.drafters.layout import Layout, Span
from simkit.drafters.route import Routing
from simkit.errors import ReplayError
from simkit.policies import (
    Fixed,
    Policy,
    PolicyError,
    Prophet,
    RateOptimal,
    Sequential,
    Setting,
    parse,
)
from simkit.policies.base import chain_of
from simkit.simulator.arguments import AnyCost, setting
from simkit.simulator.binding import fitted
from simkit.simulator.run import Run, Spread, Wide
from simkit.simulator.total import Seconds
from simkit.steps.routed import RoutedArm, RoutedSteps, passes_of, walk, works
from simkit.steps.steps import COUNTS, Steps
from simkit.steps.work import Work
from traces.trace import OWN, Trace


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


def armed(name: str, policy: Policy, setting: Setting) -> RoutedArm:
    """A drafter that follows a policy.

    Raises:
        PolicyError: the policy does not draft and verify in turn, plans the steps of one drafter
            alone or is fitted to them, or lacks what it must be fitted to.
    """
    chain = chain_of(policy, "several drafters take turns, and all of them draft chains")
    if isinstance(policy, Prophet):
        raise PolicyError(f"{policy} plans the steps of one drafter: for several there is oracle()")
    if isinstance(policy, RateOptimal):
        raise PolicyError(f"{policy} is fitted to one drafter's steps: for several, tune another")
    return RoutedArm(name, policy, cast(Sequential, fitted(chain, setting)), setting)


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
    counts["tokens"] = counts["accepted"] + counts["steps"]
    timed = all(arm.setting.charge for arm in arms)
    seconds = _summed(arms, steps) if timed else None
    where = last.setting if timed else last.setting._replace(charge=None)
    named = last.policy, last.bound, where
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

    @cached_property
    def wide(self) -> list[Wide]:
        """See `Run`: of the target, and of each drafter by its own times."""
        if self.seconds is None:
            return []
        did = works(self.arms, self.walked)
        last = self.arms[-1].charge
        found = _wide("target", last.times.most_tokens("target"), last.widest(did[-1])["target"])
        for arm, work in zip(self.arms, did, strict=True):
            name = "draft" if arm.name == OWN else f"drafter {arm.name}"
            timed = arm.charge.times.most_tokens("draft")
            found += _wide(name, timed, arm.charge.widest(work)["draft"])
        return found

    def work(self, steps: Steps) -> Work:
        """See `Run`: what the last drafter did."""
        return works(self.arms, self.walked)[-1]

    @property
    def _divides(self) -> bool:
        return False

    def remarks(self) -> list[str]:
        """See `Run`: how often each drafter drafted, and what is not known of their times."""
        shares = np.bincount(self.walked.by, minlength=len(self.arms)) / max(1, len(self.walked))
        parts = [f"{arm.name} in {share:.0%}" for arm, share in zip(self.arms, shares, strict=True)]
        found = [f"steps by drafter under {self.policy}: {', '.join(parts)}"]
        if self.seconds is None:
            return found
        found += [line for arm in self.arms for line in arm.charge.remarks]
        if any(self._untimed(arm, k) for k, arm in enumerate(self.arms)):
            found.append(
                "no draft pass over several tokens was timed: one that reads the tokens of another"
                " drafter's steps is charged like a pass over one token"
            )
        return found

    def _untimed(self, arm: RoutedArm, k: int) -> bool:
        """Whether passes were longer after others' steps, by what the cost does not know."""
        work = works(self.arms, self.walked)[k]
        if work.missed is None or arm.charge.times.knows_blocks:
            return False
        return bool(((work.missed > 0) & (work.asked > 0)).any())


def _wide(model: str, timed: int | None, widest: np.ndarray) -> list[Wide]:
    """See `Wide`; `widest` has the tokens of the model's widest pass in each step, (N,)."""
    return [] if timed is None else [Wide(model, timed, int((widest > timed).sum()))]


def seconds_of(arms: Sequence[RoutedArm], steps: RoutedSteps) -> Seconds:
    """The parts and the baseline of each step, in seconds; a first step pays the prefill.

    Each drafter pays for what it was asked, in vain or not. What the target does, and a step's
    overhead, is the same whoever drafts.
    """
    last, did = arms[-1], works(arms, steps)
    found = last.charge.of_work(last.bound, replace(steps, draft_passes=0 * steps.by), did[-1])
    found["draft_s"], found["policy_s"] = (np.zeros(len(steps)) for _ in range(2))
    which, n = steps.sequence, len(steps.counts)
    for k, (arm, work) in enumerate(zip(arms, did, strict=True)):
        found["draft_s"] += np.where(steps.worked[:, k] >= 0, arm.charge.drafts(work)[0], 0.0)
        found["policy_s"] += work.decisions * arm.charge.call_s(arm.bound)
        passes = np.bincount(which, passes_of(arm, k, steps.worked, steps.by), n)
        opens = (steps.number == 1) & (passes[which] > 0)
        found["prefill_s"] += np.where(opens, arm.charge.prefill["draft"][which], 0.0)
    return found


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
