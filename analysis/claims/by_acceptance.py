"""The claims by how good the draft is: what several pairs of one target say, ordered by acceptance.

A claim may hold for good drafts and fail for bad ones. Verdicts of traces that differ in their
draft, put in the order of acceptance, show where it turns; a claim whose verdict turns more than
once depends on something else too.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from analysis.claims.beside import Beside, check_names
from analysis.claims.claim import Claim, Part
from analysis.claims.claim import claims as all_claims
from analysis.claims.table import Finding, check, name_of
from analysis.claims.verdict import UNJUDGED, Allowed, Verdict
from analysis.stats import Estimate, clusters
from analysis.study import FirstToken, Study, study_of
from simkit.simulator.arguments import AnyCost, AnyTrace
from simkit.sweeps.engine import Progress
from traces.errors import UserError
from traces.messages import how_many
from traces.outputs import write_atomic
from traces.trace import OWN

if TYPE_CHECKING:
    import polars as pl
    from matplotlib.figure import Figure

_DECIDED = {Verdict.HOLDS: True, Verdict.FAILS: False, Verdict.NO_EXAMPLE: False}


@dataclass(frozen=True, repr=False)
class ByAcceptance(Beside):
    """What several drafts say of the claims, the least accepted one first; shows itself as a table.

    Attributes:
        acceptance: of each trace's draft, see `acceptance_of`.
    """

    acceptance: tuple[Estimate, ...]

    @property
    def heads(self) -> tuple[str, ...]:
        """Of the columns of `rows`: traces are named with their acceptance."""
        shares = (f"{name} ({_share(one)})" for name, one in zip(self.names, self._at, strict=True))
        return ("claim", "paper", "by acceptance", *shares)

    @cached_property
    def together(self) -> list[str]:
        """At which acceptance each claim holds, in words."""
        return [turns([one.verdict for one in found], self._at) for found in self.claims]

    @property
    def _at(self) -> list[float]:
        return [one.value or 0.0 for one in self.acceptance]

    def rows(self) -> list[tuple[str, ...]]:
        """Cells under `heads`, a row for each claim: those that are decided first."""
        rows = [self._row(*one) for one in zip(self.together, self.claims, strict=True)]
        decided = [any(one.verdict in _DECIDED for one in found) for found in self.claims]
        return [rows[k] for k in np.argsort(np.logical_not(decided), kind="stable")]

    def note(self) -> str:
        """What acceptance is, how many claims turn, then what `Beside` notes."""
        each = [_changes([one.verdict for one in found]) for found in self.claims]
        turned, several = each.count(1), sum(n > 1 for n in each)
        ends = [
            f"{name}: {one.text()}" for name, one in zip(self.names, self.acceptance, strict=True)
        ]
        said = (
            "Acceptance is the share of output positions at which the first token of a draft is"
            f" accepted ({'; '.join(ends)}). From the least to the most accepted draft, {turned} of"
            f" {how_many(len(self.claims), 'claim')} change verdict once, {several} more often."
        )
        return f"{said}\n{super().note()}"

    @property
    def frame(self) -> pl.DataFrame:
        """The rows of each trace's own frame, with its acceptance and what is said together."""
        import polars as pl

        shares = dict(zip(self.names, self._at, strict=True))
        at = pl.col("trace").replace_strict(shares, return_dtype=pl.Float64)
        return super().frame.with_columns(at.alias("acceptance"))

    def plot(self, width: float | str | None = None) -> Figure:
        """A mark for each claim and draft; claims that no draft can test are left out.

        Args:
            width: in inches, or "column", "text" or "page".

        >>> from analysis.claims import CLAIMS, by_acceptance
        >>> from traces.synthetic import iid
        >>> pairs = [iid(30, 60, share, max_draft=8, seed=1) for share in (0.5, 0.8)]
        >>> found = by_acceptance(pairs, claims=[CLAIMS["marginal_falls"]], names=["bad", "good"])
        >>> found.plot().axes[0].get_xlabel()
        'acceptance of the draft'
        """
        from analysis.figures.verdict_map import verdict_map

        judged = (row for row in self.claims if any(one.verdict not in UNJUDGED for one in row))
        rows = {
            f"{row[0].claim.name} ({row[0].claim.paper})": [_mark(one) for one in row]
            for row in judged
        }
        named = zip(self.names, self._at, strict=True)
        return verdict_map(rows, [f"{name}\n{_share(at)}" for name, at in named], width)

    def panels(self, width: float | str | None = "page") -> Figure:
        """A panel for each claim: the statistic that decides it, by acceptance.

        Args:
            width: in inches, or "column", "text" or "page".

        >>> from analysis.claims import CLAIMS, by_acceptance
        >>> from traces.synthetic import iid
        >>> pairs = [iid(30, 60, share, max_draft=8, seed=1) for share in (0.5, 0.8)]
        >>> found = by_acceptance(pairs, claims=[CLAIMS["marginal_falls"]], names=["bad", "good"])
        >>> found.panels().axes[0].get_title(loc="left")
        'marginal_falls'
        """
        from analysis.figures.claim_panels import ClaimPanel, PanelPoint, claim_panels

        made = []
        for row in self.claims:
            of: dict[Allowed, list[tuple[str, PanelPoint]]] = {}
            for at, one in zip(self._at, row, strict=True):
                part = shown(one)
                if part and part.expected and one.verdict not in UNJUDGED:
                    point = PanelPoint(at, _mark(one), part.found, flips_of(one, part))
                    of.setdefault(part.expected, []).append((part.what, point))
            for allowed, points in of.items():  # of two statistics of a claim, a panel each
                claim, ends = row[0].claim, (allowed.lo, allowed.hi)
                measure = points[0][0] if len(of) > 1 else claim.measure
                made.append(ClaimPanel(claim.name, measure, ends, [one for _, one in points]))
        return claim_panels(made, width)

    def save(self, picture: Path, panels: bool = False) -> None:
        """Write the picture; its name ends in .png, .svg or .pdf.

        Args:
            picture: the file.
            panels: write `panels`, not `plot`.

        Raises:
            FigureError: it ends in something else.
            TraceError: it cannot be written; what was there is as it was.
        """
        from analysis.figures.drawing.styles import DPI, metadata_of, style

        form, out = picture.suffix[1:], io.BytesIO()
        with style():
            drawn = self.panels() if panels else self.plot()
            drawn.savefig(out, format=form, metadata=metadata_of(form), dpi=DPI)
        write_atomic(picture, out.getvalue())

    def records(self) -> list[dict[str, Any]]:
        """One plain dictionary a claim: at which acceptance it holds, and what each trace says."""
        shares = dict(zip(self.names, self._at, strict=True))
        return [record | {"acceptance": shares} for record in super().records()]


