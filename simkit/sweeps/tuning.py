"""A policy's arguments by cross-validation over prompts, and how fast they are on held-out ones."""

from __future__ import annotations

import io
import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from simkit.cluster import joined
from simkit.errors import PolicyError, ReplayError
from simkit.format_ratio import ratio
from simkit.plot import Picture
from simkit.policies import Grid, Policy, Setting
from simkit.simulator.arguments import (
    AnyCost,
    AnyPolicy,
    AnyTrace,
    check_confidence,
    listed,
    places,
    setting,
)
from simkit.simulator.beyond import Beyond
from simkit.simulator.display import grid, idle, in_text, noted, written
from simkit.simulator.fields import groups, n_prompts
from simkit.simulator.rule_time import said
from simkit.simulator.run import Run, rules_of
from simkit.simulator.step_costs import PARTS, free_heads
from simkit.statistics.enough import few_below
from simkit.statistics.interval import ratio_interval
from simkit.surface import Plotted
from simkit.sweeps.engine import Progress, check_far, replays
from simkit.sweeps.folds import DEALS, Deals, chosen, dealt, mean_of
from simkit.sweeps.grid import BY, settings
from traces.loops import remarks_of

if TYPE_CHECKING:
    import polars as pl

BEST = "best of all"
PROMPTS_ALONE = (
    "intervals cover the spread over prompts only; those of simkit replay also cover that of the"
    " timing samples"
)


class Choice(NamedTuple):
    """What cross-validation says of one family of settings, on one group of prompts.

    Attributes:
        spec: of the family, as it was given; "best of all" is the union of the given families.
        task: of the prompts; None for all tasks together.
        settings: how many settings there were to choose from.
        chosen: the fastest setting on all prompts.
        speedup: of the held-out prompts: each fold's baseline and total time with the setting that
            is fastest on the other folds, summed over all folds; the mean time over all deals.
        speedup_lo: lower end of its bootstrap interval over prompts, NaN for a single prompt.
        speedup_hi: upper end.
        in_sample: speedup of `chosen` on the prompts that it was chosen by, which flatters it.
        against: held-out total time of the tuned reference over that of this family: above 1 this
            family is faster.
        against_lo: lower end of its bootstrap interval, paired over prompts.
        against_hi: upper end.
        folds: in how many folds of all deals each setting was chosen, most often first.
    """

    spec: str
    task: str | None
    settings: int
    chosen: str
    speedup: float
    speedup_lo: float
    speedup_hi: float
    in_sample: float
    against: float
    against_lo: float
    against_hi: float
    folds: dict[str, int]


