"""Predicted against measured: errors, ranks, and whether live steps are the replayed ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
import pyarrow as pa

from simkit.costs import Times
from simkit.fidelity.errors import error_draws, error_intervals, interval
from simkit.fidelity.logs import taken
from simkit.fidelity.run import Plan
from simkit.live.decoder import Step
from simkit.live.summary import (
    CONFIDENCE,
    Drift,
    Sequences,
    drifts,
    free_speedup,
    per_step,
    sequences,
)
from simkit.simulator import Result
from simkit.statistics.interval import ratio_interval

MEDIAN_BAR, WORST_BAR = 0.03, 0.08


@dataclass(frozen=True)
class PolicyRow:
    """One policy on the held-out prompts. Speedups are over the target alone.

    Attributes:
        policy: its spec.
        predicted: speedup of the replay.
        predicted_lo: lower end of its bootstrap interval over prompts.
        predicted_hi: upper end.
        measured: speedup on the clock.
        measured_lo: lower end.
        measured_hi: upper end.
        error: predicted / measured - 1.
        error_lo: lower end of its interval (`simkit.fidelity.errors`).
        error_hi: upper end.
        tokens_per_step: replayed, a + 1.
        policy_s: measured seconds of policy and head, a step.
        predicted_policy_s: what the replay charged for them, a step.
        free: predicted speedup if policy and head took no time.
        measured_free: speedup on the clock without the seconds of policy and head.
        sequences: live sequences.
        differing: of these, how many took other steps than the replay.
    """

    policy: str
    predicted: float
    predicted_lo: float
    predicted_hi: float
    measured: float
    measured_lo: float
    measured_hi: float
    error: float
    error_lo: float
    error_hi: float
    tokens_per_step: float
    policy_s: float
    predicted_policy_s: float
    free: float
    measured_free: float
    sequences: int
    differing: int

    @property
    def loss(self) -> str:
        """By which numbers it is slower than the target alone only for its own time, in words."""
        both = {
            "predicted": self.predicted < 1 <= self.free,
            "measured": self.measured < 1 <= self.measured_free,
        }
        return " and ".join(name for name, loses in both.items() if loses)


@dataclass(frozen=True)
class PolicyPair:
    """Two policies, paired over the held-out prompts.

    Attributes:
        faster: on the clock.
        slower: on the clock.
        measured: ratio of their times, above 1.
        measured_lo: lower end of its interval, at a level at which all pairs together hold 95%.
        measured_hi: upper end.
        predicted: the same of the replay; below 1, they are ranked the wrong way round.
        distinct: whether the measured difference is outside the noise.
    """

    faster: str
    slower: str
    measured: float
    measured_lo: float
    measured_hi: float
    predicted: float
    distinct: bool


@dataclass(frozen=True)
class Comparison:
    """All policies.

    Attributes:
        rows: one a policy.
        median_lo: lower end of the interval of the median absolute error.
        median_hi: upper end.
        pairs: all m pairs of policies. They are distinct where the paired interval of their ratio
            (a bootstrap over prompts, each with all its rounds) leaves out 1 by more than the ratio
            of the two equal arms is from 1. Its level is 1 - 0.05 / m (Bonferroni): of equal
            policies, one comparison in twenty has some distinct pair, however many there are.
        tau: Kendall's, of predicted and measured speedups; NaN for fewer than two policies.
        drifts: of equal arms.
        exact: whether live steps must be the replayed ones: recorded and run in float32 or better.
    """

    rows: list[PolicyRow]
    median_lo: float
    median_hi: float
    pairs: list[PolicyPair]
    tau: float
    drifts: list[Drift]
    exact: bool

    @property
    def median_error(self) -> float:
        """Of absolute relative errors."""
        return float(np.median([abs(row.error) for row in self.rows]))

    @property
    def worst_error(self) -> float:
        """The largest absolute relative error."""
        return max(abs(row.error) for row in self.rows)

    @property
    def distinct(self) -> list[PolicyPair]:
        """Pairs that differ by more than the noise."""
        return [pair for pair in self.pairs if pair.distinct]

    @property
    def misranked(self) -> list[PolicyPair]:
        """Of these, the pairs that the replay ranks the wrong way round."""
        return [pair for pair in self.distinct if pair.predicted < 1]

    @property
    def differing(self) -> int:
        """Live sequences that took other steps than the replay."""
        return sum(row.differing for row in self.rows)

    @property
    def prompts(self) -> int:
        """Held out; every policy decodes all of them."""
        return max(row.sequences for row in self.rows)

    @property
    def conclusive(self) -> bool:
        """Whether there are equal arms, and they agree."""
        return bool(self.drifts) and all(drift.agrees for drift in self.drifts)

    @property
    def missed(self) -> list[str]:
        """The bars that are missed, in words; where nothing can be concluded, that is one."""
        bars = {
            f"the median error is above {MEDIAN_BAR:.0%}": self.median_error > MEDIAN_BAR,
            f"the worst error is above {WORST_BAR:.0%}": self.worst_error > WORST_BAR,
            f"{len(self.misranked)} pairs are ranked the wrong way round": bool(self.misranked),
            "no pair of policies differs by more than the noise": not self.distinct,
            f"{self.differing} live sequences took other steps": self.exact and self.differing > 0,
            "there are no equal arms": not self.drifts,
        }
        disagreeing = [drift.complaint for drift in self.drifts if not drift.agrees]
        return [what for what, missed in bars.items() if missed] + disagreeing

    @property
    def passes(self) -> bool:
        """Whether no bar is missed."""
        return not self.missed

    def _repr_html_(self) -> str:
        from simkit.fidelity.report import html

        return html(self)


def compare(
    log: pa.Table,
    plan: Plan,
    replayed: Result,
    refits: Sequence[Times] = (),
    exact: bool = True,
) -> Comparison:
    """Hold a replay against the log.

    Args:
        log: `traces.schema.LIVE`.
        plan: of the run that wrote it.
        replayed: of the held-out prompts alone (`select`), the tested policies in their order.
        refits: the cost fitted to calibration prompts drawn anew (`simkit.fidelity.refits`).
        exact: see `Comparison`.
    """
    seen = sequences(log, plan.tested, _numbers(replayed))
    found, rows = drifts(seen), [seen.row(arm) for arm in plan.rules]
    measured = replayed.runs, seen.seconds[rows], seen.baseline
    draws = error_draws(*measured, refits)
    ends = error_intervals(draws, *measured)
    low, high = interval(np.median(np.abs(draws), axis=0))
    steps = taken(log, plan)
    compared = [_row(log, replayed, seen, steps, k, ends[k]) for k in range(len(rows))]
    pairs = pairs_of(replayed, seen, found)
    return Comparison(compared, low, high, pairs, _tau(compared), found, exact)


def pairs_of(replayed: Result, seen: Sequences, drifts: Sequence[Drift]) -> list[PolicyPair]:
    """All pairs of policies, see `Comparison.pairs`.

    Args:
        replayed: K policies.
        seen: their times; theirs are the runs 1 to K.
        drifts: of equal arms.
    """
    margin = max([abs(drift.ratio - 1) for drift in drifts], default=0.0)
    both = list(combinations(range(len(replayed.runs)), 2))
    level = 1 - (1 - CONFIDENCE) / max(len(both), 1)
    return [_pair(replayed, seen, *pair, margin, level) for pair in both]


def _numbers(replayed: Result) -> np.ndarray:
    return replayed.runs[0].layout.trace.sequences["sequence"].to_numpy()


def _row(
    log: pa.Table,
    replayed: Result,
    seen: Sequences,
    found: dict[tuple[int, int], list[Step]],
    k: int,
    error: tuple[float, float],
) -> PolicyRow:
    run, arm = replayed.runs[k], seen.row(k + 1)
    assert run.seconds is not None
    baseline, total = run.seconds["baseline_s"], run.total_s
    steps = run.counts["steps"].sum()
    measured = seen.speedup(arm)
    predicted = float(baseline.sum() / total.sum())
    rule_s = run.seconds["policy_s"].sum()
    parts = per_step(log, k + 1, seen.sequences)
    low, high = seen.interval(seen.names.index("baseline"), arm)
    ends = ratio_interval(baseline, total, CONFIDENCE, 0)
    return PolicyRow(
        policy=str(run.policy),
        predicted=predicted,
        predicted_lo=ends[0],
        predicted_hi=ends[1],
        measured=measured,
        measured_lo=low,
        measured_hi=high,
        error=predicted / measured - 1,
        error_lo=error[0],
        error_hi=error[1],
        tokens_per_step=float(run.counts["tokens"].sum() / steps),
        policy_s=parts["policy"] + parts["head"],
        predicted_policy_s=float(rule_s / steps),
        free=float(baseline.sum() / (total.sum() - rule_s)),
        measured_free=free_speedup(log, seen, arm),
        sequences=len(seen.sequences),
        differing=_differing(found, k + 1, replayed, k),
    )


def _differing(found: dict[tuple[int, int], list[Step]], arm: int, replayed: Result, k: int) -> int:
    """Sequences whose live steps are not the replayed ones."""
    steps, _ = replayed.runs[k].steps()
    columns = (steps.start, steps.proposed, steps.drafted, steps.accepted)
    rows = list(zip(*(column.tolist() for column in columns), strict=True))
    expected = {
        number: rows[steps.offsets[s] : steps.offsets[s + 1]]
        for s, number in enumerate(_numbers(replayed).tolist())
    }
    return sum([tuple(step) for step in found.get((arm, n), [])] != expected[n] for n in expected)


def _pair(
    replayed: Result, seen: Sequences, a: int, b: int, margin: float, confidence: float
) -> PolicyPair:
    """The policies of rows a and b; equal arms were `margin` apart."""
    top, bottom = seen.row(b + 1), seen.row(a + 1)
    if seen.seconds[top].sum() < seen.seconds[bottom].sum():
        a, b, top, bottom = b, a, bottom, top
    low, high = seen.interval(top, bottom, confidence)
    first, second = replayed.runs[a], replayed.runs[b]
    return PolicyPair(
        faster=str(first.policy),
        slower=str(second.policy),
        measured=float(seen.seconds[top].sum() / seen.seconds[bottom].sum()),
        measured_lo=low,
        measured_hi=high,
        predicted=float(second.total_s.sum() / first.total_s.sum()),
        distinct=low > 1 + margin,
    )


def _tau(rows: list[PolicyRow]) -> float:
    from scipy.stats import kendalltau

    if len(rows) < 2:
        return float("nan")
    both = [row.predicted for row in rows], [row.measured for row in rows]
    return float(kendalltau(*both)[0])  # pyright: ignore[reportArgumentType]
