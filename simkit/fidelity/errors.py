"""How well an error is known: held-out prompts and the fitted cost are both drawn anew."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from simkit.costs import CostError, Times
from simkit.costs.measured import times_of
from simkit.costs.passes import Passes
from simkit.live.summary import CONFIDENCE
from simkit.simulator.run import Run, run
from simkit.simulator.step_costs import Charge
from simkit.statistics.interval import RESAMPLES, ends, resampled

REFITS = 200  # of the cost


def refits(passes: Passes, n: int = REFITS, seed: int = 0) -> list[Times]:
    """Costs of calibration prompts drawn anew, with replacement; `passes` gave the cost itself.

    A draw that has no pass of one of the models (of few prompts, some of which have outputs of one
    token) is left out.
    """
    rng = np.random.default_rng(seed)
    out = []
    for _ in range(n):
        try:
            out.append(times_of(passes.again(rng).samples()))
        except CostError:
            continue
    return out


def error_draws(
    runs: Sequence[Run],
    measured_s: np.ndarray,
    measured_baseline_s: np.ndarray,
    costs: Sequence[Times] = (),
    seed: int = 0,
) -> np.ndarray:
    """The bootstrap distribution of predicted / measured speedup - 1.

    Every draw takes prompts with replacement, the same ones for prediction and measurement and for
    all policies, and prices the replayed steps by one of the costs.

    Args:
        runs: replays of the K policies on the P held-out prompts.
        measured_s: seconds on the clock, (K, P).
        measured_baseline_s: of the target alone, (P,).
        costs: fitted to calibration prompts drawn anew; none: the cost counts as known.
        seed: of the draws.

    Returns:
        (K, D); NaN for a single prompt.
    """
    n = len(runs)
    if len(measured_baseline_s) < 2:
        return np.full((n, 1), np.nan)
    priced = [_priced(runs, times) for times in costs] or [_seconds(runs)]
    n_draws = -(-RESAMPLES // len(priced))
    draws = []
    for k, (total_s, baseline_s) in enumerate(priced):
        prompts = np.stack([baseline_s, measured_baseline_s, *total_s, *measured_s], axis=1)
        for sums in resampled(prompts, seed + k, n_draws):
            predicted = sums[:, :1] / sums[:, 2 : 2 + n]
            measured = sums[:, 1:2] / sums[:, 2 + n :]
            draws.append(predicted / measured - 1)
    return np.concatenate(draws).T


def interval(draws: np.ndarray) -> tuple[float, float]:
    """The ends of the central 95% of draws (D,)."""
    tail = (1 - CONFIDENCE) / 2
    low, high = np.quantile(draws, (tail, 1 - tail))
    return float(low), float(high)


def error_intervals(
    draws: np.ndarray,
    runs: Sequence[Run],
    measured_s: np.ndarray,
    measured_baseline_s: np.ndarray,
) -> list[tuple[float, float]]:
    """The ends of each policy's interval (`simkit.statistics.interval.ends`, corrected for few).

    Args:
        draws: of `error_draws`.
        runs: see there.
        measured_s: see there.
        measured_baseline_s: see there.
    """
    total_s, baseline_s = _seconds(runs)
    predicted = _without(baseline_s) / _without(total_s)
    without = predicted / (_without(measured_baseline_s) / _without(measured_s))
    whole = baseline_s.sum() / total_s.sum(1) / (measured_baseline_s.sum() / measured_s.sum(1))
    found = []
    for value, drawn, left in zip(whole, draws + 1, without, strict=True):
        if len(left) < 2 or np.ptp(left) <= 1e-12:
            low, high = interval(drawn)
        else:
            low, high = ends(float(value), drawn, left, CONFIDENCE, positive=True, capped=False)
        found.append((low - 1, high - 1))
    return found


def _without(values: np.ndarray) -> np.ndarray:
    """Sums over all prompts (..., P) but each in turn."""
    return values.sum(-1, keepdims=True) - values


def _priced(runs: Sequence[Run], times: Times) -> tuple[np.ndarray, np.ndarray]:
    """Seconds (K, P) of the policies and (P,) of the target alone, under another cost."""
    first, layout = runs[0].setting.first, runs[0].layout
    charge = Charge(times, layout, first)
    return _seconds([run(replayed.policy, layout, charge, first) for replayed in runs])


def _seconds(runs: Sequence[Run]) -> tuple[np.ndarray, np.ndarray]:
    assert runs[0].seconds is not None
    return np.array([replayed.total_s for replayed in runs]), runs[0].seconds["baseline_s"]
