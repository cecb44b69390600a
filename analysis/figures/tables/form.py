"""A paper's table: its form as data, and the one function that fills it with a trace's replays."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from analysis.figures.measures import APART, Measure, apart
from analysis.labelled_replays import choices, chosen, replayed, replays, window_words, without
from analysis.priced import Priced
from analysis.replays import Replayed, Replays, groups
from simkit.simulator.display import markdown

Cells = Sequence[str]
Rows = Mapping[str, Replayed]


class LoopFree(NamedTuple):
    """The column `APART`, which only a trace with loops has.

    Attributes:
        bonus: 1 for tokens a step, the target's own among them; 0 for accepted tokens.
    """

    bonus: int = 0


Column = Measure | Mapping[str, str] | LoopFree
"""What is measured of a replay, what the paper prints of each row, or τ outside of loops."""


class Form(NamedTuple):
    """One of a paper's tables as data.

    Attributes:
        figure: the name of the figure of the same numbers.
        source: the paper's tables.
        rows: a spec for each row, one with ranges tuned on other prompts; or what makes the rows.
        columns: by name.
        note: what is compared, and the settings; names of `WORDS` in braces are filled in.
        tasks: whether a task is a group of "rows" or of "columns", or "none" where all prompts
            are taken together.
        head: over the names of the rows.
        arms: more rows, as specs: those that the trace cannot give are left out, and said to be;
            without any of them there is no table.
    """

    figure: str
    source: str
    rows: Mapping[str, str] | Callable[[Replays], Rows]
    columns: Mapping[str, Column]
    note: str
    tasks: str = "columns"
    head: str = "method"
    arms: Mapping[str, str] = MappingProxyType({})


WORDS: dict[str, Callable[[Replays], str]] = {
    "chosen": lambda at: chosen(at.trace),
    "by_task": lambda at: chosen(at.trace, by_task=True),
    "fixed": lambda at: choices(at.tuned_fixed()),
    "window": window_words,
    "c": lambda at: at.too_wide or f"c = {at.cost_ratio():.2f}",
    "temperature": lambda at: f"temperature {at.trace.sampler.temperature:g}",
}
"""What notes say of a trace and its settings."""


class FilledTable(NamedTuple):
    """A table.

    Attributes:
        name: of the figure of the same numbers.
        source: the paper's tables.
        heads: of its columns.
        rows: as many cells each.
        note: what is compared, and the settings.
    """

    name: str
    source: str
    heads: Cells
    rows: Sequence[Cells]
    note: str

    def markdown(self) -> str:
        """A heading, the table and its note."""
        body = "\n".join(markdown(self.heads, self.rows))
        return f"### {self.source}\n\n{body}\n\n{self.note}\n"


def fill(form: Form, at: Replays) -> FilledTable:
    """A table with a trace's numbers in it.

    Raises:
        UserError: the trace cannot give it.
    """
    found, gone = _rows(form, at)
    columns: dict[str, Measure | Mapping[str, str]] = {}
    for name, column in form.columns.items():
        if not isinstance(column, LoopFree):
            columns[name] = column
        elif free := apart(at, column.bonus):
            columns[APART] = free
    masks = groups(at.trace)
    every = {"": np.ones(at.trace.n_sequences, bool)}

    def cells(name: str, masks: Mapping[str, np.ndarray]) -> list[str]:
        return [
            column[name] if isinstance(column, Mapping) else column(found[name], some)
            for some in masks.values()
            for column in columns.values()
        ]

    if form.tasks == "rows":
        heads = ["task", form.head, *columns]
        rows = [[task, n, *cells(n, {"": m})] for task, m in masks.items() for n in found]
    elif form.tasks == "columns":
        names = [f"{task}: {one}" if one else task for task in masks for one in columns]
        heads, rows = [form.head, *names], [[name, *cells(name, masks)] for name in found]
    else:
        heads, rows = [form.head, *columns], [[name, *cells(name, every)] for name in found]
    words = {name: say(at) for name, say in WORDS.items() if f"{{{name}}}" in form.note}
    note = " ".join([form.note.format(**words), *without(gone)])
    return FilledTable(form.figure, form.source, heads, rows, note)


def _rows(form: Form, at: Replays) -> tuple[Rows, dict[str, str]]:
    """Replays by name, and why others are missing."""
    if isinstance(form.rows, Mapping):
        found = {name: replayed(at, spec) for name, spec in form.rows.items()}
    else:
        found = dict(form.rows(at))
    more, gone = replays(at.study, form.arms, at.cost) if form.arms else ({}, {})
    return found | more, gone


def made(table: Callable[[Replays], FilledTable], at: Replays) -> FilledTable:
    """A table whose note begins with why its times may be wrong, if anything is known."""
    times = Priced()
    with times.watching():
        found = table(at)
    return found._replace(note=" ".join([*times.sentences(), found.note]).strip())