@dataclass(frozen=True, eq=False)
class Tuned(Plotted):
    """Families of policies, tuned and judged by cross-validation.

    Attributes:
        choices: one for each family and group, the reference first.
        reference: spec of the family that others are compared with.
        held_out: by family, (S,) seconds of each prompt under the setting that was chosen without
            its fold, the mean over the deals.
        held_out_parts: by family, the parts that sum to these seconds: prefill_s, draft_s,
            verify_s, policy_s, overhead_s.
        baseline_s: (S,) seconds of each prompt, decoded by the target alone.
        fold: (D, S) each prompt's fold in each deal.
        notes: what a reader of the numbers should know, one line each.
        beyond: what lies beyond what was timed, of the settings that folds chose.
        policies: the settings that were chosen on all prompts, by name.

    >>> import simkit
    >>> cost = "linear(draft_s=1, target_s=10)"
    >>> found = simkit.tune("reference", "fixed(1:4)", cost=cost, reference="fixed(1)")
    >>> found.best_policy
    Fixed(length=4, max_draft=40)
    """

    _picture = Picture("speedup", ("spec", "task"))

    choices: list[Choice]
    reference: str
    held_out: dict[str, np.ndarray]
    held_out_parts: dict[str, dict[str, np.ndarray]]
    baseline_s: np.ndarray
    fold: np.ndarray
    notes: tuple[str, ...] = ()
    beyond: tuple[Beyond, ...] = ()
    policies: Mapping[str, Policy] = field(default_factory=dict)

    def answer(self) -> str:
        """The outcome in one sentence, see `simkit.sweeps.answer`."""
        from simkit.sweeps.answer import of_tuned

        return of_tuned([c for c in self.choices if c.spec != BEST], self.reference)

    def records(self) -> list[dict[str, Any]]:
        """The choices as plain dictionaries, None where a value is missing."""
        return [
            {
                name: None if isinstance(value, float) and math.isnan(value) else value
                for name, value in choice._asdict().items()
            }
            for choice in self.choices
        ]

    @property
    def frame(self) -> pl.DataFrame:
        """The choices as a data frame; `folds` is a text."""
        import polars as pl

        rows = [row | {"folds": counted(row["folds"])} for row in self.records()]
        kinds = {"task": pl.String, "speedup_lo": pl.Float64, "speedup_hi": pl.Float64}
        kinds |= {"against_lo": pl.Float64, "against_hi": pl.Float64}
        return pl.DataFrame(rows, schema_overrides=kinds)

    def save(self, file: str | Path) -> None:
        """Write the frame as Parquet.

        Raises:
            TraceError: the file cannot be written.
        """
        from traces.outputs import write_atomic

        sink = io.BytesIO()
        self.frame.write_parquet(sink)
        write_atomic(Path(file), sink.getvalue())

    @property
    def best_policy(self) -> Policy:
        """The chosen setting of the family, over all prompts, that is fastest on held-out ones.

        Raises:
            ReplayError: tasks were tuned apart.
        """
        if any(choice.task is not None for choice in self.choices):
            raise ReplayError("tasks were tuned apart: each has its own choice, see choices")
        families = [choice for choice in self.choices if choice.spec != BEST]
        return self.policies[max(families, key=lambda choice: choice.speedup).chosen]

    def __repr__(self) -> str:
        of = (
            f"{c.chosen}{f' on {c.task}' if c.task else ''}: {ratio(c.speedup)}"
            for c in self.choices
        )
        return f"<Tuned: {', '.join(of)} held out>"

    def cells(self) -> tuple[list[str], list[list[str]]]:
        """Column heads, and the cells of each row, for people."""
        by_task = any(choice.task is not None for choice in self.choices)
        heads = ["policy", *(["task"] if by_task else []), "chosen", "held-out speedup"]
        heads += [f"against {self.reference}", "in-sample", "chosen in folds"]
        rows = [
            [
                *([c.spec, c.task or ""] if by_task else [c.spec]),
                c.chosen,
                ratio(c.speedup, c.speedup_lo, c.speedup_hi),
                ratio(c.against, c.against_lo, c.against_hi),
                ratio(c.in_sample),
                counted(c.folds),
            ]
            for c in self.choices
        ]
        return heads, rows

    def __str__(self) -> str:
        return in_text(written(*self.cells()), self.notes)

    def _repr_html_(self) -> str:
        return grid(*self.cells()) + noted(self.notes)


def counted(folds: dict[str, int]) -> str:
    """How often each setting was chosen, in words."""
    return ", ".join(f"{setting} × {n}" for setting, n in folds.items())


def tune(
    trace: AnyTrace,
    specs: AnyPolicy | Iterable[AnyPolicy],
    cost: AnyCost | None = None,
    folds: int = 5,
    seed: int = 0,
    by: Literal["trace", "task"] = "trace",
    reference: str | None = None,
    first_token: Literal["draft", "prefill"] = "draft",
    confidence: float = 0.95,
    workers: int | None = None,
    progress: Progress | None = None,
    deals: int = DEALS,
    ray: str | None = None,
) -> Tuned:
    """Choose arguments of policies by cross-validation over prompts.

    A fold's setting is the one with the least time of the prompts outside it. State that lasts a
    whole run goes through all prompts; `rate_optimal` fits its rate to all, scores out of fold.

    Args:
        trace: see `simkit.replay`.
        specs: families: "svip(h=0.1:1.0:0.05)", a policy, a function, `rule.grid(h=[0.1, 0.2])`.
        cost: see `simkit.replay`.
        folds: of prompts, random, stratified by task.
        seed: of the folds, and of the bootstrap.
        by: "task" tunes on each task's prompts apart.
        reference: family to compare with; None means "fixed(0:20)", or up to Γ if that is less.
        first_token: "draft" or "prefill".
        confidence: of the bootstrap intervals.
        workers: see `simkit.sweep`.
        progress: called as settings are done.
        deals: how often prompts are dealt into folds; times are means over the deals.
        ray: see `simkit.sweep`.

    Raises:
        PolicyError: a spec cannot be read, means too many settings, or needs the future.
        ReplayError: there are no times, or too few prompts for the folds.
        UserError: as `simkit.replay` does; the message names the setting.

    >>> simkit.tune("reference", "svip(h=0.4:0.8:0.2)").best_policy
    Fixed(length=4, max_draft=40)
    """
    check_confidence(confidence)
    where = setting(trace, cost, first_token)
    reference = reference or f"fixed(0:{min(20, where.layout.trace.max_draft)})"
    families = _families(specs, reference)
    search = _Search(where, by, folds, seed, deals)
    found = search.on(ray, families, workers, progress)
    return _tuned(search, found, reference, (confidence, seed), workers)


