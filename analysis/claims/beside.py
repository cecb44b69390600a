"""The claims on several traces, side by side: what carries over from one pair to another."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Any

from analysis.claims.table import ALIKE, Finding, Findings
from analysis.claims.verdict import Verdict
from simkit.simulator.display import grid
from traces.errors import UserError

if TYPE_CHECKING:
    import polars as pl

BOTH, NEITHER = "holds on all", "holds on none"
DIFFER, OPEN, SOME, UNTESTED = "differs", "undecided", "tested on some", "tested on none"
TOGETHER = (BOTH, NEITHER, DIFFER, OPEN, SOME, UNTESTED)
_REFUTED = {Verdict.FAILS, Verdict.NO_EXAMPLE}


@dataclass(frozen=True)
class Beside:
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
        return ("paper", "claim", "statistic", *self.names, "together")

    def rows(self) -> list[tuple[str, ...]]:
        """Cells under `heads`, a row for each claim; each trace's verdict, values, coin flips."""
        return [
            (
                f"{found[0].claim.paper}, {found[0].claim.place}",
                found[0].claim.says,
                found[0].claim.name,
                *(_cell(one) for one in found),
                together([one.verdict for one in found]),
            )
            for found in self.claims
        ]

    def note(self) -> str:
        """How many claims came out how, together; then what each trace's findings note."""
        count = Counter(row[-1] for row in self.rows())
        said = ", ".join(f"{count[words]} {words}" for words in TOGETHER if count[words])
        theorems = count[""]
        said += f", {theorems} by construction" if theorems else ""
        return "\n".join([f"{len(self.claims)} claims: {said}.", *(one.note() for one in self.of)])

    def records(self) -> list[dict[str, Any]]:
        """One plain dictionary a claim: what is said of it together, and by trace."""
        return [
            {
                "claim": found[0].claim.name,
                "paper": found[0].claim.paper,
                "place": found[0].claim.place,
                "says": found[0].claim.says,
                "together": together([one.verdict for one in found]),
                "traces": {name: one.record() for name, one in zip(self.names, found, strict=True)},
            }
            for found in self.claims
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
        rows = [self.heads, ["---"] * len(self.heads), *self.rows()]
        lines = ["| " + " | ".join(c.replace("|", "\\|") for c in row) + " |" for row in rows]
        return "\n".join([self.note().replace("\n", "\n\n"), "", *lines, ""])

    def __repr__(self) -> str:
        return f"<Beside: {self.note().splitlines()[0]}>"

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
    """What verdicts of several traces say together; empty for a theorem.

    A claim that is decided one way on one trace and the other way on another differs, whatever the
    rest says; one that some trace cannot test is tested on some; else a trace that cannot tell
    leaves it undecided.
    """
    found = set(verdicts)
    if found == {Verdict.THEOREM}:
        return ""
    if Verdict.HOLDS in found and found & _REFUTED:
        return DIFFER
    if Verdict.UNTESTED in found:
        return SOME if len(found) > 1 else UNTESTED
    if found == {Verdict.HOLDS}:
        return BOTH
    return NEITHER if found <= _REFUTED else OPEN


def _cell(found: Finding) -> str:
    """Verdict, values, and the verdict on coin flips."""
    said = f"{found.verdict}: {found.why}" if found.why else str(found.verdict)
    said += f"; {ALIKE}" if found.without_structure else ""
    said += f" — {found.ours()}" if found.parts else ""
    if found.placebo is not None and not found.without_structure:
        said += f" (coin flips: {found.placebo})"
    return said
