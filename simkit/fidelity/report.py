"""The comparison as a data frame and as Markdown."""

from __future__ import annotations

from dataclasses import asdict
from html import escape
from typing import TYPE_CHECKING

from simkit.costs.fit import Residual
from simkit.fidelity.comparison import MEDIAN_BAR, WORST_BAR, Comparison, PolicyRow
from simkit.simulator.table import grid
from simkit.statistics.enough import FOR_INTERVAL

if TYPE_CHECKING:
    import polars as pl

_HEAD = (
    "policy",
    "predicted",
    "measured",
    "error",
    "tokens/step",
    "policy + head, ms/step (predicted)",
    "speedup without them (predicted)",
    "",
)


def frame(comparison: Comparison) -> pl.DataFrame:
    """One row a policy, the fields of `PolicyRow`."""
    import polars as pl

    return pl.DataFrame([asdict(row) for row in comparison.rows])


def markdown(comparison: Comparison, residuals: list[Residual], facts: dict[str, str]) -> str:
    """The table and what follows from it.

    Args:
        comparison: of predicted and measured speedups.
        residuals: of the linear form.
        facts: about the run, each with its value.
    """
    lines = [*(f"- {name}: {value}" for name, value in facts.items()), ""]
    lines += ["| " + " | ".join(_HEAD) + " |", "|---|" + "---:|" * (len(_HEAD) - 2) + "---|"]
    lines += ["| " + " | ".join(cells(row)) + " |" for row in comparison.rows]
    lines += ["", *(f"- {line}" for line in verdict(comparison)), ""]
    lines += ["| linear form | passes | median residual | 95% of them | worst |"]
    lines += ["|---|---:|---:|---:|---:|"]
    lines += [
        f"| {r.what} | {r.cells} | {r.median:.1%} | {r.p95:.1%} | {r.worst:.1%} |"
        for r in residuals
    ]
    return "\n".join(lines) + "\n"


def html(comparison: Comparison) -> str:
    """The table and what follows from it, for a notebook."""
    rows = [[cell.strip("`") for cell in cells(row)] for row in comparison.rows]
    said = "".join(f"<li>{escape(line)}</li>" for line in verdict(comparison))
    return f"{grid(_HEAD, rows)}<ul>{said}</ul>"


def cells(row: PolicyRow) -> tuple[str, ...]:
    """A row of the table."""
    return (
        f"`{row.policy}`",
        f"{row.predicted:.3f} [{row.predicted_lo:.3f}, {row.predicted_hi:.3f}]",
        f"{row.measured:.3f} [{row.measured_lo:.3f}, {row.measured_hi:.3f}]",
        f"{row.error:+.1%} [{row.error_lo:+.1%}, {row.error_hi:+.1%}]",
        f"{row.tokens_per_step:.3f}",
        f"{row.policy_s * 1e3:.3f} ({row.predicted_policy_s * 1e3:.3f})",
        f"{row.measured_free:.3f} ({row.free:.3f})",
        f"loss: its own time eats its gain ({row.loss})" if row.loss else "",
    )


def verdict(comparison: Comparison) -> list[str]:
    """What the numbers say, a sentence a line."""
    sequences = sum(row.sequences for row in comparison.rows)
    median = (
        f"{comparison.median_error:.1%} [{comparison.median_lo:.1%}, {comparison.median_hi:.1%}]"
    )
    few = comparison.prompts < FOR_INTERVAL
    return [
        f"error of the predicted speedup: median {median}, worst {comparison.worst_error:.1%}"
        f" (bars: {MEDIAN_BAR:.0%} and {WORST_BAR:.0%})",
        f"Kendall's tau {comparison.tau:.2f}; {len(comparison.distinct)} of"
        f" {len(comparison.pairs)} pairs differ by more than the noise (95% for all of them"
        f" together), {len(comparison.misranked)} of them are ranked the wrong way round",
        *(
            f"wrong way round: {pair.faster} is {pair.measured:.3f}"
            f" [{pair.measured_lo:.3f}, {pair.measured_hi:.3f}] times as fast as {pair.slower},"
            f" predicted {pair.predicted:.3f}"
            for pair in comparison.misranked
        ),
        "live steps are the replayed ones in"
        f" {sequences - comparison.differing} of {sequences} sequences",
        *([f"only {comparison.prompts} prompts held out: intervals may be too narrow"] * few),
        *(f"control: {drift}" for drift in comparison.drifts),
        *(f"missed: {bar}" for bar in comparison.missed),
    ]
