"""Counts and times as columns, one row for each policy and group of sequences."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from simkit.simulator.run import Run
from simkit.simulator.step_costs import PARTS
from traces.trace import Trace

if TYPE_CHECKING:
    import polars as pl

FIELDS = (
    "policy",
    "steps",
    "drafted",
    "draft_passes",
    "proposed",
    "accepted",
    "emitted",
    "tokens_per_step",
    "accepted_per_step",
    *PARTS,
    "total_s",
    "baseline_s",
    "speedup",
    "speedup_lo",
    "speedup_hi",
)

Columns = dict[str, np.ndarray]
"""Columns of equal length: whole numbers, floats where NaN means missing, or objects."""


def fields(policies: np.ndarray, counts: Columns, seconds: Columns) -> Columns:
    """All fields of a replay, from those that add up.

    Args:
        policies: names of the rows' policies, objects.
        counts: steps, drafted, draft_passes, proposed, accepted, emitted, and what
            tokens_per_step counts.
        seconds: the parts of the time, and baseline_s; empty if there are no times.
    """
    missing = np.full(len(policies), np.nan)
    accepted = ratio(counts["accepted"], counts["steps"])
    parts = {name: seconds.get(name, missing) for name in PARTS}
    total_s = np.sum(list(parts.values()), axis=0)
    baseline_s = seconds.get("baseline_s", missing)
    values = {
        "policy": policies,
        **counts,
        "tokens_per_step": ratio(counts["tokens"], counts["steps"]),
        "accepted_per_step": accepted,
        **parts,
        "total_s": total_s,
        "baseline_s": baseline_s,
        "speedup": ratio(baseline_s, total_s),
        "speedup_lo": missing,
        "speedup_hi": missing,
    }
    return {name: values[name] for name in FIELDS}


def totals(run: Run, group: np.ndarray, n: int) -> tuple[Columns, Columns]:
    """A replay's counts and seconds, summed over each of n groups of sequences."""

    def over(values: np.ndarray) -> np.ndarray:
        return np.bincount(group, values, n)

    counts = {name: over(values).astype(np.int64) for name, values in run.counts.items()}
    return counts, {name: over(values) for name, values in (run.seconds or {}).items()}


def groups(trace: Trace, by: str) -> tuple[Columns, np.ndarray, int]:
    """The key columns by "trace", "task" or "sequence", each sequence's group, how many there are.

    Tasks come in the order in which the trace has them.
    """
    table = trace.sequences
    if by == "sequence":
        return {by: table[by].to_numpy()}, np.arange(table.num_rows), table.num_rows
    if by == "trace":
        return {}, np.zeros(table.num_rows, np.int64), 1
    tasks = table["task"].to_pylist()
    order = {task: k for k, task in enumerate(dict.fromkeys(tasks))}
    names = np.array([*order, None], object)[:-1]
    return {"task": names}, np.array([order[task] for task in tasks], np.int64), len(order)


def n_prompts(trace: Trace, by: str) -> dict[str | None, int]:
    """How many prompts there are by "trace", under None, or by "task"."""
    keys, group, n = groups(trace, by)
    names = keys["task"].tolist() if keys else [None] * n
    return dict(zip(names, np.bincount(group, minlength=n).tolist(), strict=True))


def ratio(top: np.ndarray, bottom: np.ndarray) -> np.ndarray:
    """Top over bottom, NaN where the bottom is 0."""
    out = np.full(len(top), np.nan)
    return np.divide(top, bottom, out=out, where=bottom > 0)


def series(name: str, values: np.ndarray) -> pl.Series:
    """A column as polars has it, null where a value is missing."""
    import polars as pl

    if values.dtype == object:
        return pl.Series(name, values.tolist(), pl.String)
    if values.dtype.kind == "f":
        return pl.Series(name, values).fill_nan(None)
    return pl.Series(name, values.astype(np.int64))
