"""What a replay of a log gives: intervals, by length and by depth; never a number alone."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from simkit.costs.base import Model
from simkit.drafters.log import LogOutputs
from simkit.errors import ReplayError
from simkit.policies import Policy
from simkit.simulator.arguments import AnyCost, setting
from simkit.simulator.beyond import EXTRAPOLATED, more_tokens
from simkit.simulator.display import grid, in_text, noted, written
from simkit.simulator.fields import Columns
from simkit.simulator.logged import Interval, LogReplay, StepLog, length_of
from simkit.simulator.result import Result
from simkit.simulator.step_costs import Charge
from simkit.statistics.enough import few_below
from traces.messages import how_many
from traces.trace import Trace

if TYPE_CHECKING:
    from rich.table import Table

KINDS = ("band", "cut", "any")
_SAID = {
    "band": "band: {level:.0%} for requests like these (Kaplan and Meier, bootstrap over requests)."
    " It assumes that starts not logged behave like those logged, and that drafts were cut short"
    " for reasons unrelated to acceptance. It goes from 0 to all at depths that no draft reached",
    "cut": "cut: bounds for the logged starts only, whatever cut their drafts short: a draft that"
    " was accepted whole counts as rejected next, or as accepted to the end",
    "any": "any: bounds for these outputs, whatever the log leaves out, starts that were not logged"
    " included{shared}",
}


class Intervals(Result):
    """Intervals of policies of a fixed length, from a log of steps.

    Attributes:
        replayed: one for each policy, in order.
    """

    def __init__(
        self, log: StepLog, policies: Iterable[Policy], confidence: float, seed: int
    ) -> None:
        super().__init__(LogOutputs(log.trace), [], "trace", confidence, seed)
        self.log = log
        self.replayed = [log.replay(policy) for policy in policies]

    @cached_property
    def columns(self) -> Columns:
        """The fields as arrays, a row for each policy and depth; NaN and None are missing."""
        rows = self.flat()
        return {name: _column([row[name] for row in rows]) for name in rows[0]}

    def flat(self) -> list[dict[str, Any]]:
        """The rows as plain dictionaries, one for each policy and depth."""
        rows = []
        for record in self.records():
            depths = record.pop("accepted_by_depth")
            rows += [{**record, **depth} for depth in depths or [{}]]
        names = dict.fromkeys(name for row in rows for name in row)
        return [{name: row.get(name) for name in names} for row in rows]

    def records(self) -> list[dict[str, Any]]:
        """An object for each policy; `accepted_by_depth` holds one for each depth."""
        return [self._record(found) for found in self.replayed]

    def cells(self) -> tuple[list[str], list[list[str]]]:
        """Column heads, and the cells of each row: a policy, and then its depths."""
        heads = ["policy", *(f"{what}, {kind}" for what in ("tokens/step",) for kind in KINDS)]
        heads += [f"speedup, {kind}" for kind in KINDS if self.log.charge]
        heads += ["steps at risk"]
        rows = []
        for found in self.replayed:
            measures = [found.tokens_per_step, *([found.speedup] if found.speedup else [])]
            cells = [_shown(measure[kind]) for measure in measures for kind in KINDS]
            rows.append([str(found.policy), *cells, f"{len(self.log.drafted):,}"])
            empty = [""] * (len(heads) - 5)
            for depth, (marginal, seen) in enumerate(
                zip(found.marginal, found.at_risk, strict=True), start=1
            ):
                shares = [_shown(marginal[kind]) for kind in ("band", "cut")]
                rows.append([f"  P(a ≥ {depth})", *shares, "", *empty, f"{seen:,}"])
        return heads, rows

    @property
    def notes(self) -> list[str]:
        """What a reader of the intervals should know, one line each."""
        shared = ", where one draft model's verdicts do not depend on where its drafts start"
        is_shared = self.log.trace.manifest.shared_path
        said = [
            _SAID[kind].format(level=self._confidence, shared=shared if is_shared else "")
            for kind in KINDS
        ]
        whole = int((self.log.accepted == self.log.drafted).sum())
        steps = len(self.log.drafted)
        if not self.log.trace.manifest.totals:
            said.append(
                f"{whole:,} of {how_many(steps, 'logged step')} accepted all they had drafted,"
                " which locates"
                " no rejection; steps begin behind the prefill's token"
            )
        source = self.log.trace.manifest.source
        said += source.notes if source else ()
        said += few_below({None: self.log.n_requests})
        charge = self.log.charge
        return said if charge is None else [*said, *charge.remarks, *self._beyond(charge)]

    def _beyond(self, charge: Charge) -> list[str]:
        """Whose whole drafts take passes over more tokens than were timed."""
        found = []
        for one in self.replayed:
            length = length_of(one.policy)
            passes: dict[Model, int] = {"target": length + 1}
            passes["draft"] = int(charge.drafting.widest(np.array(length)))
            for model, tokens in passes.items():
                most = charge.times.most_tokens(model)
                if most is not None and tokens > most:
                    more = more_tokens(model, most)
                    found.append(f"{one.policy}: with a whole draft {more}: {EXTRAPOLATED}")
        return found

    def shown(self) -> list[dict[str, Any]]:
        """The rows for people."""
        heads, rows = self.cells()
        return [dict(zip(heads, row, strict=True)) for row in rows]

    def find(self, policy: str | Policy) -> Any:
        """Runs are what a log does not give.

        Raises:
            ReplayError: always.
        """
        raise ReplayError("a log gives intervals, and no steps of other lengths")

    def __repr__(self) -> str:
        return f"<Intervals: {', '.join(str(found.policy) for found in self.replayed)}>"

    def __str__(self) -> str:
        return in_text(self.table(wide=True), self.notes)

    def table(self, wide: bool) -> Table:
        """For a terminal; there is but one width."""
        return written(*self.cells(), break_heads=False)

    def _repr_html_(self) -> str:
        return grid(*self.cells()) + noted(self.notes)

    def _record(self, found: LogReplay) -> dict[str, Any]:
        record: dict[str, Any] = {
            "policy": str(found.policy),
            "requests": self.log.n_requests,
            "logged_steps": len(self.log.drafted),
            "deepest_drafted": self.log.deepest,
        }
        for kind in KINDS:
            low, high = found.tokens_per_step[kind]
            record |= _ends("tokens_per_step", kind, Interval(low, high))
            record |= _ends("accepted_per_step", kind, Interval(low - 1, high - 1))
        for kind in KINDS:
            none = Interval(np.nan, np.nan)
            record |= _ends("speedup", kind, found.speedup[kind] if found.speedup else none)
        record["accepted_by_depth"] = [
            {
                "depth": depth,
                "at_risk": seen,
                **_ends("marginal", "band", marginal["band"]),
                **_ends("marginal", "cut", marginal["cut"]),
            }
            for depth, (marginal, seen) in enumerate(
                zip(found.marginal, found.at_risk, strict=True), start=1
            )
        ]
        return record


def logged(
    trace: Trace,
    policies: list[Policy],
    cost: AnyCost | None,
    by: str,
    confidence: float,
    seed: int,
) -> Intervals:
    """Replay policies on a log of steps; the arguments are those of `simkit.replay`.

    Raises:
        ReplayError: rows other than by trace, or a policy whose length is not fixed.
        CostError: the cost cannot be read, or does not fit the trace.
    """
    if by != "trace":
        raise ReplayError(f"a log gives one interval a policy, by trace, not by {by}")
    for policy in policies:
        length_of(policy)
    where = setting(trace, cost, "prefill", LogOutputs(trace))
    return Intervals(StepLog(trace, where.charge, confidence, seed), policies, confidence, seed)


def _ends(name: str, kind: str, interval: Interval) -> dict[str, float | None]:
    low, high = (None if np.isnan(end) else float(end) for end in interval)
    return {f"{name}_{kind}_lo": low, f"{name}_{kind}_hi": high}


def _shown(interval: Interval) -> str:
    if np.isnan(interval.low):
        return "–"
    return f"[{interval.low:.3f}, {interval.high:.3f}]"


def _column(values: list[Any]) -> np.ndarray:
    if any(isinstance(value, str) for value in values):
        return np.array([*values, None], object)[:-1]
    if any(value is None or isinstance(value, float) for value in values):
        return np.array([np.nan if value is None else value for value in values], np.float64)
    return np.array(values, np.int64)
