"""The comparison as a data frame and as Markdown."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

from simkit.costs.fit import Residual
from simkit.fidelity.results import HEADS, FidelityResult, cells, verdict

if TYPE_CHECKING:
    import polars as pl


def frame(comparison: FidelityResult) -> pl.DataFrame:
    """One row a policy, the fields of `PolicyRow`."""
    import polars as pl

    return pl.DataFrame([asdict(row) for row in comparison.rows])


def markdown(comparison: FidelityResult, residuals: list[Residual], facts: dict[str, str]) -> str:
    """The table and what follows from it.

    Args:
        comparison: of predicted and measured speedups.
        residuals: of the linear form.
        facts: about the run, each with its value.
    """
    lines = [*(f"- {name}: {value}" for name, value in facts.items()), ""]
    lines += ["| " + " | ".join(HEADS) + " |", "|---|" + "---:|" * (len(HEADS) - 2) + "---|"]
    lines += ["| " + " | ".join(cells(row)) + " |" for row in comparison.rows]
    lines += ["", *(f"- {line}" for line in verdict(comparison)), ""]
    lines += ["| linear form | passes | median residual | 95% of them | worst |"]
    lines += ["|---|---:|---:|---:|---:|"]
    lines += [
        f"| {r.what} | {r.cells} | {r.median:.1%} | {r.p95:.1%} | {r.worst:.1%} |"
        for r in residuals
    ]
    return "\n".join(lines) + "\n"