def _tuned(
    search: _Search,
    found: dict[str, _Family],
    reference: str,
    interval: tuple[float, int],
    workers: int | None,
) -> Tuned:
    """Families judged by their reference; of the intervals, confidence and seed."""
    choices = [
        _judged(search, family, found[reference], g, interval)
        for g in range(len(search.names))
        for family in found.values()
    ]
    runs = _chosen(found, search.where, workers)
    settings = {str(policy): policy for family in found.values() for policy in family.policies}
    return Tuned(
        choices,
        reference,
        held_out={spec: family.held_s for spec, family in found.items()},
        held_out_parts=_parts(found, runs),
        baseline_s=search.baseline_s,
        fold=search.fold,
        notes=_notes(search, found, choices, runs),
        beyond=tuple(one for run in runs.values() for one in run.beyond),
        policies={choice.chosen: settings[choice.chosen] for choice in choices},
    )


def _notes(
    search: _Search,
    found: dict[str, _Family],
    choices: list[Choice],
    runs: dict[str, Run],
) -> tuple[str, ...]:
    """What a reader of the numbers should know, one line each."""
    where = search.where
    drafts = {spec: _drafts(family, runs) for spec, family in found.items()}
    rows = [(c.spec, drafts[c.spec], c.speedup) for c in choices if c.spec != BEST]
    remarks = where.charge.remarks if where.charge else []
    if where.charge and where.charge.times.drawn_anew(1):
        remarks = [*remarks, PROMPTS_ALONE]
    fits = dict.fromkeys(run.policy.remark(where) for run in runs.values()) if where.charge else {}
    return (
        *remarks,
        *(str(one) for run in runs.values() for one in run.beyond),
        *free_heads((run.charge, run.policy) for run in runs.values()),
        *said(rules_of(runs.values())),
        *(f"{line}, including the held-out ones" for line in fits if line),
        *idle(rows),
        *few_below(n_prompts(where.layout.trace, search.by)),
        *remarks_of(where.layout.trace),
    )


class _Family(NamedTuple):
    """What was found for one family: its settings, `total_s` (n, S), and what was chosen.

    `best` has, for each group of prompts, the setting chosen without each fold of each deal,
    `shares` in which share of the deals each prompt has a setting, and `held_s` (S,) its seconds.
    """

    spec: str
    policies: list[Policy]
    total_s: np.ndarray
    best: list[np.ndarray]
    shares: dict[int, np.ndarray]
    held_s: np.ndarray


