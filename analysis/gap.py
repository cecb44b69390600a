"""Where the time between the best fixed draft length and the prophet lies."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from simkit.errors import ReplayError
from simkit.policies import Fixed, Parallel, Policy, Prophet
from simkit.simulator.given import AnyCost, AnyPolicy, AnyTrace, check_confidence, setting
from simkit.simulator.interval import ratio_interval
from simkit.sweeps.engine import replays
from simkit.sweeps.grid import settings

if TYPE_CHECKING:
    import polars as pl

LONGEST = 40  # of the fixed lengths, like the default max_draft


@dataclass(frozen=True, eq=False)
class Gap:
    """The time between the tuned `fixed` and `prophet`, in parts.

    Attributes:
        frame: one row for each of fixed, prophet, gap, reachable, overhead, unreachable, see
            `parts`: part, its seconds, and these as shares of_fixed and of_gap, each with the ends
            _lo and _hi of its bootstrap interval over prompts. Null where it is not defined: an
            interval of a single prompt, or of_gap where a prompt leaves no gap.
        fixed: the length that was chosen for each fold, by the other folds.
        best: the policy that was chosen for each fold, likewise.
    """

    frame: pl.DataFrame
    fixed: tuple[str, ...]
    best: tuple[str, ...]


def gap(
    trace: AnyTrace,
    candidates: AnyPolicy | Iterable[AnyPolicy],
    cost: AnyCost | None = None,
    folds: int = 5,
    seed: int = 0,
    first_token: Literal["draft", "prefill"] = "draft",
    confidence: float = 0.95,
) -> Gap:
    """Split the gap between the tuned `fixed` and `prophet`.

    Settings are tuned by cross-validation over prompts: each fold of prompts is timed with the
    setting that is fastest on the others, `fixed` out of all fixed lengths that were recorded (at
    most 40), the best policy out of these and the candidates.

    Args:
        trace: a recorded pair; or its folder, or a bundled trace's name.
        candidates: policies that a drafter can follow; specs may hold ranges.
        cost: see `simkit.replay`.
        folds: of prompts, 2 to their number.
        seed: of the folds and of the bootstrap.
        first_token: see `simkit.replay`.
        confidence: of the intervals.

    Raises:
        ReplayError: a candidate needs the future or runs both models at once; there are no times;
            or folds do not fit the trace.
        UserError: as `simkit.replay` does; the message names the setting.
    """
    check_confidence(confidence)
    where = setting(trace, cost, first_token)
    n = where.layout.trace.n_sequences
    if where.charge is None:
        raise ReplayError("there are no times to split: give a cost")
    if not 2 <= folds <= n:
        raise ReplayError(f"folds must lie between 2 and the number of prompts ({n}), not {folds}")
    longest = min(LONGEST, where.layout.trace.max_draft)
    lengths = [Fixed(k) for k in range(longest + 1)]
    pool = settings([*lengths, *_allowed(settings(candidates))])
    prophet = Prophet(max_draft=max(policy.max_draft for policy in pool))
    runs = list(replays([*pool, prophet], where))
    total_s = np.array([run.total_s for run in runs])
    policy_s = np.array([run.seconds["policy_s"] for run in runs if run.seconds])

    fold = np.random.default_rng(seed).permutation(n) % folds
    fixed, best = (chosen(total_s[:k], fold) for k in (len(lengths), len(pool)))
    every = np.arange(n)
    seconds = parts(
        total_s[fixed[fold], every],
        total_s[best[fold], every],
        policy_s[best[fold], every],
        total_s[-1],
    )
    names = tuple(tuple(str(pool[k]) for k in choice) for choice in (fixed, best))
    return Gap(_frame(seconds, confidence, seed), *names)


def chosen(total_s: np.ndarray, fold: np.ndarray) -> np.ndarray:
    """The setting that is fastest on all prompts outside each fold.

    Args:
        total_s: (P, S) seconds of each setting on each prompt.
        fold: (S,) of each prompt, 0 to F - 1.

    Returns:
        (F,) indices of settings; of equals the first.
    """
    others = [total_s[:, fold != f].sum(1).argmin() for f in range(int(fold.max()) + 1)]
    return np.array(others)


def parts(
    fixed_s: np.ndarray, best_s: np.ndarray, best_policy_s: np.ndarray, prophet_s: np.ndarray
) -> dict[str, np.ndarray]:
    """The parts of the gap; reachable + overhead + unreachable = gap = fixed - prophet.

    Args:
        fixed_s: seconds of the tuned `fixed`, for each prompt.
        best_s: seconds of the best policy.
        best_policy_s: of these, those of its decisions and its head.
        prophet_s: seconds of `prophet`.

    Returns:
        For each prompt, in seconds: fixed and prophet; gap; reachable, what the best policy saves
        over `fixed`; overhead, what it would save besides if deciding took no time; unreachable,
        the rest.
    """
    return {
        "fixed": fixed_s,
        "prophet": prophet_s,
        "gap": fixed_s - prophet_s,
        "reachable": fixed_s - best_s,
        "overhead": best_policy_s,
        "unreachable": best_s - best_policy_s - prophet_s,
    }


def _allowed(candidates: list[Policy]) -> list[Policy]:
    for policy in candidates:
        if policy.needs_future or isinstance(policy, Parallel):
            why = "needs the future" if policy.needs_future else "runs both models at once"
            raise ReplayError(f"{policy} cannot be a candidate: it {why}")
    return candidates


def _frame(seconds: dict[str, np.ndarray], confidence: float, seed: int) -> pl.DataFrame:
    import polars as pl

    rows = []
    for name, values in seconds.items():
        row: dict[str, str | float] = {"part": name, "seconds": float(values.sum())}
        for whole in ("fixed", "gap"):
            of, share = seconds[whole], f"of_{whole}"
            row[share] = float(values.sum() / of.sum()) if of.sum() > 0 else np.nan
            ends = ratio_interval(values, of, confidence, seed)
            row[f"{share}_lo"], row[f"{share}_hi"] = ends
        rows.append(row)
    return pl.DataFrame(rows).with_columns(pl.selectors.float().fill_nan(None))
