"""The papers' tables in their own form: their rows that a trace can fill, and their columns.

A trace's tasks stand where a paper has benchmarks, its pair where a paper has several. Rows of
methods that need what no trace here holds are left out; docs/gallery.md lists them. A table is a
`Form`, which `form.fill` fills, or a function where it has cells of its own kind.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial

from analysis import token_drafters
from analysis.figures.base import FIGURES
from analysis.figures.drawing.styles import FigureError
from analysis.figures.tables import acceptance_head, pacer, pard2, pearl, svip, trees
from analysis.figures.tables.form import FilledTable, Form, fill, made
from analysis.replays import Replays, of
from analysis.study import MissingError, Study, study_of
from analysis.trees import tree_study
from simkit.simulator.arguments import AnyCost, AnyTrace
from traces.errors import UserError

Table = Form | Callable[[Replays], FilledTable]
CHAINS = (*svip.TABLES, *pacer.TABLES, *acceptance_head.TABLES, *pearl.TABLES, *pard2.TABLES)


def tables(
    trace: AnyTrace | Study, cost: AnyCost | None = None
) -> tuple[list[FilledTable], list[str]]:
    """All tables that a trace can give.

    Args:
        trace: a recorded pair; or its folder, a bundled trace's name, or a study.
        cost: see `simkit.replay`.

    Returns:
        The tables, and a line for each that is missing, with the reason.

    Raises:
        FigureError: the trace is empty.
        UserError: there are no times, or the trace or the cost cannot be read.
    """
    study = study_of(trace)
    if study.trace.n_positions == 0:
        raise FigureError("the trace is empty")
    of_trees = tree_tables(study, cost)
    at = of(study, cost)
    _ = at.charge  # without times there are no tables
    lookups = [pacer.hybrids] if token_drafters.names(at) else []
    found, gone = _filled([*CHAINS, *lookups], at)
    return found + of_trees[0], gone + of_trees[1]


def tree_tables(study: Study, cost: AnyCost | None = None) -> tuple[list[FilledTable], list[str]]:
    """All that a trace of trees, or a recording that has some attached, can give.

    Returns:
        The tables, and a line for each that is missing, with the reason; nothing without trees.
    """
    try:
        study = tree_study(study)
    except MissingError:
        return [], []
    return _filled(trees.TABLES, of(study, cost))


def _filled(wanted: Iterable[Table], at: Replays) -> tuple[list[FilledTable], list[str]]:
    found, gone = [], []
    for table in wanted:
        try:
            one = made(partial(fill, table) if isinstance(table, Form) else table, at)
            if FIGURES[one.name].draft_model:
                at.study.need_draft_model()
            found.append(one)
        except UserError as error:
            name = table.source if isinstance(table, Form) else table.__name__
            gone.append(f"{name}: {error}")
    return found, gone
