"""A replay's counts and times by what positions are part of; a step counts where it starts.

An output without a step, all of which the prompt's pass emitted, has times all the same: those of
its prompt. They count where its last token is.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from simkit.simulator.fields import Columns, fields
from simkit.simulator.run import Run
from simkit.statistics.interval import ratio_interval
from simkit.steps.family import family_of
from traces import spans

_COUNTED = ("drafted", "draft_passes", "proposed", "accepted", "emitted")


def by_span(run: Run, confidence: float, seed: int) -> Columns:
    """The rows of one policy, one for each kind of span that there is.

    Args:
        run: of the policy.
        confidence: of the intervals, which are over prompts.
        seed: of the bootstrap.

    Raises:
        TraceError: no spans were written into the trace.
    """
    names, each_counts, each_s = sums_by_span(run)
    n = len(names)
    counts = {name: values.sum(0) for name, values in each_counts.items()}
    sums = {name: values.sum(0) for name, values in each_s.items()}
    rows = fields(np.full(n, str(run.policy), object), counts, sums)
    if each_s:
        baseline = each_s.pop("baseline_s")
        total = np.sum(list(each_s.values()), axis=0)
        factors = run.spread and run.spread.baseline / run.spread.total
        pairs = zip(baseline.T, total.T, strict=True)
        ends = [ratio_interval(*both, confidence, seed, factors) for both in pairs]
        rows["speedup_lo"], rows["speedup_hi"] = np.array(ends).T
    return {**rows, "span": np.array(names, object)}


class SpanSums(NamedTuple):
    """A replay's sums by prompt and span, (S, K) each; see the module for what counts where.

    Attributes:
        names: of the K spans that there are.
        counts: those of `Run`.
        seconds: those of `Run`; empty without costs.
    """

    names: list[str]
    counts: dict[str, np.ndarray]
    seconds: dict[str, np.ndarray]


def sums_by_span(run: Run) -> SpanSums:
    """A replay's sums by prompt and span.

    Raises:
        TraceError: no spans were written into the trace.
    """
    names, label = _spans(run)
    shape = run.layout.trace.n_sequences, len(names)
    counts: dict[str, np.ndarray] = {}
    seconds: dict[str, np.ndarray] = {}
    for steps, taken in run.pieces():
        cell = steps.sequence * shape[1] + label[steps.row(run.layout)]
        here = {name: getattr(steps, name) for name in _COUNTED}
        here |= {"steps": np.ones(len(steps), np.int64)}
        here |= {"tokens": family_of(run.bound).tokens(steps.accepted, 1, steps.emitted)}
        for sums, values in ((counts, here), (seconds, taken or {})):
            for name, each in values.items():
                found = np.bincount(cell, each, shape[0] * shape[1]).reshape(shape)
                sums[name] = sums[name] + found if name in sums else found
    idle = np.flatnonzero(run.counts["steps"] == 0)
    where = idle, label[run.layout.offsets[idle + 1] - 1]
    for name, found in seconds.items():
        found[where] += run.seconds[name][idle] if run.seconds else 0.0
    whole = {name: found.astype(np.int64) for name, found in counts.items()}
    return SpanSums(names, whole, seconds)


def _spans(run: Run) -> tuple[list[str], np.ndarray]:
    """The names of the spans that there are, and the index of that of each position."""
    found = spans.load(run.layout.trace)
    kinds, label = np.unique(found.label, return_inverse=True)
    return [found.names[k] for k in kinds], label
