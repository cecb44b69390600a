"""What the cells of the papers' tables say of a policy on some prompts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache, partial

import numpy as np

from analysis import outside_loops, speeds
from analysis.figures.rows import Row, cells
from analysis.replays import Replayed, Replays
from analysis.stats import Estimate, clusters
from analysis.study import MissingError

Counts = Mapping[str, np.ndarray]  # of a replay, or of its part outside of loops; (S,) each
Measure = Callable[[Replayed, np.ndarray], str]
APART = "τ, outside of loops"  # of the output; see `analysis.stats.loops`
PER_STEP_APART = "accepted_per_step_outside"  # the same in a figure's frame


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
    return cell(tau(one.counts, some))


def tau(counts: Counts, some: np.ndarray | None = None) -> Estimate:
    """Accepted tokens a step.

    Args:
        counts: accepted tokens and steps, (S,) each.
        some: (S,) bool, prompts that count; None means all.
    """
    kept = slice(None) if some is None else some
    return clusters.ratio(counts["accepted"][kept], counts["steps"][kept])


def tau_cells(counts: Counts, free: Counts | None, some: np.ndarray | None = None) -> Row:
    """τ, and τ outside of loops where there are any, for a row of a frame."""
    found = cells(tau(counts, some), "accepted_per_step")
    return found if free is None else found | cells(tau(free, some), PER_STEP_APART)


def taus(mine: Counts, other: Counts) -> tuple[np.ndarray, ...]:
    """What `clusters.ratio_of_ratios` makes τ ÷ τ of."""
    return tuple(counts[name] for counts in (mine, other) for name in ("accepted", "steps"))


def tokens(one: Replayed, some: np.ndarray) -> str:
    """τ of the acceptance head's tables: tokens a step, a + 1."""
    return cell(clusters.ratio(one.counts["tokens"][some], one.counts["steps"][some]))


def passes(count: str) -> Measure:
    """A count, summed."""
    return lambda one, some: f"{int(one.counts[count][some].sum()):,}"


def cell(e: Estimate) -> str:
    """An estimate in a cell."""
    return e.text(".2f")


def apart(at: Replays, bonus: int = 0) -> Measure | None:
    """τ of steps outside of verbatim loops, where there are loops; see `analysis.outside_loops`.

    Args:
        at: what was replayed.
        bonus: 1 for tokens a step, the target's own among them.
    """
    try:
        outside_loops.stretches(at)
    except MissingError:
        return None

    counts_of = cache(partial(outside_loops.counts, at))

    def measured(one: Replayed, some: np.ndarray) -> str:
        if not bonus and not one.counts["drafted"].any():
            return "–"
        counts = counts_of(one)
        found, steps = counts["accepted"], counts["steps"]
        return cell(clusters.ratio((found + bonus * steps)[some], steps[some]))

    return measured
