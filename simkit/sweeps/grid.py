"""All settings of policies on one trace, side by side."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import fields as dataclass_fields
from dataclasses import is_dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from simkit.cluster import joined
from simkit.costs import CostModel
from simkit.costs.base import RuleTime
from simkit.errors import PolicyError, ReplayError
from simkit.format_ratio import ratio
from simkit.policies import FunctionPolicy, Grid, Policy, Setting, expand
from simkit.simulator.arguments import (
    FIRST,
    AnyCost,
    AnyPolicy,
    AnyTrace,
    check_confidence,
    check_seed,
    distinct,
    listed,
    policy_of,
    setting,
)
from simkit.simulator.beyond import Beyond, together
from simkit.simulator.fields import FIELDS, Columns, fields, groups, series, totals
from simkit.simulator.rule_time import said
from simkit.simulator.run import Run
from simkit.simulator.step_costs import free_heads
from simkit.statistics.interval import ratio_interval
from simkit.surface import Plotted
from simkit.sweeps.engine import Progress, check_far, replays
from traces.loops import remarks_of
from traces.messages import how_many
from traces.versions import installed_version

if TYPE_CHECKING:
    import polars as pl

MOST = 100_000  # settings in one sweep
BY = ("trace", "task")
SHOWN = 40  # rows of a table for people; of a longer one the fastest are shown
FASTEST = 10


class Sweep(Plotted):
    """Counts and times of many settings on one trace, one row for each setting and group.

    Attributes:
        policies: the settings, in order.
        columns: the fields of a replay, NaN where a value is missing; with `by="task"` also task.
        facts: what the numbers hold for: trace, hash, cost, first_token, by, version, notes.
        notes: what a reader of the numbers should know, one line each.

    >>> import simkit
    >>> cost = "linear(draft_s=1, target_s=10)"
    >>> found = simkit.sweep("reference", ["fixed(1:3)", "svip(h=0.4:0.8:0.4)"], cost=cost)
    >>> found.frame["policy"].to_list()
    ['fixed(1)', 'fixed(2)', 'fixed(3)', 'svip(h=0.4)', 'svip(h=0.8)']
    """

    def __init__(self, policies: list[Policy], columns: Columns, facts: dict[str, Any]) -> None:
        self.policies = policies
        self.columns = columns
        self.facts = facts
        self.notes: list[str] = facts["notes"]

    @cached_property
    def frame(self) -> pl.DataFrame:
        """The rows: the fields of a replay, task, family (the policy's name), its arguments.

        An argument that a family does not have is null there. One that has the name of a field is
        called family.argument.
        """
        import polars as pl

        rows = [series(name, values) for name, values in self.columns.items()]
        repeats = len(self) // max(1, len(self.policies))
        for name, values in _arguments(self.policies).items():
            repeated = [value for value in values for _ in range(repeats)]
            rows.append(pl.Series(name, repeated, _type(values), strict=False))
        return pl.DataFrame(rows)

    @property
    def timed(self) -> bool:
        """Whether there are times."""
        return self.facts["cost"] is not None

    def best(self, n: int = 1) -> pl.DataFrame:
        """The n fastest settings, fastest first; of each task, if the rows are by task.

        Raises:
            ReplayError: there are no times.
        """
        if not self.timed:
            raise ReplayError("there are no times to choose by: give a cost")
        fastest = self.frame.sort("speedup", descending=True, nulls_last=True, maintain_order=True)
        if "task" not in fastest.columns:
            return fastest.head(n)
        return fastest.group_by("task", maintain_order=True).head(n).select(fastest.columns)

    def answer(self) -> str:
        """The outcome in one sentence, see `simkit.sweeps.answer`."""
        from simkit.sweeps.answer import of_sweep

        return of_sweep(self)

    def records(self) -> list[dict[str, Any]]:
        """The rows as plain dictionaries, None where a value is missing."""
        return self.frame.to_dicts()

    def save(self, file: str | Path) -> None:
        """Write the frame as Parquet, with `facts` in its metadata under the key "simkit".

        Raises:
            TraceError: the file cannot be written.
        """
        import pyarrow as pa
        import pyarrow.parquet as pq

        from traces.outputs import write_atomic

        sink = pa.BufferOutputStream()
        table = self.frame.to_arrow().replace_schema_metadata({"simkit": json.dumps(self.facts)})
        pq.write_table(table, sink, compression="zstd")
        write_atomic(Path(file), sink.getvalue().to_pybytes())

    def __len__(self) -> int:
        return len(self.columns["policy"])

    def __repr__(self) -> str:
        said = f"<Sweep by {self.facts['by']}: {how_many(len(self.policies), 'setting')}"
        speedups = self.columns["speedup"]
        if self.facts["by"] != "trace" or np.isnan(speedups).all():
            return f"{said}>"
        k = int(np.nanargmax(speedups))
        return f"{said}, fastest {self.policies[k]}: {ratio(float(speedups[k]))}>"

    def __str__(self) -> str:
        from simkit.simulator.display import in_text, rich

        some, note = self._for_people()
        return in_text(rich(some, wide=True), [*([note] if note else []), *self.notes])

    def _repr_html_(self) -> str:
        from simkit.simulator.display import html, noted

        some, note = self._for_people()
        return html(some) + (f"<p>{note}</p>" if note else "") + noted(self.notes)

    def _for_people(self) -> tuple[list[dict[str, Any]], str]:
        """Rows that fit on a page, and which of all they are; nothing where they are all."""
        if len(self) <= SHOWN:
            return self.records(), ""
        some = self.best(FASTEST) if self.timed else self.frame.head(SHOWN)
        which = "fastest" if self.timed else "first"
        note = f"{how_many(len(self.policies), 'setting')}, the {which} of them. All: .frame"
        return some.to_dicts(), note


def sweep(
    trace: AnyTrace,
    specs: AnyPolicy | Iterable[AnyPolicy],
    cost: AnyCost | None = None,
    by: Literal["trace", "task"] = "trace",
    first_token: Literal["draft", "prefill"] = "draft",
    workers: int | None = None,
    intervals: bool = False,
    confidence: float = 0.95,
    seed: int = 0,
    progress: Progress | None = None,
    ray: str | None = None,
) -> Sweep:
    """Replay every setting of policies on a trace; each number is the one that `replay` gives.

    Args:
        trace: a recorded pair; or its folder, or a bundled trace's name.
        specs: specs with ranges such as "svip(h=0.1:1.0:0.05)", policies, or functions.
        cost: see `replay`.
        by: what one row stands for.
        first_token: see `replay`.
        workers: threads that replay; None means one for each core that this process may use.
        intervals: whether to bootstrap the speedups' intervals, far longer than the replays.
        confidence: of these intervals.
        seed: of the bootstrap.
        progress: called with the number of settings done, and of all.
        ray: address of a Ray cluster of at most so many workers; see `simkit.cluster.joined`.

    Raises:
        PolicyError: a spec cannot be read, or there are more than 100,000 settings.
        UserError: as `replay` does; the message names the setting.

    >>> simkit.sweep("reference", "fixed(1:4)").best()["policy"].to_list()
    ['fixed(4)']
    """
    _check(by, confidence, seed)
    policies = settings(specs)
    where = setting(trace, cost, first_token)
    check_far(where, ray)
    rules: dict[str, tuple[Policy, RuleTime]] = {}
    beyond: list[Beyond] = []
    with joined(ray, workers) as cluster:
        runs = _watched(replays(policies, where, workers, progress, cluster), rules, beyond)
        interval = (confidence, seed) if intervals else None
        columns = _columns(runs, len(policies), where, by, interval)
    remarks = where.charge.remarks if where.charge else []
    notes = [*remarks, *together(beyond), *free_heads((where.charge, one) for one in policies)]
    notes += [*said(rules.values()), *remarks_of(where.layout.trace)]
    return Sweep(policies, columns, _facts(where, cost, by) | {"notes": notes})


def _check(by: str, confidence: float, seed: int) -> None:
    if by not in BY:
        raise ReplayError(f"by must be trace or task, not {by!r}")
    check_confidence(confidence)
    check_seed(seed)


def _watched(
    runs: Iterable[Run], rules: dict[str, tuple[Policy, RuleTime]], beyond: list[Beyond]
) -> Iterator[Run]:
    """The runs as they come, noting how rules were timed and what lies beyond what was timed."""
    for run in runs:
        beyond += run.beyond
        if run.policy.timed_as not in rules and (taken := run.rule_time):
            rules[run.policy.timed_as] = run.policy, taken
        yield run


def settings(specs: AnyPolicy | Iterable[AnyPolicy]) -> list[Policy]:
    """The policies that specs with ranges mean, each once.

    Raises:
        PolicyError: a spec cannot be read, or there are more than `MOST`.
        ReplayError: there is none.
    """
    found: list[Policy] = []
    for given in listed(specs):
        grid = isinstance(given, Grid)
        some = given if grid else policy_of(given, lambda text: expand(text, MOST))
        found += [some] if isinstance(some, Policy) else some
        if len(found) > MOST:
            raise PolicyError(f"the specs mean more than {MOST} settings: {len(found)} by {given}")
    if not found:
        raise ReplayError("there is no policy to replay")
    return distinct(found)


def _columns(
    runs: Iterable[Run], n_runs: int, where: Setting, by: str, interval: tuple[float, int] | None
) -> Columns:
    """The rows of all runs, of which no more than one need be there at a time."""
    keys, group, n = groups(where.layout.trace, by)
    names: list[str] = []
    parts: list[tuple[Columns, Columns]] = []
    ends = np.full((n_runs, n, 2), np.nan)
    for k, run in enumerate(runs):
        names.append(str(run.policy))
        parts.append(totals(run, group, n))
        if interval and run.seconds is not None:
            for g in range(n):
                some = group == g
                pair = run.seconds["baseline_s"][some], run.total_s[some]
                factors = run.spread and run.spread.baseline / run.spread.total
                ends[k, g] = ratio_interval(*pair, *interval, factors)
    columns = fields(np.repeat(np.array(names, object), n), *map(_joined, zip(*parts, strict=True)))
    columns["speedup_lo"], columns["speedup_hi"] = ends.reshape(-1, 2).T
    return columns | {name: np.tile(values, n_runs) for name, values in keys.items()}


def _joined(parts: tuple[Columns, ...]) -> Columns:
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def _arguments(policies: list[Policy]) -> dict[str, list[Any]]:
    """The family of each policy, and the arguments of its spec."""
    columns: dict[str, list[Any]] = {"family": [policy.name for policy in policies]}
    for k, policy in enumerate(policies):
        if isinstance(policy, FunctionPolicy) or not is_dataclass(policy):
            continue
        for name in (f.name for f in dataclass_fields(policy) if f.init):
            taken = name in FIELDS or name in ("task", "family")
            column = f"{policy.name}.{name}" if taken else name
            columns.setdefault(column, [None] * len(policies))[k] = getattr(policy, name)
    return columns


def _type(values: list[Any]) -> Any:
    """The narrowest type that holds all values of a column."""
    import polars as pl

    kinds = {type(value) for value in values} - {type(None)}
    if kinds <= {bool}:
        return pl.Boolean
    if kinds <= {int}:
        return pl.Int64
    return pl.Float64 if kinds <= {int, float} else pl.String


def _facts(where: Setting, cost: AnyCost | None, by: str) -> dict[str, Any]:
    trace = where.layout.trace
    model = "measured" if cost is None and where.charge else cost
    return {
        "trace": trace.place,
        "hash": trace.hash,
        "cost": repr(model) if isinstance(model, CostModel) else model,
        "first_token": {first: name for name, first in FIRST.items()}[where.first],
        "by": by,
        "version": installed_version("draft-simkit"),
    }
