"""Predicted against measured: errors, ranks, and whether live steps are the replayed ones."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
import pyarrow as pa

from simkit.fidelity.run import Runs
from simkit.live.batch import Outputs
from simkit.live.summary import CONFIDENCE, Drift, Sequences, drifts, per_step, sequences
from simkit.simulator import Result
from simkit.simulator.interval import ratio_interval

MEDIAN_BAR, WORST_BAR = 0.03, 0.08


@dataclass(frozen=True)
class Row:
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
        tokens_per_step: replayed, a + 1.
        policy_s: measured seconds of policy and head, a step.
        predicted_policy_s: what the replay charged for them, a step.
        free: predicted speedup if policy and head took no time.
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
    tokens_per_step: float
    policy_s: float
    predicted_policy_s: float
    free: float
    sequences: int
    differing: int


@dataclass(frozen=True)
class Pair:
    """Two policies whose measured times differ by more than the noise.

    Attributes:
        faster: on the clock.
        slower: on the clock.
        measured: ratio of their times, above 1.
        predicted: the same of the replay; below 1, they are ranked the wrong way round.
    """

    faster: str
    slower: str
    measured: float
    predicted: float


@dataclass(frozen=True)
class Comparison:
    """All policies.

    Attributes:
        rows: one a policy.
        pairs: those that differ by more than the noise: the interval of the paired ratio excludes
            1, and the ratio is further from 1 than two runs of one policy were.
        tau: Kendall's, of predicted and measured speedups; NaN for fewer than two policies.
        drifts: of equal arms.
    """

    rows: list[Row]
    pairs: list[Pair]
    tau: float
    drifts: list[Drift]

    @property
    def median_error(self) -> float:
        """Of absolute relative errors."""
        return float(np.median([abs(row.error) for row in self.rows]))

    @property
    def worst_error(self) -> float:
        """The largest absolute relative error."""
        return max(abs(row.error) for row in self.rows)

    @property
    def misranked(self) -> list[Pair]:
        """Pairs that the replay ranks the wrong way round."""
        return [pair for pair in self.pairs if pair.predicted < 1]

    @property
    def conclusive(self) -> bool:
        """Whether equal arms agree."""
        return all(drift.agrees for drift in self.drifts)

    @property
    def passes(self) -> bool:
        """Median and worst error within the bars, and no pair misranked."""
        within = self.median_error <= MEDIAN_BAR and self.worst_error <= WORST_BAR
        return within and not self.misranked


def compare(log: pa.Table, runs: Runs, replayed: Result) -> Comparison:
    """Hold a replay against the log.

    Args:
        log: `traces.schema.LIVE`.
        runs: what gave it.
        replayed: of the held-out prompts alone (`select`), the tested policies in their order.
    """
    seen = sequences(log, runs.plan.tested, _numbers(replayed))
    found = drifts(seen)
    rows = [_row(log, runs, replayed, seen, k) for k in range(len(replayed.runs))]
    noise = max([abs(drift.ratio - 1) for drift in found], default=0.0)
    return Comparison(rows, _pairs(replayed, seen, noise), _tau(rows), found)


def _numbers(replayed: Result) -> np.ndarray:
    return replayed.runs[0].layout.trace.sequences["sequence"].to_numpy()


def _row(log: pa.Table, runs: Runs, replayed: Result, seen: Sequences, k: int) -> Row:
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
    differing = _differing(runs.found, k + 1, replayed, k)
    return Row(
        policy=str(run.policy),
        predicted=predicted,
        predicted_lo=ends[0],
        predicted_hi=ends[1],
        measured=measured,
        measured_lo=low,
        measured_hi=high,
        error=predicted / measured - 1,
        tokens_per_step=float(run.counts["tokens"].sum() / steps),
        policy_s=parts["policy"] + parts["head"],
        predicted_policy_s=float(rule_s / steps),
        free=float(baseline.sum() / (total.sum() - rule_s)),
        sequences=len(seen.sequences),
        differing=differing,
    )


def _differing(found: Mapping[tuple[int, int], Outputs], arm: int, replayed: Result, k: int) -> int:
    """Sequences whose live steps are not the replayed ones."""
    steps, _ = replayed.runs[k].steps()
    columns = (steps.start, steps.proposed, steps.drafted, steps.accepted)
    rows = list(zip(*(column.tolist() for column in columns), strict=True))
    expected = {
        number: rows[steps.offsets[s] : steps.offsets[s + 1]]
        for s, number in enumerate(_numbers(replayed).tolist())
    }
    live: dict[int, Any] = {n: out.steps[0] for (a, n), out in found.items() if a == arm}
    return sum([tuple(step) for step in live[n]] != expected[n] for n in expected)


def _pairs(replayed: Result, seen: Sequences, noise: float) -> list[Pair]:
    out = []
    for a, b in combinations(range(len(replayed.runs)), 2):
        row_a, row_b = seen.row(a + 1), seen.row(b + 1)
        ratio = float(seen.seconds[row_b].sum() / seen.seconds[row_a].sum())
        low, high = seen.interval(row_b, row_a)
        if not (low > 1 or high < 1) or abs(ratio - 1) <= noise:
            continue
        first, second = replayed.runs[a], replayed.runs[b]
        predicted = float(second.total_s.sum() / first.total_s.sum())
        if ratio < 1:
            first, second, ratio, predicted = second, first, 1 / ratio, 1 / predicted
        out.append(Pair(str(first.policy), str(second.policy), ratio, predicted))
    return out


def _tau(rows: list[Row]) -> float:
    from scipy.stats import kendalltau

    if len(rows) < 2:
        return float("nan")
    both = [row.predicted for row in rows], [row.measured for row in rows]
    return float(kendalltau(*both)[0])  # pyright: ignore[reportArgumentType]
