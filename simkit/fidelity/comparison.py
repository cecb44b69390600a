"""Predicted against measured: errors, ranks, and whether live steps are the replayed ones."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

import numpy as np
import pyarrow as pa

from simkit.costs import Times
from simkit.fidelity.errors import error_draws, error_intervals, interval
from simkit.fidelity.logs import taken
from simkit.fidelity.results import FidelityResult, PolicyRow, RankedPair
from simkit.fidelity.run import LivePlan
from simkit.live.settings import Step
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
from simkit.simulator.beyond import together
from simkit.statistics.interval import ratio_interval


def compare(
    log: pa.Table,
    plan: LivePlan,
    replayed: Result,
    refits: Sequence[Times] = (),
    exact: bool = True,
) -> FidelityResult:
    """Hold a replay against the log.

    Args:
        log: `traces.schema.LIVE`.
        plan: of the run that wrote it.
        replayed: of the held-out prompts alone (`select`), the tested policies in their order.
        refits: the cost fitted to calibration prompts drawn anew (`simkit.fidelity.refits`).
        exact: see `FidelityResult`.
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
    charge = replayed.runs[0].charge
    beyond = [*(charge.beyond if charge else ()), *(b for one in replayed.runs for b in one.beyond)]
    notes = tuple(together(beyond))
    return FidelityResult(compared, low, high, pairs, _tau(compared), found, exact, notes)


def pairs_of(replayed: Result, seen: Sequences, drifts: Sequence[Drift]) -> list[RankedPair]:
    """All pairs of policies, see `FidelityResult.pairs`.

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
) -> RankedPair:
    """The policies of rows a and b; equal arms were `margin` apart."""
    top, bottom = seen.row(b + 1), seen.row(a + 1)
    if seen.seconds[top].sum() < seen.seconds[bottom].sum():
        a, b, top, bottom = b, a, bottom, top
    low, high = seen.interval(top, bottom, confidence)
    first, second = replayed.runs[a], replayed.runs[b]
    return RankedPair(
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
