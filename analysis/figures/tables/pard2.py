"""PARD-2's tables: drafters of one recording side by side, and drafters trained apart."""

from __future__ import annotations

from collections.abc import Callable

from analysis.drafters import side_by_side
from analysis.figures.measures import APART, accepted, apart, cell, speedup
from analysis.figures.pard2.parallel_training import TABLES as TRAINED
from analysis.figures.pard2.parallel_training import TrainedTable, filled
from analysis.figures.tables.form import FilledTable
from analysis.labelled_replays import chosen
from analysis.replays import ALONE, Replays, groups
from analysis.trained import Trained


def training(source: str, table: TrainedTable) -> Callable[[Replays], FilledTable]:
    """One of PARD-2's tables of how a drafter is trained, beside its own numbers."""

    def made(at: Replays) -> FilledTable:
        found, masks = Trained(at.study), groups(at.trace)
        body, seeds = [], set()
        for row, known in filled(found, table).items():
            arm = table.rows[row]
            tau = [cell(found.tau(*arm, some=some)) for some in masks.values()]
            tau += [cell(known.apart)] if known.apart.value is not None else []
            gain = cell(known.gain) if body else "1"
            body.append([row, *tau, gain, f"{known.printed:.3f}"])
            seeds.add(len(found.seeds(arm.arm, arm.mode)))
        apart = [APART] if at.study.loops.outside is not None else []
        heads = ["row", *(f"τ, {task}" for task in masks), *apart, "÷ first row", "paper's"]
        note = (
            f"Means over seeds of training ({'–'.join(map(str, sorted(seeds)))}), intervals over"
            f" prompts and seeds; ÷ first row: ratio of τ{' outside of loops' if apart else ''}."
        )
        return FilledTable("parallel_training", source, heads, body, note)

    made.__name__ = source
    return made


def drafters(at: Replays) -> FilledTable:
    """PARD-2's methods are drafters; each with its best fixed length."""
    found = side_by_side(at.study, at.cost, timed=True)
    rows = []
    for task, some in groups(at.trace).items():
        rows.append([task, ALONE, "1.00", *["–"] * 3])
        for name, one in found.replays.items():
            mine = one.tuned_fixed()
            free = apart(one)
            tau = [accepted(mine, some), free(mine, some) if free else "–"]
            bound = speedup(one.replay("prophet"), some)
            rows.append([task, name, speedup(mine, some), *tau, bound])
    heads = ["task", "drafter", "speedup", "τ", APART, "bound (prophet)"]
    how = f"Each with its best fixed length, {chosen(at.trace, by_task=True)}."
    note = " ".join([how, *found.gone])
    return FilledTable("drafters_by_task", "PARD-2 Tables 1 and 2", heads, rows, note)


TABLES = (
    drafters,
    *(training(f"PARD-2 {name}", table) for name, table in TRAINED.items()),
)
