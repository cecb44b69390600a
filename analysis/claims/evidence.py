"""What claims are tested on: a trace, its times, and replays that are kept."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, is_dataclass, replace
from functools import cached_property

import numpy as np

from analysis.stats import Estimate, clusters
from simkit.policies import Policy, Setting
from simkit.simulator.given import AnyCost, setting
from simkit.simulator.layout import PathLayout
from simkit.simulator.run import Run, run
from simkit.sweeps.folds import stratified
from simkit.sweeps.grid import settings
from traces import scores
from traces.errors import UserError
from traces.trace import Trace

FOLDS, SEED = 5, 0
LONGEST = 20  # of the fixed lengths that are tried


class Untestable(UserError):
    """A claim that this trace says nothing about; the message says why."""


@dataclass(frozen=True, eq=False)
class Replayed:
    """One policy, or one family of settings, on each prompt.

    Attributes:
        spec: of the policy; the setting chosen most often.
        counts: steps, drafted, proposed, accepted, emitted and tokens; (S,) int64 each.
        parts: seconds by part and the baseline, (S,) each; None without a cost.
        total: (S,) seconds; None without a cost.
    """

    spec: str
    counts: Mapping[str, np.ndarray]
    parts: Mapping[str, np.ndarray] | None
    total: np.ndarray | None

    @property
    def total_s(self) -> np.ndarray:
        """Seconds of each prompt.

        Raises:
            Untestable: there are none.
        """
        if self.total is None:
            raise Untestable("no times: give a cost")
        return self.total


@dataclass(frozen=True, eq=False)
class Evidence:
    """A trace under a cost.

    Attributes:
        trace: a recorded pair.
        cost: see `simkit.replay`.
        sampled: the same of a sampled recording of the pair, for claims about sampling.
    """

    trace: Trace
    cost: AnyCost | None = None
    sampled: Evidence | None = None
    _kept: dict[str, Replayed] = field(default_factory=dict, init=False, repr=False)

    @cached_property
    def where(self) -> Setting:
        """Layout and times."""
        return setting(self.trace, self.cost, "draft")

    @property
    def layout(self) -> PathLayout:
        """The rows of the output.

        Raises:
            Untestable: the trace is a lattice.
        """
        if not isinstance(self.where.layout, PathLayout):
            raise Untestable("the trace is a lattice: its drafts share no rows")
        return self.where.layout

    def run(self, spec: str) -> Run:
        """Replay one policy, no deeper than Γ.

        Raises:
            Untestable: there are no scores of its head.
            UserError: see `simkit.replay`.
        """
        (policy,) = settings(spec)
        return run(self._recorded(policy), *self.where)

    def replay(self, spec: str) -> Replayed:
        """The sums of one policy, kept; raises as `run` does."""
        if spec not in self._kept:
            self._kept[spec] = _replayed(self.run(spec))
        return self._kept[spec]

    def tuned(self, spec: str) -> Replayed:
        """A family of settings, each prompt with the one that is fastest on other prompts.

        Folds of prompts are dealt out by task. With fewer prompts than folds the fastest on all
        prompts is taken.

        Raises:
            Untestable: there are no times; or as `run` does.
        """
        name = f"tuned {spec}"
        if name not in self._kept:
            self._kept[name] = self._tune(spec)
        return self._kept[name]

    @cached_property
    def best_length(self) -> int:
        """The fixed length, 0 to 20 or Γ, that is fastest on all prompts, as papers choose it.

        Raises:
            Untestable: there are no times.
        """
        lengths = range(min(LONGEST, self.trace.max_draft) + 1)
        return min(lengths, key=lambda k: float(self.replay(f"fixed({k})").total_s.sum()))

    @property
    def best_fixed(self) -> Replayed:
        """The replay of that length; raises as it does."""
        return self.replay(f"fixed({self.best_length})")

    def tuned_fixed(self) -> Replayed:
        """`tuned` over the fixed lengths."""
        return self.tuned(f"fixed(0:{min(LONGEST, self.trace.max_draft)})")

    def cost_ratio(self) -> float:
        """C = T_target(1) / T_draft(1) at the mean context of the trace's output tokens.

        Raises:
            Untestable: there are no times, or drafting takes none.
        """
        layout, charge = self.where.layout, self.where.charge
        if charge is None:
            raise Untestable("no times: give a cost")
        n = layout.n_output
        known = n * (layout.n_prompt + (n - 1) / 2)
        context = np.array([round(known.sum() / max(1, n.sum()))])
        draft_s, target_s = charge.times.draft(context)[0], charge.times.decode(context)[0]
        if draft_s <= 0:
            raise Untestable("drafting takes no time under this cost, so there is no ratio c")
        return float(target_s / draft_s)

    def _recorded(self, policy: Policy) -> Policy:
        for name in policy.columns(self.trace.sampler):
            head = name.removeprefix("score:")
            if head != name and scores.facts(self.trace, head) is None:
                raise Untestable(f"no scores of {head}")
        names = {f.name for f in fields(policy) if f.init} if is_dataclass(policy) else set()
        if policy.needs_future or "max_draft" not in names:
            return policy
        deepest = self.trace.max_draft
        if hasattr(policy, "length") or policy.max_draft <= deepest:  # a fixed length says it all
            return policy
        return replace(policy, max_draft=deepest)  # type: ignore[type-var]

    def _tune(self, spec: str) -> Replayed:
        runs = [_replayed(run(self._recorded(p), *self.where)) for p in settings(spec)]
        total_s = np.array([one.total_s for one in runs])
        pick = np.full(total_s.shape[1], total_s.sum(1).argmin())
        if len(pick) >= FOLDS:
            task = np.unique(np.array(self.trace.sequences["task"].to_pylist(), str), False, True)
            fold = stratified(task[1], FOLDS, SEED)
            for k in range(FOLDS):
                pick[fold == k] = total_s[:, fold != k].sum(1).argmin()

        def picked(maps: list[Mapping[str, np.ndarray]]) -> dict[str, np.ndarray]:
            at = np.arange(len(pick))
            return {name: np.array([m[name] for m in maps])[pick, at] for name in maps[0]}

        most = int(np.bincount(pick, minlength=len(runs)).argmax())
        parts = picked([one.parts or {} for one in runs])
        counts = picked([one.counts for one in runs])
        return Replayed(runs[most].spec, counts, parts, total_s[pick, np.arange(len(pick))])


def _replayed(found: Run) -> Replayed:
    total = None if found.seconds is None else found.total_s
    return Replayed(str(found.policy), found.counts, found.seconds, total)


def speed(one: Replayed, other: Replayed) -> Estimate:
    """How many times faster one is than the other: its summed seconds into the other's, paired."""
    return clusters.ratio(other.total_s, one.total_s)


