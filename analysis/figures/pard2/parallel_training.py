"""How parallel drafters were trained, and what they then get accepted."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from analysis.figures.arms import stars_at
from analysis.figures.base import Plot, figure
from analysis.figures.drawing.marks import look, points
from analysis.figures.drawing.styles import ink, small
from analysis.figures.measures import PER_STEP_APART as APART
from analysis.figures.rows import cells, missing
from analysis.papers import PaperTable
from analysis.papers import pard2 as paper
from analysis.stats import Estimate
from analysis.study import MissingError
from analysis.trained import ArmRun, Trained, run
from traces.messages import how_many


class TrainedTable(NamedTuple):
    """One of PARD-2's tables of training, which compares its rows with its first.

    Attributes:
        printed: the paper's.
        rows: how the drafter of each row was trained, and runs.
    """

    printed: PaperTable
    rows: Mapping[str, ArmRun]


TABLES = {
    "Table 3": TrainedTable(
        paper.TABLE_3,
        {f"γ = {decay}": run(f"decay={decay}", "one") for decay in paper.DECAYS}
        | {"CAT": run("cat", "one")},
    ),
    "Table 4": TrainedTable(
        paper.TABLE_4,
        {"without": run("cat", "four", rho=0.0)}
        | {f"ρ = {rho}": run("cat", "four", rho=rho) for rho in (0.5, 0.2, 0.1)},
    ),
    "Table 5": TrainedTable(
        paper.TABLE_5,
        {
            "PARD, 8, 8": run("pard", "none", 8, 8),
            "+ features, 8, 8": run("pard", "one", 8, 8),
            "+ features, 16, 8": run("pard", "one", 16, 8),
            "+ features + CAT, 16, 8": run("cat", "one", 16, 8),
            "+ features + CAT, 16, 16": run("cat", "one"),
            "+ four layers + CAT, 16, 16": run("cat", "four"),
        },
    ),
}


class TrainedCells(NamedTuple):
    """What was measured of a row.

    Attributes:
        tau: accepted tokens a step.
        apart: the same outside of loops; without a value where nothing loops.
        gain: τ outside of loops ÷ that of the table's first row, or τ where nothing loops.
        printed: the paper's ratio.
    """

    tau: Estimate
    apart: Estimate
    gain: Estimate
    printed: float


def filled(found: Trained, table: TrainedTable) -> dict[str, TrainedCells]:
    """The rows of a table whose arms were trained.

    Raises:
        MissingError: the first was not.
    """
    first, *_ = table.rows
    loops = found.study.loops.outside is not None
    filled = {}
    for row, arm in table.rows.items():
        try:
            whole = found.tau(*arm)
            apart = found.tau(*arm, apart=True) if loops else Estimate(None, None, None, 0)
            gain = found.gain(arm, table.rows[first], loops)
        except MissingError:
            if row == first:
                raise
            continue
        filled[row] = TrainedCells(whole, apart, gain, table.printed.tau(row, first))
    return filled


@figure("PARD-2 Tables 3, 4 and 5", drafters=True)
def parallel_training(plot: Plot) -> None:
    """Accepted tokens a step of parallel drafters whose training differs in one setting."""
    found, ax = Trained(plot.study), plot.ax
    labels: dict[float, str] = {}  # by height
    mine, printed, compared, height = [], [], [], 0.0
    for name, table in TABLES.items():
        for row, cell in filled(found, table).items():
            arm, mode, length = table.rows[row]
            labels[height] = f"{name[-1]}: {row} ({_short(cell)})"
            mine.append(cell.gain)
            printed.append((cell.printed, height))
            compared += [cell.gain] if row not in _FIRST else []
            facts = {"table": name, "row": row, "loss": arm.loss, "mode": mode}
            facts |= {"features": arm.features, "rho": arm.rho}
            facts |= {"seeds": len(found.seeds(arm, mode))}
            facts |= {"trained_k": arm.block, "k": length, "paper": cell.printed}
            facts |= {"paper_tau": table.printed[row].tau} | cells(cell.gain, "tau_ratio")
            facts |= cells(cell.tau, "accepted_per_step") | cells(cell.apart, APART)
            plot.rows.append(facts)
            height -= 1.0
        height -= 0.7
    plot.notes = missing(compared)
    how = {**look(0), "linestyle": ""}
    points(ax, np.array(list(labels)), mine, sideways=True, label="here", **how)
    stars_at(ax, printed, "PARD-2")
    ax.set_yticks(list(labels), list(labels.values()))
    ax.tick_params(axis="y", labelsize=small())
    ax.axvline(1, color=ink(), linewidth=0.8)
    ax.set(xlabel="τ ÷ τ of the table's first row", ylim=(height + 0.2, 0.8))
    plot.below()
    outside = plot.study.loops.outside is not None
    seeds = max(int(r["seeds"] or 0) for r in plot.rows)
    plot.caption(
        "What the training of a parallel drafter changes",
        f"Labels: table, row (τ{' outside of verbatim loops, τ with them' if outside else ''});"
        f" points: τ{' outside of loops' if outside else ''} ÷ that of the table's first row.",
        f"{plot.prompts}, {how_many(seeds, 'seed')} of training; bars: 95% CI over both.",
    )


_FIRST = {next(iter(table.rows)) for table in TABLES.values()}


def _short(cell: TrainedCells) -> str:
    both = [cell.apart, cell.tau]
    return ", ".join(f"{e.value:.2f}" for e in both if e.value is not None)
