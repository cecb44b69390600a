"""Every arm of the ablations replayed on one trace, as rows of numbers with intervals."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from typing import NamedTuple

import numpy as np

from analysis.claims.verdict import ABOVE_1, BELOW_1, Allowed, Verdict, judge
from analysis.papers import ALONE
from analysis.stats import Estimate
from benchmarks.ablations.arms import ALL, Ablation, AblationArm
from simkit.errors import ReplayError
from simkit.simulator.arguments import setting
from simkit.simulator.fields import groups
from simkit.statistics.interval import ratio_interval
from simkit.sweeps import grid
from simkit.sweeps.engine import replays
from simkit.sweeps.folds import dealt, mean_of
from simkit.sweeps.tuning import counted
from traces.trace import Trace

PAPER, TUNED = "paper's settings", "tuned"
FOLDS, SEED, CONFIDENCE = 5, 0, 0.95


@dataclass(frozen=True)
class Row:
    """One arm under one cost, on the prompts of one task.

    setting is the spec, when tuned the one that was chosen most often, and folds how often each
    was; tau counts as the paper does; ratio is how many times faster than the row `against`, paired
    over prompts; steps_ratio how many times fewer steps it takes, that is, more tokens a step.
    """

    ablation: str
    settings: str
    cost: str
    task: str
    arm: str
    setting: str
    folds: str | None
    tokens_per_s: float
    speedup: float
    speedup_lo: float
    speedup_hi: float
    tau: float
    against: str | None
    ratio: float | None
    ratio_lo: float | None
    ratio_hi: float | None
    steps_ratio: float | None
    steps_ratio_lo: float | None
    steps_ratio_hi: float | None
    printed_tokens_per_s: float | None
    printed_speedup: float | None
    printed_tau: float | None
    verdict: str | None


class _Sums(NamedTuple):
    """One arm: what was chosen, and of each prompt (n,) its seconds, steps and accepted tokens."""

    chosen: dict[str, int]
    total_s: np.ndarray
    steps: np.ndarray
    accepted: np.ndarray


class Replays:
    """Every setting that some ablations need, replayed once under one cost.

    Raises:
        UserError: as `simkit.sweep` does.
    """

    def __init__(self, trace: Trace, cost: str, ablations: Iterable[Ablation]) -> None:
        where = setting(trace, cost, "draft")
        if where.charge is None:
            raise ReplayError("ablations need times: give a cost")
        self.cost = cost
        self.baseline_s = where.charge.baseline_s
        self.n_output = where.layout.n_output
        self.prompt = trace.prompt_numbers
        keys, self.task, _ = groups(trace, "task")
        self.tasks = {name: k for k, name in enumerate(keys["task"].tolist())}
        arms = (arm for ablation in ablations for some in ablation.arms.values() for arm in some)
        specs = {spec for arm in arms for spec in (arm.policy, arm.family) if spec} - {ALONE}
        self.members = {spec: [str(policy) for policy in grid.settings(spec)] for spec in specs}
        self.sums = {
            str(run.policy): (run.total_s, run.counts["steps"], run.counts["accepted"])
            for run in replays(grid.settings(sorted(specs)), where)
        }
        self.members[ALONE] = [ALONE]
        self.sums[ALONE] = self.baseline_s, self.n_output, np.zeros_like(self.n_output)

    def rows(self, ablation: Ablation) -> Iterator[Row]:
        """The rows of an ablation, at the paper's settings and tuned."""
        for tuned in (False, True):
            for task, arms in ablation.arms.items():
                some = self.task >= 0 if task == ALL else self.task == self.tasks.get(task, -1)
                if not some.any():
                    continue
                specs = {arm.label: arm.spec(tuned) for arm in arms}
                sums = {label: self._judged(spec, some) for label, spec in specs.items() if spec}
                for arm in arms:
                    if arm.label in sums:
                        yield self._row(ablation, tuned, task, arm, sums, some)

    def _judged(self, spec: str, some: np.ndarray) -> _Sums:
        """One setting as it is; of several, for each fold the fastest on the others, over deals."""
        names = self.members[spec]
        total_s, steps, accepted = (
            np.array(values)[:, some]
            for values in zip(*(self.sums[name] for name in names), strict=True)
        )
        deals = dealt(self.task[some], FOLDS, SEED, prompt=self.prompt[some])
        best = np.stack([deals.outside(one) for one in total_s]).argmin(0)
        shares = deals.shares(best)
        return _Sums(
            dict(Counter(names[k] for k in best).most_common()),
            *(
                mean_of([values[k] for k in shares], [*shares.values()])
                for values in (total_s, steps, accepted)
            ),
        )

    def _row(
        self,
        ablation: Ablation,
        tuned: bool,
        task: str,
        arm: AblationArm,
        sums: dict[str, _Sums],
        some: np.ndarray,
    ) -> Row:
        mine = sums[arm.label]
        ratio = steps_ratio = (None, None, None)
        judged = None
        if arm.against:
            other = sums[arm.against]
            ratio = _ratio(other.total_s, mine.total_s)
            steps_ratio = _ratio(other.steps, mine.steps)
            if arm.claim is not None:
                judged = str(verdict(arm.claim, *ratio, n_prompts=int(some.sum())))
        return Row(
            ablation.name,
            TUNED if tuned else PAPER,
            self.cost,
            task,
            arm.label,
            next(iter(mine.chosen)),
            counted(mine.chosen) if tuned else None,
            float(self.n_output[some].sum() / mine.total_s.sum()),
            *_ratio(self.baseline_s[some], mine.total_s),
            float(mine.accepted.sum() / mine.steps.sum()) + ablation.bonus,
            arm.against,
            *ratio,
            *steps_ratio,
            *arm.printed,
            judged,
        )


PREDICTED = {1: ABOVE_1, 0: Allowed(1, 1), -1: BELOW_1}  # of a ratio of speeds, by the sign claimed


def verdict(
    claim: int, ratio: float, low: float | None, high: float | None, n_prompts: int
) -> Verdict:
    """The verdict on the sign of a comparison, by the rule of the papers' claims.

    Args:
        claim: see `AblationArm`. That two are equally fast cannot be shown, only refuted.
        ratio: of speeds.
        low: end of its interval; None or NaN where there is none.
        high: likewise.
        n_prompts: that it is over.
    """
    low, high = (None if end is None or math.isnan(end) else end for end in (low, high))
    return judge(Estimate(ratio, low, high, n_prompts), PREDICTED[claim])


def _ratio(top: np.ndarray, bottom: np.ndarray) -> tuple[float, float, float]:
    ends = ratio_interval(top, bottom, CONFIDENCE, SEED)
    return float(top.sum() / bottom.sum()), *ends


def frame(rows: Iterable[Row]):
    """The rows as a data frame."""
    import polars as pl

    return pl.DataFrame([asdict(row) for row in rows], infer_schema_length=None)
