"""What the cells of the papers' tables say of a policy on some prompts."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from analysis import outside, speeds
from analysis.replays import Replayed, Replays
from analysis.stats import Estimate, clusters
from analysis.study import MissingError

Measure = Callable[[Replayed, np.ndarray], str]
APART = "τ, outside of loops"  # of the output; see `analysis.stats.loops`


def tokens_per_s(one: Replayed, some: np.ndarray) -> str:
    """Output tokens a second."""
    return f"{one.counts['emitted'][some].sum() / one.total_s[some].sum():.2f}"


def speedup(one: Replayed, some: np.ndarray) -> str:
    """Over the target alone, with its interval."""
    return cell(speeds.speedup(one, some))


def accepted(one: Replayed, some: np.ndarray) -> str:
    """τ of PACER's tables: accepted tokens a step; the target alone has none."""
    if not one.counts["drafted"].any():
        return "–"
    return cell(clusters.ratio(one.counts["accepted"][some], one.counts["steps"][some]))


def tokens(one: Replayed, some: np.ndarray) -> str:
    """τ of the acceptance head's tables: tokens a step, a + 1."""
    return cell(clusters.ratio(one.counts["tokens"][some], one.counts["steps"][some]))


def passes(count: str) -> Measure:
    """A count, summed."""
    return lambda one, some: f"{int(one.counts[count][some].sum()):,}"


def cell(e: Estimate) -> str:
    """An estimate in a cell."""
    if e.value is None:
        return "–"
    return f"{e.value:.2f}" if e.lo is None else f"{e.value:.2f} [{e.lo:.2f}, {e.hi:.2f}]"


def apart(at: Replays, bonus: int = 0) -> Measure | None:
    """τ of steps outside of verbatim loops, where there are loops; see `analysis.outside`.

    Args:
        at: what was replayed.
        bonus: 1 for tokens a step, the target's own among them.
    """
    try:
        outside.stretches(at)
    except MissingError:
        return None

    kept: dict[int, tuple[Replayed, tuple[np.ndarray, np.ndarray]]] = {}

    def measured(one: Replayed, some: np.ndarray) -> str:
        if not bonus and not one.counts["drafted"].any():
            return "–"
        if id(one) not in kept:
            kept[id(one)] = one, outside.accepted_a_step(at, one)
        found, steps = kept[id(one)][1]
        return cell(clusters.ratio((found + bonus * steps)[some], steps[some]))

    return measured


def with_apart(at: Replays, measures: dict[str, Measure], bonus: int = 0) -> dict[str, Measure]:
    """The measures, and τ outside of loops behind them where there are loops."""
    free = apart(at, bonus)
    return measures if free is None else {**measures, APART: free}
