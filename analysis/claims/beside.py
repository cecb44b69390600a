"""The claims on several traces, side by side: what carries over from one pair to another."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from html import escape
from typing import TYPE_CHECKING, Any

from analysis.claims.claim import Part
from analysis.claims.table import ALIKE, Finding, Findings
from analysis.claims.verdict import Verdict, against_print
from simkit.simulator.display import grid, markdown
from simkit.surface import Framed
from traces.errors import UserError
from traces.messages import how_many

if TYPE_CHECKING:
    import polars as pl

BOTH, NEITHER = "holds on all", "holds on none"
DIFFER, OPEN, SOME, UNTESTED = "differs", "undecided", "tested on some", "tested on none"
MANY = {  # of claims, in a sentence; in the order of the table
    DIFFER: "hold on some and not on others",
    BOTH: "hold on all",
    NEITHER: "hold on none",
    OPEN: "are undecided",
    SOME: "can be tested on some traces only",
    UNTESTED: "can be tested on none",
}
SHOWN = 2  # parts of a claim
ALSO = "°"  # a claim that holds, and on coin flips too
SIDES = {"below": "↓", "above": "↑"}  # of the paper's values
_UNJUDGED = {
    Verdict.THEOREM: "are true or false by construction",
    Verdict.SETTING: "are settings of engines",
}
_REFUTED = {Verdict.FAILS, Verdict.NO_EXAMPLE}


@dataclass(frozen=True)
class Beside(Framed):
    """What several traces say of the same claims; shows itself as a table.

    Attributes:
        of: what each trace says, in the same order of claims.
    """

    of: tuple[Findings, ...]

    @property
    def names(self) -> list[str]:
        """Of the traces."""
        return [findings.trace for findings in self.of]

    @property
    def claims(self) -> list[tuple[Finding, ...]]:
        """What each trace says of a claim, claim by claim."""
        return list(zip(*(findings.of for findings in self.of), strict=True))

    @property
    def heads(self) -> tuple[str, ...]:
        """Of the columns of `rows`."""
        return ("claim", "paper", "together", *self.names)

    @cached_property
    def together(self) -> list[str]:
        """What all traces say together, claim by claim."""
        return [together([one.verdict for one in found]) for found in self.claims]

    def rows(self) -> list[tuple[str, ...]]:
        """Cells under `heads`, a row for each claim: those that differ first, theorems last."""
        order = {words: k for k, words in enumerate(MANY)}
        said = list(zip(self.together, self.claims, strict=True))
        said.sort(key=lambda one: order.get(one[0], len(order)))
        return [self._row(*one) for one in said]

    @cached_property
    def reasons(self) -> dict[str, int]:
        """Why claims cannot be tested, or what they follow from, by the number that cells give."""
        every = (one.why for found in self.claims for one in found if one.why)
        return {why: k for k, why in enumerate(dict.fromkeys(every), 1)}

    def note(self) -> str:
        """How many claims came out how; what marks mean; then what each trace's findings note."""
        count = Counter(self.together)
        said = [f"{count[words]} {many}" for words, many in MANY.items() if count[words]]
        for verdict, words in _UNJUDGED.items():
            many = sum({one.verdict for one in found} == {verdict} for found in self.claims)
            said += [f"{many} {words}"] if many else []
        known = f": {', '.join(said)}" if said else ""  # by acceptance much is said otherwise
        marks = (
            f"A cell has the verdict and the values that decide it, with intervals."
            f" {SIDES['below']} and {SIDES['above']}: below and above all the paper's values."
            f" {ALSO}: the claim holds {ALIKE}."
        )
        reasons = [f"({k}) {why}." for why, k in self.reasons.items()]
        notes = [one.note() for one in self.of]
        return "\n".join(
            [f"{how_many(len(self.claims), 'claim')}{known}. {marks}", *reasons, *notes]
        )

    def _row(self, words: str, found: tuple[Finding, ...]) -> tuple[str, ...]:
        """A claim's cells; `words` is what all traces say together."""
        claim = found[0].claim
        return (
            claim.says,
            f"{claim.paper}, {claim.place} ({claim.name})",
            words or str(found[0].verdict),
            *(self._cell(one) for one in found),
        )

    def _cell(self, found: Finding) -> str:
        """Verdict, values, and the number of the reason."""
        said = f"{found.verdict}{ALSO if found.without_structure else ''}"
        if found.why:
            said += f" ({self.reasons[found.why]})"
        parts = [part for part in found.deciding() if part.expected]
        shown = [_values(part) for part in parts[:SHOWN]]
        shown += [f"{len(parts) - SHOWN} more"] if len(parts) > SHOWN else []
        return f"{said}: {'; '.join(shown)}" if shown else said

    def records(self) -> list[dict[str, Any]]:
        """One plain dictionary a claim: what is said of it together, and by trace."""
        return [
            {
                "claim": found[0].claim.name,
                "paper": found[0].claim.paper,
                "place": found[0].claim.place,
                "says": found[0].claim.says,
                "together": words,
                "traces": {name: one.record() for name, one in zip(self.names, found, strict=True)},
            }
            for words, found in zip(self.together, self.claims, strict=True)
        ]

    @property
    def frame(self) -> pl.DataFrame:
        """The rows of each trace's own frame, with its name and what is said together."""
        import polars as pl

        said = {row["claim"]: row["together"] for row in self.records()}
        parts = [
            findings.frame.with_columns(
                pl.lit(findings.trace).alias("trace"),
                pl.col("claim").replace_strict(said).alias("together"),
            )
            for findings in self.of
        ]
        return pl.concat(parts, how="vertical_relaxed")

    def markdown(self) -> str:
        """The note and the table."""
        lines = markdown(self.heads, self.rows())
        return "\n".join([self.note().replace("\n", "\n\n"), "", *lines, ""])

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {self.note().splitlines()[0]}>"

    def __str__(self) -> str:
        return self.markdown()

    def _repr_html_(self) -> str:
        return f"<p>{escape(self.note())}</p>{grid(self.heads, self.rows())}"


def beside(findings: Sequence[Findings]) -> Beside:
    """Findings of several traces side by side.

    Raises:
        UserError: two of them are of one name, or not of the same claims.
    """
    check_names([one.trace for one in findings])
    if len({tuple(one.claim.name for one in some.of) for some in findings}) > 1:
        raise UserError("the findings are not of the same claims")
    return Beside(tuple(findings))


def check_names(names: Sequence[str]) -> None:
    """Refuse names of traces (`name_of`) that do not tell them apart.

    Raises:
        UserError: as said.
    """
    for name in names:
        if names.count(name) > 1:
            raise UserError(f"{name}: two of the traces have this name: rename one of the folders")


def together(verdicts: Sequence[Verdict]) -> str:
    """What verdicts of several traces say together; empty for a theorem, and for a setting.

    A claim that is decided one way on one trace and the other way on another differs, whatever the
    rest says; one that some trace cannot test is tested on some; else a trace that cannot tell
    leaves it undecided.
    """
    found = set(verdicts)
    if found in ({Verdict.THEOREM}, {Verdict.SETTING}):
        return ""
    if Verdict.HOLDS in found and found & _REFUTED:
        return DIFFER
    if Verdict.UNTESTED in found:
        return SOME if len(found) > 1 else UNTESTED
    if found == {Verdict.HOLDS}:
        return BOTH
    return NEITHER if found <= _REFUTED else OPEN


def _values(part: Part) -> str:
    """Of one statistic: what it is of, its value and interval, and where the paper's lie."""
    mark = SIDES.get(against_print(part.found, part.printed), "")
    return f"{part.what} {part.found.text()}{mark}".strip()
