"""One page about a trace: what was recorded, policies compared, figures, claims, caveats.

The page is a single HTML file that asks the network for nothing. `report` puts together what
`analysis.replays`, `analysis.figures` and `analysis.claims` find; nothing is computed here.
"""

from __future__ import annotations

import base64
import hashlib
import shlex
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from datetime import UTC, date, datetime
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from jinja2 import Environment, PackageLoader, StrictUndefined, Template
from markupsafe import Markup

from analysis.claims import check
from analysis.replays import Replays, of
from analysis.report.caveats import Again, again, call, caveats
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
        """The page. All that comes from a trace is escaped; scripts run only if they are ours."""
        template, style, script = _parts_of_page()
        # Nothing is loaded, and nothing runs, but what stands here: the browser holds us to it.
        rules = (
            "default-src 'none'; base-uri 'none'; form-action 'none'; img-src data:;"
            f" style-src '{_hash(style)}'; script-src '{_hash(script)}'"
        )
        return template.render(report=self, rules=rules, style=Markup(style), script=Markup(script))

    def save(self, file: str | Path) -> None:
        """Write the page.

        Raises:
            TraceError: the file cannot be written.
        """
        write_atomic(Path(file), self.html().encode())

    def __repr__(self) -> str:
        return f"<Report {self.name}>"


@cache
def _parts_of_page() -> tuple[Template, str, str]:
    """Template, style and script."""
    loader = PackageLoader("analysis.report", "parts")
    environment = Environment(
        loader=loader,
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    style, script = (loader.get_source(environment, f"page.{end}")[0] for end in ("css", "js"))
    return environment.get_template("page.html"), style, script


def _hash(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


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
    one, given = opened(trace), list(policies)
    other = opened(sampled) if sampled else None
    where, beside = _named(trace), _named(sampled)
    if given:
        settings(given)  # what cannot be read is refused before anything is replayed
    at = of(Study(one, first_token), cost)
    _ = at.timed
    made_by = call(where, cost, given, sampled, figures, first_token)
    made_by = shlex.join(command) if command else made_by
    name = Path(where or "in memory").name or str(where)
    return _parts(name, at, given, other, figures, again(at, where, made_by, beside), watch)


def _named(trace: AnyTrace | None) -> str | None:
    """A trace's name for a shell, as it was given or its folder; None in memory."""
    place = trace.path if isinstance(trace, Trace) else trace
    return None if place is None else shown(str(place))


def _parts(
    name: str,
    at: Replays,
    given: Sequence[str],
    sampled: Trace | None,
    figures: bool,
    how: Again,
    watch: Watch,
) -> Report:
    """The page, one part after the other; see `report`."""
    study, cost = at.study, at.cost
    with watch("recorded"):
        what = recorded(at.trace)
        study.make_room()
    with watch("policies"):
        beside = compared(study, cost, given)
    drawn = None
    if figures:
        from analysis.report.pictures import pictures  # it loads matplotlib

        with watch("figures") as progress:
            drawn = pictures(study, cost, progress, given)
    with watch("claims") as progress:
        found = verdicts(check(study, cost, sampled, progress=progress))
    made, said = datetime.now(UTC).date(), caveats(at, beside.used, beside.beyond)
    return Report(name, made, what, beside, drawn, found, said, how)
