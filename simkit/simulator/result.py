"""What a replay gives: counts and times, by trace, task, sequence or step."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from simkit.costs.base import RuleTime
from simkit.costs.presets import PRESETS
from simkit.drafters.layout import Layout
from simkit.errors import ReplayError
from simkit.format_ratio import ratio
from simkit.policies import Policy, PolicyError, parse
from simkit.simulator.arguments import places
from simkit.simulator.by_span import by_span
from simkit.simulator.display import grid, html, idle, in_text, noted, rich
from simkit.simulator.fields import Columns, fields, groups, n_prompts, series, totals
from simkit.simulator.rule_time import said
from simkit.simulator.run import Run, rules_of
from simkit.simulator.step_costs import free_heads
from simkit.statistics.enough import few_below
from simkit.statistics.interval import ratio_interval
from simkit.steps.family import family_of
from simkit.surface import Plotted
from traces.did_you_mean import Helpful
from traces.loops import remarks_of

if TYPE_CHECKING:
    import polars as pl
    from rich.table import Table

# A step: the most that PEARL's Table 15 prints of a pair.
COMMUNICATION_S = max(preset.arguments.get("communication_s", 0.0) for preset in PRESETS.values())
BY = ("trace", "task", "span", "sequence", "step")


@dataclass(frozen=True)
class Comparison(Helpful):
    """Two policies on the same prompts.

    Attributes:
        a: the first policy's spec.
        b: the second's.
        speedup: total time of b over total time of a: above 1, a is faster.
        speedup_lo: lower end of its bootstrap interval over prompts, None for a single prompt.
        speedup_hi: upper end.
        notes: what a reader of the times should know, one line each.
    """

    a: str
    b: str
    speedup: float
    speedup_lo: float | None
    speedup_hi: float | None
    notes: tuple[str, ...] = ()

    def __repr__(self) -> str:
        speedup = ratio(self.speedup, self.speedup_lo, self.speedup_hi) or "?"
        said = "".join(f"; {note}" for note in self.notes)
        return f"<Comparison: {self.a} is {speedup} times as fast as {self.b}{said}>"

    def _repr_html_(self) -> str:
        speedup = ratio(self.speedup, self.speedup_lo, self.speedup_hi)
        return grid(("a", "b", "speed of a ÷ b"), [(self.a, self.b, speedup)]) + noted(self.notes)


def compared(
    names: tuple[str, str], first: Run, second: Run, confidence: float, seed: int
) -> Comparison:
    """How much faster the first run is than the second, on the same prompts; paired.

    Raises:
        ReplayError: there are no times.
    """
    if first.seconds is None or second.seconds is None:
        raise ReplayError("there are no times to compare: give a cost")
    mine, other = first.total_s, second.total_s
    spreads = second.spread, first.spread
    factors = None
    if spreads[0] and spreads[1] and len(spreads[0].total) == len(spreads[1].total):
        factors = spreads[0].total / spreads[1].total
    low, high = ratio_interval(other, mine, confidence, seed, factors)
    speedup = float(other.sum() / mine.sum()) if mine.sum() > 0 else math.nan
    low, high = (None if math.isnan(x) else x for x in (low, high))
    said = [line for run in (first, second) if run.charge for line in run.charge.remarks]
    said += [str(one) for one in (*first.beyond, *second.beyond)]
    return Comparison(*names, speedup, low, high, tuple(dict.fromkeys(said)))


class Result(Plotted):
    """Counts and times of policies on one trace.

    tokens_per_step is the mean of a + 1, accepted_per_step that of a. The parts sum to total_s;
    speedup is baseline_s / total_s, a ratio of sums, with a bootstrap interval over prompts.

    Attributes:
        runs: one for each policy, in order.
        by: one of `BY`.

    >>> import simkit
    >>> cost = "linear(draft_s=1, target_s=10)"
    >>> result = simkit.replay("reference", ["fixed(3)", "oracle"], cost=cost)
    >>> result.compare("oracle", "fixed(3)")
    <Comparison: oracle() is 1.450 [1.401, 1.501] times as fast as fixed(3)>
    """

    def __init__(
        self, layout: Layout, runs: list[Run], by: str, confidence: float, seed: int
    ) -> None:
        self.runs = runs
        self.by = by
        self._layout = layout
        self._confidence = confidence
        self._seed = seed

    @cached_property
    def columns(self) -> Columns:
        """The fields as arrays, in order; NaN and None are missing values."""
        level = self._confidence, self._seed
        kinds = {"step": self._step_columns, "span": lambda run: by_span(run, *level)}
        rows = kinds.get(self.by, self._grouped)
        parts = [rows(run) for run in self.runs]
        return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}

    @cached_property
    def frame(self) -> pl.DataFrame:
        """The fields as a data frame, one row for each policy and group."""
        return _frame(self.columns)

    @property
    def rule_times(self) -> dict[str, RuleTime]:
        """What a decision of each policy was charged, and how that is known.

        Policies that decide nothing while they draft are left out, and all where no times are.
        """
        return {str(policy): taken for policy, taken in rules_of(self.runs)}

    @property
    def notes(self) -> list[str]:
        """What a reader of the numbers should know, one line each."""
        remarks = [run.policy.remark(run.setting) for run in self.runs if run.charge]
        costs = {id(run.charge): run.charge for run in self.runs if run.charge}
        found = [
            *(line for charge in costs.values() for line in charge.remarks),
            *(str(one) for run in self.runs for one in run.beyond),
            *free_heads((run.charge, run.policy) for run in self.runs),
            *said(rules_of(self.runs)),
            *(line for line in remarks if line),
            *(line for run in self.runs if (line := _uncommunicating(run))),
            *(
                f"{run.policy} is slower than no speculation: its decisions cost more than they"
                " save"
                for run in self.runs
                if run.is_loss
            ),
            *idle(_drafting(run) for run in self.runs if run.seconds is not None),
            *(line for run in self.runs for line in run.remarks()),
            *self._few(),
            *self._untimed(),
            *self._loops,
        ]
        return list(dict.fromkeys(found))

    def records(self) -> list[dict[str, Any]]:
        """The rows as plain dictionaries, None where a value is missing."""
        lists = [
            [None if x != x else x for x in column.tolist()]  # noqa: PLR0124
            for column in self.columns.values()
        ]
        return [dict(zip(self.columns, row, strict=True)) for row in zip(*lists, strict=True)]

    def shown(self) -> list[dict[str, Any]]:
        """The rows for people."""
        return self.records()

    def flat(self) -> list[dict[str, Any]]:
        """The rows with one value in each field."""
        return self.records()

    def table(self, wide: bool) -> Table:
        """The rows for a terminal, a wide one or not."""
        return rich(self.shown(), wide)

    def steps(self, policy: str | Policy | None = None) -> pl.DataFrame:
        """Every step of one policy, or of all of them, as a data frame.

        Raises:
            ReplayError: the policy is none of those replayed.
        """
        runs = self.runs if policy is None else [self.find(policy)]
        parts = [self._step_columns(run) for run in runs]
        return _frame({name: np.concatenate([part[name] for part in parts]) for name in parts[0]})

    def compare(self, a: str | Policy, b: str | Policy) -> Comparison:
        """How much faster a is than b, paired over prompts.

        Raises:
            ReplayError: one of them was not replayed, or there are no times.
        """
        first, second = self.find(a), self.find(b)
        names = str(first.policy), str(second.policy)
        return compared(names, first, second, self._confidence, self._seed)

    def __repr__(self) -> str:
        return f"<Result by {self.by}: {', '.join(str(run.policy) for run in self.runs)}>"

    def __str__(self) -> str:
        return in_text(rich(self.records(), wide=True), self.notes)

    def _repr_html_(self) -> str:
        return html(self.records()) + noted(self.notes)

    def find(self, policy: str | Policy) -> Run:
        """The run of a policy.

        Raises:
            ReplayError: it was not replayed.
        """
        names = [str(run.policy) for run in self.runs]
        if isinstance(policy, str) and policy in names:  # of a function too
            return self.runs[names.index(policy)]
        try:
            wanted = parse(policy) if isinstance(policy, str) else policy
        except PolicyError:  # the name of a function that was not replayed
            there = ", ".join(names)
            raise ReplayError(f"{policy} was not replayed; there is {there}") from None
        return self.runs[places(run.policy for run in self.runs)(wanted)]

    def _grouped(self, run: Run) -> Columns:
        """The rows of one policy, one for each group of sequences."""
        keys, group, n = groups(self._layout.trace, self.by)
        rows = fields(np.full(n, str(run.policy), object), *totals(run, group, n))
        if self.by != "sequence" and run.seconds is not None:
            ends = [self._interval(run, group == g) for g in range(n)]
            rows["speedup_lo"], rows["speedup_hi"] = np.array(ends).reshape(-1, 2).T
        return {**rows, **keys}

    def _interval(self, run: Run, some: np.ndarray) -> tuple[float, float]:
        assert run.seconds is not None
        baseline = run.seconds["baseline_s"][some]
        factors = run.spread and run.spread.baseline / run.spread.total
        level = self._confidence, self._seed
        return ratio_interval(baseline, run.total_s[some], *level, factors)

    @cached_property
    def _loops(self) -> list[str]:
        return remarks_of(self._layout.trace)

    def _few(self) -> list[str]:
        """What to say of the intervals, where there are any."""
        if self.by not in ("trace", "task"):
            return []
        if not any(run.seconds is not None and run.total_s.any() for run in self.runs):
            return []
        return few_below(n_prompts(self._layout.trace, self.by))

    def _untimed(self) -> list[str]:
        """What to say where a drafter that was attached has no times."""
        trace = self._layout.trace
        if trace.recording is None or any(run.seconds is not None for run in self.runs):
            return []
        if trace.recording.latency() is not None:
            name = trace.path.name if trace.path else "NAME"
            return [
                f"there are no times of its passes: take them (simkit latency --drafter {name}"
                " --out TRACE), or give --cost"
            ]
        return [
            "there are no times: the recording has none of its target (simkit latency, or calibrate"
            " with a draft model), so give --cost"
        ]

    def _step_columns(self, run: Run) -> Columns:
        """The rows of one policy, one for each step."""
        steps, seconds = run.steps()
        counts: Columns = {
            "steps": np.ones(len(steps), np.int64),
            "drafted": steps.drafted,
            "draft_passes": steps.draft_passes,
            "proposed": steps.proposed,
            "accepted": steps.accepted,
            "emitted": steps.emitted,
            "tokens": family_of(run.bound).tokens(steps.accepted, 1, steps.emitted),
        }
        number = self._layout.trace.sequences["sequence"].to_numpy()
        experts = self._layout.trace.manifest.experts
        read: Columns = {"experts": run.work(steps).experts} if experts else {}
        return {
            **fields(np.full(len(steps), str(run.policy), object), counts, seconds or {}),
            "sequence": number[steps.sequence],
            "step": steps.number,
            "start": steps.start,
            "draft_length": steps.proposed,
            **read,
        }


def _frame(columns: Columns) -> pl.DataFrame:
    import polars as pl

    return pl.DataFrame([series(name, values) for name, values in columns.items()])


def _uncommunicating(run: Run) -> str:
    """What to say of draft and target that run at once, where the cost lets them do so for free."""
    free = run.charge is not None and run.charge.communication_s == 0
    if not (free and run.bound.overlaps and run.seconds):
        return ""
    baseline_s, total_s = run.seconds["baseline_s"].sum(), run.total_s.sum()
    with_s = total_s + COMMUNICATION_S * run.counts["steps"].sum()
    if not total_s > 0:
        return ""
    speedup, with_speedup = f"{baseline_s / total_s:.3f}", f"{baseline_s / with_s:.3f}"
    if with_speedup == speedup:
        return ""
    return (
        f"{run.policy}: the cost has no time for communication between draft and target; at"
        f" {1e3 * COMMUNICATION_S:g} ms a step (PEARL Table 15) its speedup is"
        f" {with_speedup} in place of {speedup}"
    )


def _drafting(run: Run) -> tuple[str, bool, float]:
    """The policy, whether it drafts, and its speedup on all prompts; 1 if nothing takes time."""
    baseline_s = run.seconds["baseline_s"].sum() if run.seconds else 0.0
    total_s = run.total_s.sum()
    speedup = float(baseline_s / total_s) if total_s > 0 else 1.0
    return str(run.policy), bool(run.counts["drafted"].any()), speedup
