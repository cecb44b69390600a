"""One page about a trace: what was recorded, policies compared, figures, claims, caveats.

The page is a single HTML file that asks the network for nothing. `report` puts together what
`analysis.replays`, `analysis.figures` and `analysis.claims` find; nothing is computed here.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from datetime import UTC, date, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from analysis.claims import check
from analysis.replays import of
from analysis.report.caveats import Again, again, call, caveats
from analysis.report.page import render
from analysis.report.policies import Policies, compared
from analysis.report.recorded import Recorded, recorded
from analysis.report.verdicts import Verdicts, verdicts
from analysis.study import FirstToken, Study
from simkit.simulator.arguments import AnyCost, AnyTrace
from simkit.sweeps.engine import Progress
from simkit.sweeps.grid import settings
from traces.outputs import write_atomic
from traces.trace import Trace, opened
from traces.urls import shown

if TYPE_CHECKING:
    from analysis.report.pictures import Pictures

__all__ = ["Report", "report"]

Watch = Callable[[str], AbstractContextManager[Progress | None]]


@dataclass(frozen=True, eq=False)
class Report:
    """The page's contents.

    Attributes:
        name: of the trace.
        made: the day.
        recorded: what was recorded and how.
        policies: compared.
        pictures: all figures; None if they were not asked for.
        claims: of the papers.
        caveats: what a reader should know.
        again: how to make it again.
    """

    name: str
    made: date
    recorded: Recorded
    policies: Policies
    pictures: Pictures | None
    claims: Verdicts
    caveats: list[str]
    again: Again

    def html(self) -> str:
        """The page."""
        return render(self)

    def save(self, file: str | Path) -> None:
        """Write the page.

        Raises:
            TraceError: the file cannot be written.
        """
        write_atomic(Path(file), self.html().encode())

    def __repr__(self) -> str:
        return f"<Report {self.name}>"


def report(
    trace: AnyTrace,
    cost: AnyCost | None = None,
    policies: Iterable[str] = (),
    sampled: AnyTrace | None = None,
    figures: bool = True,
    command: Iterable[str] | None = None,
    watch: Watch = lambda part: nullcontext(),
    first_token: FirstToken = "draft",
) -> Report:
    """Put together a page about a trace.

    What this trace cannot give is named on the page, with the reason.

    Args:
        trace: of any kind; or its folder, or a bundled trace's name.
        cost: see `simkit.replay`.
        policies: specs, with or without ranges, to compare beside the usual ones.
        sampled: see `analysis.claims.check`.
        figures: whether to draw them.
        command: the words of the command that makes the page; None stands for this call.
        watch: called with each part's name, gives a context that reports progress.
        first_token: see `simkit.replay`.

    Raises:
        UserError: a trace, the cost or a spec cannot be read.
    """
    one = opened(trace)
    other = sampled and opened(sampled)
    place = one.path if isinstance(trace, Trace) else trace
    where = None if place is None else shown(str(place))
    name = where or "in memory"
    given = list(policies)
    if given:
        settings(given)  # what cannot be read is refused before anything is replayed
    study = Study(one, first_token)
    at = of(study, cost)
    _ = at.timed
    with watch("recorded"):
        what = recorded(one)
        study.make_room()
    with watch("policies"):
        beside = compared(study, cost, given)
    drawn = None
    if figures:
        from analysis.report.pictures import pictures  # it loads matplotlib

        with watch("figures") as progress:
            drawn = pictures(study, cost, progress)
    with watch("claims") as progress:
        found = verdicts(check(study, cost, other, progress=progress))
    made_by = call(where, cost, given, sampled, figures, first_token)
    made_by = shlex.join(command) if command else made_by
    return Report(
        Path(name).name or name,
        datetime.now(UTC).date(),
        what,
        beside,
        drawn,
        found,
        caveats(at, beside.used),
        again(at, where, made_by),
    )
