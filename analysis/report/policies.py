"""Policies compared on the trace: which are faster than the best fixed length, and where."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from analysis.labelled_replays import HINDSIGHT, tuned
from analysis.replays import FAMILIES, FOLDS, Replayed, folds, groups, of
from analysis.report.cells import MISSING, ReportTable, estimate, lacking, number
from analysis.report.counted import COUNTS, counted, counts
from analysis.report.split import split
from analysis.speeds import factors
from analysis.stats import Estimate, clusters, compare
from analysis.study import Study
from simkit.policies import Policy
from simkit.simulator.arguments import AnyCost
from simkit.simulator.beyond import Beyond
from simkit.simulator.display import Cell

BASELINE = "fixed"
LEVEL = 0.05  # of adjusted p-values
BETTER = "which makes speeds look better than they are"
FLATTERS = f"Arguments were chosen on these very prompts, {BETTER}."
ON_OTHERS = "Arguments were chosen on other prompts than those that they are judged by."
ON_THESE = (
    f"Fewer than {FOLDS} prompts: arguments were chosen on the very prompts that they are judged"
    f" by, {BETTER}."
)
FASTER, SLOWER, SAME = "▲ faster", "▼ slower", "≈ not distinguishable"
UNSURE = "≈ not significant after correction"  # though the interval of this row alone leaves out 1


@dataclass(frozen=True)
class Policies:
    """What the page says of policies.

    Attributes:
        tables: those that there are.
        short: what they come to, a sentence each.
        missing: what is not there, and why.
        used: the policies that were replayed for times, each with its usual setting.
        beyond: what of their steps lies beyond what was timed.
    """

    tables: list[ReportTable] = field(default_factory=list)
    short: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    used: list[Policy] = field(default_factory=list)
    beyond: list[Beyond] = field(default_factory=list)


class _PolicyRow(NamedTuple):
    """One policy: its replay, its speedup, and itself beside the best fixed length."""

    one: Replayed
    speed: Estimate
    pair: compare.PolicyPair | None

    @property
    def knows(self) -> bool:
        return self.one.policy.needs_future

    @property
    def reads(self) -> str:
        if self.pair is None or self.pair.adjusted is None:
            return ""
        low, high = self.pair.speed.lo, self.pair.speed.hi
        significant = self.pair.adjusted < LEVEL
        if low is None or high is None:
            return self._faster if significant else SAME
        if low <= 1 <= high:  # it may hold the spread of the times, which p does not
            return SAME
        return self._faster if significant else UNSURE

    @property
    def _faster(self) -> str:
        assert self.pair is not None
        return FASTER if (self.pair.speed.value or 0) > 1 else SLOWER


def compared(study: Study, cost: AnyCost | None, given: Sequence[str]) -> Policies:
    """Compare the usual policies and the given ones, their arguments chosen on other prompts.

    Without times, counts of a few settings.

    Args:
        study: of a trace of any kind.
        cost: see `simkit.replay`.
        given: specs, with or without ranges, besides the usual ones.
    """
    at = of(study, cost)
    if not at.timed:
        table, missing = counted(study, given)
        return Policies([table], missing=["No times, so no speeds: give a cost.", *missing])
    takes_time = at.charge.baseline_s > 0
    if not takes_time.any():
        return Policies(missing=["Under this cost nothing takes time, so there are no speeds."])
    families: dict[str, str | tuple[str, ...]] = {**FAMILIES, **HINDSIGHT}
    families |= {f"{spec} (given)" if spec in families else spec: spec for spec in given}
    found, missing = tuned(study, families, cost)
    rows = _rows(found, takes_time)
    parts, why = split(study, cost, found, families, takes_time)
    apart = folds(study.trace) is not None
    tables = [_table(rows, apart), *_by_task(rows, groups(study.trace)), *parts]
    used = [one.policy for one in found.values()]
    beyond = [each for one in found.values() for each in one.beyond]
    return Policies(tables, _short(rows, apart), [*missing, *why], used, beyond)


def _rows(found: Mapping[str, Replayed], takes_time: np.ndarray) -> dict[str, _PolicyRow]:
    """The fastest first; those that know the future last."""
    rivals = {
        name: one.total_s[takes_time] for name, one in found.items() if not one.policy.needs_future
    }
    shared = factors({name: found[name] for name in rivals})
    pairs = compare.compare(rivals, BASELINE, factors=shared) if BASELINE in rivals else []
    pair = {one.name: one for one in pairs}
    speeds = _speeds(found, None)
    rows = [(name, _PolicyRow(one, speeds[name], pair.get(name))) for name, one in found.items()]
    return dict(sorted(rows, key=lambda row: (row[1].knows, -(row[1].speed.value or 0))))


def _speeds(found: Mapping[str, Replayed], some: np.ndarray | None) -> dict[str, Estimate]:
    """Speedups over the target alone, all from the same resamples."""
    baseline_s = next(iter(found.values())).seconds["baseline_s"]
    sums = np.stack([baseline_s, *(one.total_s for one in found.values())], 1)
    chosen = sums if some is None else sums[some]
    spreads = [one.timing() for one in found.values()]
    shared = [None if spread is None else spread.baseline / spread.total for spread in spreads]
    ratios = clusters.bootstrap(
        chosen, lambda s: s[..., :1] / s[..., 1:], positive=True, factors=shared, capped=False
    )
    return dict(zip(found, ratios, strict=True))


def _table(rows: Mapping[str, _PolicyRow], apart: bool) -> ReportTable:
    """The comparison; `apart`: arguments were chosen on other prompts."""
    pairs = {name: row.pair for name, row in rows.items() if row.pair}
    cells = [
        [
            _name(name),
            estimate(row.speed),
            estimate(row.pair.speed) if row.pair else MISSING,
            _p(row.pair.adjusted) if row.pair else MISSING,
            Cell(_reads(name, row), None, "line"),
            *counts(row.one.counts),
            Cell(row.one.spec, None, "code"),
        ]
        for name, row in rows.items()
    ]
    heads = ["policy", "speedup [95%]", "against best fixed [95%]", "p (Holm)", "reads as"]
    heads += [*COUNTS, "setting, most often" if apart else "setting"]
    both = [(name, row.speed) for name, row in rows.items()]
    both += [(name, pair.speed) for name, pair in pairs.items()]
    notes = (
        "Speedup: over the target alone. Against best fixed: speed ÷ that of the best fixed length,"
        " paired over prompts; above 1 the policy is faster. Accepted: share of drafted tokens."
        f" {ON_OTHERS if apart else ON_THESE} Each interval is for its row alone; the caveats say"
        " what it covers. p is that of a paired t test, corrected (Holm) for the"
        f" {len(pairs)} comparisons here. A row reads as faster or slower where p is below"
        f" {LEVEL} and the interval excludes 1. Bounds know the future and are not tested.",
        *lacking(both),
    )
    how = "tuned by cross-validation" if apart else "tuned on the very prompts shown"
    return ReportTable("policies", f"Policies, {how}", heads, cells, notes)


def _short(rows: Mapping[str, _PolicyRow], apart: bool) -> list[str]:
    """The fastest policy, beside the best fixed length and the prophet."""
    able = {name: row for name, row in rows.items() if not row.knows}
    lines = []
    if able:
        name, row = next(iter(able.items()))
        said = f"Fastest here: {name}, {_times(row.speed)} the target alone"
        if row.pair is not None:
            words = row.reads[2:].removesuffix(" after correction")
            reads = f"; {words}, after correction" if words else ""
            said += f", {_times(row.pair.speed)} the best fixed length{reads}"
        lines.append(f"{said}." if apart else f"{said}. {FLATTERS}")
    tested = [row for row in able.values() if row.reads]
    if tested:
        ahead = [name for name, row in able.items() if row.reads == FASTER]
        lines.append(
            f"{len(ahead)} of {len(tested)} policies are distinguishably faster than the best fixed"
            " length" + (f": {', '.join(ahead)}." if ahead else ".")
        )
    if "prophet" in rows:
        bound = _times(rows["prophet"].speed)
        lines.append(f"The bound, which knows the future: {bound} the target alone.")
    return lines


def _by_task(rows: Mapping[str, _PolicyRow], masks: Mapping[str, np.ndarray]) -> list[ReportTable]:
    """Speedups, a column for each task; the best of those that know no future stands out."""
    if len(masks) < 2:
        return []
    found = {name: row.one for name, row in rows.items()}
    columns = {task: _speeds(found, some) for task, some in masks.items()}
    able = [name for name, row in rows.items() if not row.knows]
    best = {
        task: max(able, key=lambda name: some[name].value or 0, default="")
        for task, some in columns.items()
    }
    cells = [
        [
            _name(name),
            *(
                estimate(some[name], look="strong" if best[task] == name else "")
                for task, some in columns.items()
            ),
        ]
        for name in rows
    ]
    heads = ["policy", *(f"{task} (n = {int(some.sum())})" for task, some in masks.items())]
    notes = (
        "Speedup over the target alone [95%], with the settings above, the same for all tasks;"
        " n: prompts. Bold: the fastest policy that does not know the future; the next may not be"
        " distinguishable from it.",
        *lacking((task, one) for task, some in columns.items() for one in some.values()),
    )
    return [ReportTable("by-task", "Policies by task", heads, cells, notes)]


def _reads(name: str, row: _PolicyRow) -> str:
    return "baseline" if name == BASELINE else "bound" if row.knows else row.reads or "–"


def _name(name: str) -> Cell:
    return Cell(name, None, "strong" if name == BASELINE else "")


def _times(speed: Estimate) -> str:
    return f"{estimate(speed).text} times as fast as"


def _p(value: float | None) -> Cell:
    if value is not None and value < 0.001:
        return Cell("< 0.001", value, "number")
    return number(value, ".3f")
