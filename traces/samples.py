"""What must hold of timing samples (`schema.LATENCY`)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from traces.conditions import CONTROL, DRAW, conditions, worse
from traces.messages import how_many

_SHOWN = 3  # rows of one kind of problem that are told one by one
_COMPONENT = re.compile(
    r"(control:|draw:)?(draft|target|proposal|overhead(:baseline)?|resample|communication|(policy|head):.+)"
)
_LEAST = {"tokens_in": 0, "context_len": 0, "batch_size": 1, "repeat": 0}
_PASSES = ("draft", "target")


def check_samples(table: pa.Table, file: Path) -> Iterator[str]:
    """A line for each sample that no timing gives, or that is there twice.

    Args:
        table: its columns have the types of `schema.LATENCY`.
        file: for the messages.
    """
    seconds = table["seconds"].to_numpy()
    yield from _problems(file, "seconds", seconds, ~(np.isfinite(seconds) & (seconds > 0)))
    component = table["component"].combine_chunks()
    known = [bool(_COMPONENT.fullmatch(name)) for name in component.to_pylist()]
    yield from _problems(file, "component", component, ~np.array(known, bool))
    is_pass = np.isin(component.to_numpy(zero_copy_only=False).astype(str), _PASSES)
    for name, least in _LEAST.items():
        values = table[name].to_numpy()
        bad = values < least
        if name == "tokens_in":
            bad |= is_pass & (values < 1)
        yield from _problems(file, name, values, bad)
    keys = table.drop_columns("seconds").group_by(table.drop_columns("seconds").column_names)
    twice = table.num_rows - keys.aggregate([]).num_rows
    if twice:
        yield f"{file}: {how_many(twice, 'sample is', 'samples are')} there twice"


def with_own(known: pa.Table, own: pa.Table | None) -> pa.Table:
    """The samples of a recording, with a drafter's own in the place of those of its draft model.

    Of the conditions under which both were taken, the worse ones are those of the result; those of
    proposals alone, which are no passes, say nothing of it.

    Args:
        known: of the recording.
        own: of a drafter that was attached to it, if it has any.
    """
    components = [] if own is None else own["component"].to_pylist()
    mine = {"draft", "proposal", *map(_bare, components)}
    names = known["component"].to_pylist()
    kept = known.filter(pa.array([_bare(name) not in mine for name in names], pa.bool_()))
    if own is None or not known.num_rows:
        return kept
    joined = pa.concat_tables([kept, _beside(own, known).cast(kept.schema)])
    theirs, here = conditions(known), conditions(own)
    timed = any(_bare(name) in _PASSES for name in components)
    return (worse(theirs, here) if timed else theirs).kept_in(joined)


def _bare(component: str) -> str:
    """A component's name without the words for what is timed again, or drawn anew."""
    return component.removeprefix(CONTROL).removeprefix(DRAW)


def _beside(own: pa.Table, known: pa.Table) -> pa.Table:
    """The samples as they stand beside others: proposals have no dtype, device or engine."""
    proposed = pa.array([name == "proposal" for name in own["component"].to_pylist()], pa.bool_())
    for name in ("dtype", "device", "engine"):
        place = own.schema.get_field_index(name)
        theirs = pa.scalar(known[name][0].as_py(), pa.string())
        values = pc.if_else(proposed, theirs, own[name].combine_chunks())  # pyright: ignore
        own = own.set_column(place, own.schema.field(name), values)
    return own


def _problems(file: Path, name: str, values: object, bad: np.ndarray) -> Iterator[str]:
    rows = np.flatnonzero(bad)
    for row in rows[:_SHOWN]:
        yield f"{file}: row {row}: {name} is {values[row]}"  # pyright: ignore[reportIndexIssue]
    if len(rows) > _SHOWN:
        yield f"{file}: {how_many(len(rows) - _SHOWN, 'more row')} like the last"