def decided(verdict: Verdict) -> bool | None:
    """Whether a verdict confirms a claim or refutes it; None: it does neither."""
    return _DECIDED.get(verdict)


def shown(one: Finding) -> Part | None:
    """The statistic that decides a verdict; None where nothing was computed."""
    return next((part for part in one.deciding() if part.expected), None)


def flips_of(one: Finding, part: Part) -> Estimate | None:
    """What coin flips give of one of a verdict's statistics; None where they were not asked."""
    alike = len(one.flips) == len(one.parts)
    return one.flips[one.parts.index(part)].found if alike else None


def acceptance_of(study: Study) -> Estimate:
    """The share of starts whose first draft token is accepted, its interval over prompts.

    Every output position is a start, so it is the chance that a draft token is accepted where all
    before it were.
    """
    layout = study.layout
    accepted = np.asarray(layout.ahead) > 0
    sums = clusters.by_prompt(
        layout.offsets, lambda rows: [accepted[rows], np.ones_like(accepted[rows])]
    )
    return clusters.ratio(*sums.T)


def drafts_of(study: Study) -> dict[str, Study]:
    """A recording's own draft and each drafter that is attached to it, by name.

    Raises:
        TraceError: one is not whole.
    """
    trace = study.trace
    own = [] if trace.manifest.kind == "target" else [OWN]
    attached = [] if trace.recording else trace.drafters
    return {name: Study(trace.with_drafter(name), study.first_token) for name in own + attached}