def ratio(one: Replayed, other: Replayed, count: str) -> Estimate:
    """A summed count of one over that of the other, paired."""
    return clusters.ratio(one.counts[count], other.counts[count])


def per(one: Replayed, other: Replayed, count: str, unit: str) -> Estimate:
    """A count per unit, as accepted tokens per step, of one over that of the other, paired."""
    pairs = [run.counts[name] for run in (one, other) for name in (count, unit)]
    sums = np.stack(pairs, 1).astype(np.float64)
    return clusters.bootstrap(
        sums, lambda s: s[..., :1] / s[..., 1:2] / (s[..., 2:3] / s[..., 3:])
    )[0]


def less(one: Estimate, other: Estimate) -> Estimate:
    """The difference of two independent estimates, its interval from theirs.

    Zou and Donner (2008), "Construction of confidence intervals about functions of parameters",
    eq. 3: each end takes the arms that lie on its side. Too wide where the two rise together.
    """
    ends = (one.lo, one.hi, other.lo, other.hi)
    n = min(one.n_prompts, other.n_prompts)
    if one.value is None or other.value is None or None in ends:
        return Estimate(None, None, None, n, one.note or other.note)
    lo1, hi1, lo2, hi2 = (float(end) for end in ends if end is not None)
    gap = one.value - other.value
    below = np.hypot(one.value - lo1, hi2 - other.value)
    above = np.hypot(hi1 - one.value, other.value - lo2)
    note = one.note or other.note
    return Estimate(gap, float(gap - below), float(gap + above), n, note)
