"""A figure in the making: what all do with their trace, Axes, rows and notes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import polars as pl
from matplotlib.axes import Axes

from analysis import labelled_replays
from analysis.figures.drawing.captions import caption
from analysis.figures.drawing.legends import below
from analysis.figures.drawing.marks import points
from analysis.figures.drawing.styles import ink
from analysis.figures.rows import Row, Value, cells, frame, missing
from analysis.groups import By, Groups
from analysis.replays import Replayed, Replays, of
from analysis.series_styles import SeriesStyle, beside_listed, of_policy
from analysis.stats import Estimate
from analysis.stats.binned import Curve
from analysis.study import Study
from simkit.policies import Policy
from simkit.simulator.arguments import AnyCost
from traces.messages import how_many
from traces.trace import Trace


def bounds(policy: Policy) -> bool:
    """Whether the prophet of chains is at least as fast as a policy."""
    return policy.family == "chain"


class Plot:
    """A figure in the making.

    Attributes:
        study: of the trace; see `analysis.study.Study`.
        ax: to draw on.
        rows: of the frame: every number that is drawn.
        notes: what the picture does not say, first of all where intervals are missing.
        gone: what is left out, with the reason; said behind the notes.
        nothing: why the figure says nothing of this trace; empty if it says something.
        by: what is shown side by side.
        policies: specs that are tuned and shown beside the figure's own, by their labels.
    """

    def __init__(
        self, study: Study, ax: Axes, by: By = "task", policies: Mapping[str, str] | None = None
    ) -> None:
        self.study = study
        self.by: By = by
        self.policies = dict(policies or {})
        self.ax = ax
        self.rows: list[Row] = []
        self.notes: list[str] = []
        self.gone: list[str] = []
        self.nothing = ""

    @property
    def trace(self) -> Trace:
        """The study's."""
        return self.study.trace

    @cached_property
    def groups(self) -> Groups:
        """The trace's tasks, or spans: see `analysis.groups`."""
        return Groups(self.trace, self.by)

    @property
    def prompts(self) -> str:
        """How many there are, in words."""
        return how_many(self.trace.n_sequences, "prompt")

    @property
    def sampling(self) -> str:
        """How outputs were drawn, in a word."""
        return "greedy" if self.trace.sampler.greedy else "sampled"

    @property
    def frame(self) -> pl.DataFrame:
        """The rows; what one lacks is null."""
        return frame(self.rows)

    def under(self, cost: AnyCost | None) -> Replays:
        """Replays under a cost, and what follows from its times."""
        return of(self.study, cost)

    def replays(
        self, specs: Mapping[str, str], cost: AnyCost | None = None, timed: bool = True
    ) -> dict[str, Replayed]:
        """See `labelled_replays.replays`; what the trace cannot give is noted."""
        found, why = labelled_replays.replays(self.study, specs, cost, timed)
        self.gone += labelled_replays.without(why)
        return found

    def tuned(
        self,
        families: Mapping[str, str | tuple[str, ...]],
        cost: AnyCost | None = None,
        bounded: bool = False,
    ) -> dict[str, Replayed]:
        """See `labelled_replays.tuned`, of `policies` too; what the trace cannot give is noted.

        Args:
            families: by label.
            cost: see `simkit.replay`.
            bounded: of `policies` only those that the prophet of chains bounds.
        """
        found, gone = labelled_replays.tuned(self.study, {**families, **self.policies}, cost)
        self.gone += gone
        beyond = {
            label: "the prophet, which is of chains, does not bound it"
            for label in self.policies
            if bounded and label in found and not bounds(found[label].policy)
        }
        self.gone += labelled_replays.without(beyond)
        return {label: one for label, one in found.items() if label not in beyond}

    def look(self, label: str, spec: str) -> SeriesStyle:
        """Of a policy its own; of one of `policies` one that the figure's own do not have."""
        return beside_listed(self.policies).get(label) or of_policy(spec)

    def cost_name(self, cost: AnyCost | None) -> str:
        """The cost in words, for the caption; see `labelled_replays.cost_name`."""
        return labelled_replays.cost_name(self.study, cost)

    def points(
        self,
        at: Sequence[float] | np.ndarray,
        found: Sequence[Estimate],
        of: Iterable[object] | None = None,
        sideways: bool = False,
        **how: Any,
    ) -> None:
        """Draw estimates with their intervals, and note where those are missing.

        Args:
            at: where, along the other axis.
            found: as many estimates.
            of: what each is of, for the notes.
            sideways: whether values run along x.
            how: see `drawing.marks.points`.
        """
        points(self.ax, at, found, sideways, **how)
        self.missing(found, of)

    def series(
        self,
        at: Sequence[float] | np.ndarray,
        found: Sequence[Estimate],
        facts: Iterable[Mapping[str, Value]],
        name: str = "value",
        of: Iterable[object] | None = None,
        **how: Any,
    ) -> None:
        """Draw estimates as `points` does, and keep each as a row: its facts, then NAME."""
        self.points(at, found, of, **how)
        self.keep(facts, found, name)

    def curve(
        self,
        found: Curve,
        facts: Mapping[str, Value],
        column: str,
        name: str = "value",
        **how: Any,
    ) -> None:
        """Draw a curve as `series` does; a bin's row has its mean of x under COLUMN."""
        each = [
            {**facts, column: float(x), "rows": int(n)}
            for x, n in zip(found.x, found.rows, strict=True)
        ]
        self.series(found.x, found.y, each, name, **how)

    def keep(
        self, facts: Iterable[Mapping[str, Value]], found: Sequence[Estimate], name: str = "value"
    ) -> None:
        """Rows of the frame: what each estimate is of, then the estimate under NAME."""
        self.rows += [{**row, **cells(e, name)} for row, e in zip(facts, found, strict=True)]

    def missing(self, found: Iterable[Estimate], of: Iterable[object] | None = None) -> None:
        """Note which estimates have no interval, or a weak one."""
        self.notes += missing(found, of)

    def line_at_1(self) -> None:
        """Where a ratio that runs along y is one."""
        self.ax.axhline(1, color=ink(), linewidth=0.8)

    def below(self, columns: int = 3) -> None:
        """The legend; see `drawing.legends.below`."""
        below(self.ax, columns)

    def caption(self, title: str, *lines: str) -> None:
        """The title and what stands below it; see `drawing.captions.caption`."""
        caption(self.ax, title, *lines)