def by_acceptance(
    traces: Sequence[AnyTrace | Study],
    cost: AnyCost | None = None,
    claims: Iterable[Claim] | None = None,
    progress: Progress | None = None,
    first_token: FirstToken = "draft",
    names: Sequence[str] | None = None,
) -> ByAcceptance:
    """Test claims on traces of one target with several drafts, and order them by acceptance.

    Args:
        traces: each with a draft of its own; of a single one, each drafter attached to it.
        cost: see `simkit.replay`; one for all, or each trace's own times.
        claims: which; None means all of them.
        progress: called with how many are done, and of how many.
        first_token: see `simkit.replay`; of a study, its own.
        names: of the traces; None means their folders', or the drafters' own.

    Raises:
        UserError: there are fewer than two, names of more or fewer, two alike, or as `check` does.

    >>> from analysis.claims import CLAIMS, by_acceptance
    >>> from traces.synthetic import iid
    >>> pairs = [iid(30, 60, share, max_draft=8, seed=1) for share in (0.5, 0.8)]
    >>> found = by_acceptance(pairs, claims=[CLAIMS["marginal_falls"]], names=["bad", "good"])
    >>> [round(share.value, 1) for share in found.acceptance]
    [0.5, 0.8]
    """
    studies = [study_of(trace, first_token) for trace in traces]
    if len(studies) == 1:
        by_name = drafts_of(studies[0])
        names, studies = names or list(by_name), list(by_name.values())
    if len(studies) < 2:
        raise UserError("claims by acceptance need two drafts or more")
    said = list(names or [name_of(study.trace) for study in studies])
    if len(said) != len(studies):
        raise UserError(f"{len(said)} names for {len(studies)} drafts")
    check_names(said)
    wanted, shares = all_claims(claims), [acceptance_of(study) for study in studies]
    found = []
    for k, study in enumerate(studies):

        def tick(done: int, of: int, before: int = k) -> None:
            if progress is not None:
                progress(before * of + done, of * len(studies))

        found.append(check(study, cost, claims=wanted, progress=tick))
    order = np.argsort([one.value or 0.0 for one in shares], kind="stable")
    named = [replace(found[k], trace=said[k]) for k in order]
    return ByAcceptance(tuple(named), tuple(shares[k] for k in order))


def turns(verdicts: Sequence[Verdict], at: Sequence[float]) -> str:
    """At which acceptance a claim holds, in words; empty where it is never judged.

    Args:
        verdicts: in the order of acceptance.
        at: acceptance, rising.
    """
    if set(verdicts) <= set(UNJUDGED) - {Verdict.UNTESTED}:
        return ""
    decided = [
        (_DECIDED[one], share) for one, share in zip(verdicts, at, strict=True) if one in _DECIDED
    ]
    if not decided:
        return "cannot be tested" if set(verdicts) == {Verdict.UNTESTED} else "undecided"
    holds = [one for one, _ in decided]
    ends = f"from {_share(decided[0][1])} to {_share(decided[-1][1])}"
    if len(decided) == 1:
        ends = f"at {_share(decided[0][1])}, {_rest(verdicts)} elsewhere"
    if len(set(holds)) == 1:
        return f"{'holds' if holds[0] else 'does not hold'} {ends}"
    changes = [k for k in range(1, len(holds)) if holds[k] != holds[k - 1]]
    if len(changes) > 1:
        return f"turns {len(changes)} times"
    low = _range([share for _, share in decided[: changes[0]]], at)
    high = _range([share for _, share in decided[changes[0] :]], at)
    return f"holds {high}, not {low}" if holds[-1] else f"holds {low}, not {high}"


def _changes(verdicts: Sequence[Verdict]) -> int:
    """How often a claim is decided otherwise than before, in the order of acceptance."""
    holds = [_DECIDED[one] for one in verdicts if one in _DECIDED]
    return sum(a != b for a, b in pairwise(holds))


def _range(some: Sequence[float], at: Sequence[float]) -> str:
    """Where neighbours decide a claim alike, in words; who decides nothing is passed over."""
    if some[-1] == at[-1]:
        return f"from {_share(some[0])} on"
    if some[0] == at[0]:
        return f"up to {_share(some[-1])}"
    if len(some) == 1:
        return f"at {_share(some[0])}"
    return f"from {_share(some[0])} to {_share(some[-1])}"


def _rest(verdicts: Sequence[Verdict]) -> str:
    """What became of a claim where it is not decided."""
    rest = {one for one in verdicts if one not in _DECIDED}
    if rest == {Verdict.UNTESTED}:
        return "cannot be tested"
    return "undecided or not tested" if Verdict.UNTESTED in rest else "undecided"


def _mark(one: Finding) -> str:
    """What a picture shows of a verdict."""
    if one.without_structure:
        return "holds, also on coin flips"
    return str(Verdict.FAILS if one.verdict is Verdict.NO_EXAMPLE else one.verdict)


def _share(value: float) -> str:
    return f"{value:.0%}"
