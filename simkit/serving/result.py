"""Runs of several controllers and loads, and what they come to, with intervals over prompts."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from simkit.errors import ServingError
from simkit.plot import Picture
from simkit.serving import measures
from simkit.serving.pools import Sample, bounds
from simkit.serving.run import ServingRun
from simkit.simulator.beyond import Beyond
from simkit.simulator.display import grid, in_text, noted, written
from simkit.surface import Plotted
from traces.messages import how_many

if TYPE_CHECKING:
    import polars as pl
    from rich.table import Table

Key = tuple[str, float, str]
SCHEDULE = (
    "controllers that read the batch or the clock are exact given the simulated schedule, which a"
    " real server may not follow"
)
_SHOWN = {
    "steady_tokens_s": "tokens/s",
    "user_tokens_s": "tokens/s/user",
    "ttft_s_p50": "TTFT p50 ms",
    "ttft_s_p99": "p99",
    "tpot_s_p50": "TPOT p50 ms",
    "tpot_s_p99": "p99",
    "batch": "batch",
    "length": "length",
    "tokens_step": "emitted/step",
    "goodput_s": "good/s",
}


class Served(Plotted):
    """Runs of controllers under loads.

    Attributes:
        runs: one for each controller, load and seed; controllers vary slowest.
        limits: that goodput is counted under, in seconds.
        confidence: of the intervals.
        notes: what a reader must know, one line each.
        warnings: of these, why numbers that rest on the times may be wrong.
        beyond: what lies beyond what was timed, of all runs.

    >>> import simkit
    >>> cost = "linear(draft_s=1, target_s=10, draft_per_token_s=0.01, target_per_token_s=0.1)"
    >>> served = simkit.serve("reference", "static(3)", cost, concurrency=[1, 4], requests=40)
    >>> served.frame["value"].to_list()
    [1.0, 4.0]
    """

    _picture = Picture("steady_tokens_s", ("drafter", "controller"), "value")

    def __init__(
        self,
        runs: Sequence[ServingRun],
        limits: Mapping[str, float] | None,
        confidence: float,
        notes: Sequence[str],
        warnings: Sequence[str],
        beyond: Sequence[Beyond],
    ) -> None:
        self.runs = list(runs)
        self.limits = dict(limits or {})
        self.confidence = confidence
        self.notes = list(notes)
        self.warnings = list(warnings)
        self.beyond = list(beyond)

    def __iter__(self) -> Iterator[ServingRun]:
        return iter(self.runs)

    def __repr__(self) -> str:
        return (
            f"<Served: {how_many(len(self._groups), 'setting')}, {how_many(len(self.runs), 'run')}>"
        )

    @cached_property
    def _numbers(self) -> list[dict[str, float]]:
        return [measures.summary(run, self.limits) for run in self.runs]

    @cached_property
    def _groups(self) -> dict[Key, list[int]]:
        found: dict[Key, list[int]] = {}
        for k, run in enumerate(self.runs):
            load, value, controller = _key(run).values()
            found.setdefault((load, value, controller), []).append(k)
        return found

    def records(self) -> list[dict[str, Any]]:
        """A row for each load and controller: means over seeds, `*_lo` and `*_hi` around them.

        The intervals are over prompts and seeds (`simkit.serving.pools`); null with one seed, and
        where all seeds give the same number. `prompts` is how many were served. `against` and
        `steady_against` are the ratios of `tokens_s` and `steady_tokens_s` to those of the first
        controller, seed by seed.
        """
        found = []
        first = str(self.runs[0].controller) if self.runs else ""
        for (kind, value, controller), members in self._groups.items():
            row: dict[str, Any] = {"load": kind, "value": value, "controller": controller}
            row |= {"seeds": len(members), "prompts": served([self.runs[k] for k in members])}
            sample = self.runs[members[0]].sample
            for name in self._numbers[members[0]]:
                values = np.array([self._numbers[k][name] for k in members])
                row |= _around(name, values, sample, self.confidence)
            pairs = list(zip(members, self._groups[kind, value, first], strict=True))
            for name, of in (("against", "tokens_s"), ("steady_against", "steady_tokens_s")):
                ratio = [self._numbers[k][of] / self._numbers[b][of] for k, b in pairs]
                row |= _around(name, np.array(ratio), sample, self.confidence)
            found.append(row)
        return found

    def surely_more(self, row: Mapping[str, Any], than: str, measure: str) -> bool:
        """Whether a row's controller has more of a measure than another, seed by seed.

        Args:
            row: of `records`.
            than: the other controller, under the same load.
            measure: such as steady_tokens_s.
        """
        at = row["load"], row["value"]
        members, others = self._groups[*at, row["controller"]], self._groups[*at, than]
        pairs = zip(members, others, strict=True)
        ratio = np.array([self._numbers[a][measure] / self._numbers[b][measure] for a, b in pairs])
        half, _ = self.runs[members[0]].sample.half(ratio, self.confidence)
        return half is not None and float(ratio.mean()) - half > 1

    def answer(self) -> str:
        """The outcome in one sentence, see `simkit.serving.answer`."""
        from simkit.serving.answer import answer

        return answer(self)

    @cached_property
    def frame(self) -> pl.DataFrame:
        """`records` as a frame."""
        import polars as pl

        return pl.DataFrame(self.records())

    @cached_property
    def seeds(self) -> pl.DataFrame:
        """The numbers of every run, a row each."""
        import polars as pl

        rows = []
        for run, numbers in zip(self.runs, self._numbers, strict=True):
            rows.append({**_key(run), "seed": run.seed, **numbers})
        return pl.DataFrame(rows)

    def requests(self) -> pl.DataFrame:
        """A row for each request of every run, see `measures.requests`."""
        return self._stacked(measures.requests)

    def iterations(self) -> pl.DataFrame:
        """A row for each iteration of every run, see `simkit.serving.state.ITERATION`."""
        return self._stacked(lambda run: run.iterations)

    def _stacked(self, of: Any) -> pl.DataFrame:
        import polars as pl

        parts = []
        for run in self.runs:
            columns = {k: np.ascontiguousarray(v) for k, v in of(run).items()}
            key = [pl.lit(v).alias(k) for k, v in {**_key(run), "seed": run.seed}.items()]
            parts.append(pl.DataFrame(columns).select(*key, pl.all()))
        return pl.concat(parts)

    def to_json(self) -> str:
        """`records`, one JSON list; what is not known is null."""
        return json.dumps([_plain(row) for row in self.records()], indent=1, ensure_ascii=False)

    def best(self, measure: str = "steady_tokens_s") -> pl.DataFrame:
        """Of each load the row whose controller has the most of a measure.

        Raises:
            ServingError: there is no such measure.
        """
        import polars as pl

        if measure not in self.frame.columns:
            raise ServingError(f"no measure {measure!r}: there is {', '.join(self._numbers[0])}")
        frame = self.frame
        if frame[measure].dtype.is_float():
            frame = frame.with_columns(pl.col(measure).fill_nan(None))
        ordered = frame.sort(measure, descending=True, nulls_last=True, maintain_order=True)
        return ordered.unique(["load", "value"], keep="first", maintain_order=True).sort("value")

    def table(self) -> Table:
        """For the terminal."""
        return written(*self._cells())

    def __str__(self) -> str:
        return in_text(self.table(), self.notes)

    def _repr_html_(self) -> str:
        return grid(*self._cells()) + noted(self.notes)

    def _cells(self) -> tuple[list[str], list[list[str]]]:
        shown = {k: v for k, v in _SHOWN.items() if k != "goodput_s" or self.limits}
        kind = self.runs[0].load.name if self.runs else "load"
        heads = ["controller", kind, *shown.values(), f"x {self.runs[0].controller}"]
        rows = []
        for row in self.records():
            cells = [row["controller"], f"{row['value']:g}"]
            for name in shown:
                scale = 1e3 if "_s_p" in name else 1.0
                cells.append(_number(row, name, scale))
            rows.append([*cells, _number(row, "steady_against", 1.0, 3)])
        return heads, rows


def _key(run: ServingRun) -> dict[str, Any]:
    """What tells the rows of tables apart."""
    load, controller = run.load, str(run.controller)
    return {"load": load.name, "value": load.value, "controller": controller}


def served(runs: Sequence[ServingRun]) -> int:
    """How many of a trace's prompts some runs served."""
    return len(np.unique(np.concatenate([run.server.sequence for run in runs])))


def _around(
    name: str, values: np.ndarray, sample: Sample, confidence: float
) -> dict[str, float | None]:
    """The mean over seeds, and the interval around it."""
    mean, (half, _) = float(values.mean()), sample.half(values, confidence)
    low, high = (None, None) if half is None else bounds(name, mean, half)
    return {name: mean, f"{name}_lo": low, f"{name}_hi": high}


def _number(row: Mapping[str, Any], name: str, scale: float, digits: int | None = None) -> str:
    value, low = row[name] * scale, row[f"{name}_lo"]
    if not np.isfinite(value):
        return "–"
    if digits is None:
        digits = 0 if value == 0 else max(0, 2 - int(np.floor(np.log10(abs(value)))))
    text = f"{value:.{digits}f}"
    return text if low is None else f"{text} ±{value - low * scale:.{digits}f}"


def _plain(row: Mapping[str, Any]) -> dict[str, Any]:
    return {k: None if isinstance(v, float) and not np.isfinite(v) else v for k, v in row.items()}