class _Search:
    """The prompts of a trace in groups and folds, and the choice of settings on them.

    Raises:
        ReplayError: there are no times, or a group has fewer prompts than folds.
    """

    def __init__(self, where: Setting, by: str, folds: int, seed: int, deals: int) -> None:
        if by not in BY:
            raise ReplayError(f"by must be trace or task, not {by!r}")
        if where.charge is None:
            raise ReplayError("tuning needs times: give a cost")
        if not where.charge.baseline_s.any():
            raise ReplayError("tuning needs times: under this cost nothing takes any")
        trace = where.layout.trace
        _, task, _ = groups(trace, "task")
        keys, self.group, n = groups(trace, by)
        self.names: list[str | None] = keys["task"].tolist() if keys else [None] * n
        self.where, self.by = where, by
        self.baseline_s = where.charge.baseline_s
        self.deals: list[Deals] = []
        for g, name in enumerate(self.names):
            rows = self.group == g
            try:
                one = dealt(task[rows], folds, seed, deals, trace.prompt_numbers[rows])
            except ReplayError as error:
                raise ReplayError(f"task {name}: {error}" if name else str(error)) from None
            fold = np.full((len(one.fold), len(task)), -1)
            fold[:, rows] = one.fold
            self.deals.append(Deals(fold, folds))
        self.fold = np.max([one.fold for one in self.deals], axis=0)

    def on(
        self,
        ray: str | None,
        families: dict[str, list[Policy]],
        workers: int | None,
        progress: Progress | None,
    ) -> dict[str, _Family]:
        """Replay every setting once, over a cluster if there is an address, and choose."""
        check_far(self.where, ray)
        policies = settings(policy for family in families.values() for policy in family)
        place = places(policies)
        total_s = np.empty((len(policies), self.fold.shape[1]))
        with joined(ray, workers) as cluster:
            for k, run in enumerate(replays(policies, self.where, workers, progress, cluster)):
                total_s[k] = run.total_s
        found = {}
        for spec, family in families.items():
            mine = total_s[[place(policy) for policy in family]]
            best, shares = self._choose(mine)
            held_s = mean_of([mine[k] for k in shares], [*shares.values()])
            found[spec] = _Family(spec, family, mine, best, shares, held_s)
        return found

    def _choose(self, total_s: np.ndarray) -> tuple[list[np.ndarray], dict[int, np.ndarray]]:
        best, shares = [], {}
        for deals in self.deals:
            outside_s = np.stack([deals.outside(one) for one in total_s])
            fastest, mine = chosen(outside_s, deals, total_s.shape[1])
            best.append(fastest)
            for k, share in mine.items():
                shares[k] = shares.get(k, 0) + share  # groups share no prompt
        return best, shares


def _judged(
    search: _Search,
    mine: _Family,
    reference: _Family,
    g: int,
    interval: tuple[float, int],
) -> Choice:
    """One family on one group of prompts."""
    rows = search.group == g
    baseline_s, held_s, other_s = search.baseline_s[rows], mine.held_s[rows], reference.held_s[rows]
    on_all = mine.total_s[:, rows].sum(1)
    chosen = Counter(str(mine.policies[k]) for k in mine.best[g])
    return Choice(
        mine.spec,
        search.names[g],
        len(mine.policies),
        str(mine.policies[on_all.argmin()]),
        _ratio(baseline_s.sum(), held_s.sum()),
        *ratio_interval(baseline_s, held_s, *interval),
        _ratio(baseline_s.sum(), on_all.min()),
        _ratio(other_s.sum(), held_s.sum()),
        *ratio_interval(other_s, held_s, *interval),
        dict(chosen.most_common()),
    )


def _chosen(found: dict[str, _Family], where: Setting, workers: int | None) -> dict[str, Run]:
    """The settings that some fold chose, run once more, by name."""
    chosen = {str(f.policies[k]): f.policies[k] for f in found.values() for k in f.shares}
    return {str(run.policy): run for run in replays([*chosen.values()], where, workers)}


def _drafts(family: _Family, runs: dict[str, Run]) -> bool:
    """Whether any setting that some fold chose drafts anything."""
    chosen = (runs[str(family.policies[k])] for k in family.shares)
    return any(run.counts["drafted"].any() for run in chosen)


def _parts(found: dict[str, _Family], runs: dict[str, Run]) -> dict[str, dict[str, np.ndarray]]:
    """The parts of each family's held-out seconds."""
    parts = {}
    for spec, family in found.items():
        times = [runs[str(family.policies[k])].seconds or {} for k in family.shares]
        shares = [*family.shares.values()]
        parts[spec] = {part: mean_of([one[part] for one in times], shares) for part in PARTS}
    return parts


def _families(specs: AnyPolicy | Iterable[AnyPolicy], reference: str) -> dict[str, list[Policy]]:
    """The settings of each family by its spec, the reference first, the union of all last."""
    families = {reference: settings(reference)}
    given = []
    for each in listed(specs):
        family = settings([each])
        spec = str(each).strip() if isinstance(each, str | Grid) else str(family[0])
        if families.setdefault(spec, family) != family:
            raise ReplayError(f"two different families are both called {spec}")
        given.append(spec)
    if not given:
        raise ReplayError("there is no policy to tune")
    for policy in (policy for family in families.values() for policy in family):
        if policy.needs_future:
            raise PolicyError(f"{policy} needs the future: it is a bound, and cannot be tuned")
    if len(set(given)) > 1:
        union = [policy for spec in dict.fromkeys(given) for policy in families[spec]]
        families[BEST] = settings(union)
    return families


def _ratio(top: float, bottom: float) -> float:
    return float(top / bottom) if bottom > 0 else math.nan
