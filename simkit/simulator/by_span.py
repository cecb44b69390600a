"""A replay's counts and times by what positions are part of; a step counts where it starts."""

from __future__ import annotations

import numpy as np

from simkit.simulator.fields import Columns, fields
from simkit.simulator.run import Run
from simkit.statistics.interval import ratio_interval
from simkit.steps.family import family_of
from traces import spans


def by_span(run: Run, confidence: float, seed: int) -> Columns:
    """The rows of one policy, one for each kind of span that there is.

    Args:
        run: of the policy.
        confidence: of the intervals, which are over prompts.
        seed: of the bootstrap.

    Raises:
        TraceError: no spans were written into the trace.
    """
    found = spans.load(run.layout.trace)
    steps, seconds = run.steps()
    place = run.layout.offsets[steps.sequence] + steps.start - 1
    kinds, position = np.unique(found.label, return_inverse=True)
    kind, n = position[place], len(kinds)

    def over(values: np.ndarray) -> np.ndarray:
        return np.bincount(kind, values, n)

    counted = ("drafted", "draft_passes", "proposed", "accepted", "emitted")
    counts = {name: over(getattr(steps, name)).astype(np.int64) for name in counted}
    counts["steps"] = over(np.ones(len(steps))).astype(np.int64)
    tokens = family_of(run.bound).tokens(steps.accepted, 1, steps.emitted)
    counts["tokens"] = over(tokens).astype(np.int64)
    sums = {name: over(values) for name, values in (seconds or {}).items()}
    rows = fields(np.full(n, str(run.policy), object), counts, sums)
    if seconds is not None:
        cell = kind + n * steps.sequence
        each = {
            name: np.bincount(cell, values, n * run.layout.trace.n_sequences).reshape(-1, n)
            for name, values in seconds.items()
        }
        baseline = each.pop("baseline_s")
        total = np.sum(list(each.values()), axis=0)
        factors = run.spread and run.spread.baseline / run.spread.total
        ends = []
        for k in range(n):
            there = total[:, k] > 0
            both = baseline[there, k], total[there, k]
            ends.append(ratio_interval(*both, confidence, seed, factors))
        rows["speedup_lo"], rows["speedup_hi"] = np.array(ends).T
    return {**rows, "span": np.array([found.names[k] for k in kinds], object)}
