"""The rows of a trace, handed on to the writer of another one."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from traces import schema
from traces.errors import TraceError
from traces.manifest import Manifest
from traces.trace import Trace

if TYPE_CHECKING:
    from traces.writer import TraceWriter


def check_can_be_saved(trace: Trace) -> None:
    """Refuse a trace that cannot be written with all that its manifest says of it.

    Raises:
        TraceError: it lacks a column or has states, or it is sampled and its numbers are not
            0, 1, 2, …
    """
    for table, columns in trace.manifest.tables.items():
        for name in columns.names:
            if not trace.has(table, name):
                raise TraceError(f"the trace cannot be written: {table} lack the column {name}")
    if trace.manifest.hidden or trace.manifest.mix:
        raise TraceError("the trace cannot be written from memory: it has hidden states")
    numbers = trace.sequences["sequence"].to_numpy()
    if not trace.sampler.greedy and not np.array_equal(numbers, np.arange(len(numbers))):
        raise TraceError(
            "the trace cannot be written: it is sampled, its draws are keyed by the sequences'"
            " numbers, and those are not 0, 1, 2, … (greedy ones would be numbered anew)"
        )


def copy_rows(
    trace: Trace,
    header: Manifest,
    writer: TraceWriter,
    keep: Callable[[np.ndarray, str, str], np.ndarray] = lambda values, table, name: values,
) -> None:
    """Write all shards of a trace anew, with the columns of another header.

    Args:
        trace: whose rows they are; a drafter that was attached has no sequences of its own.
        header: of the writer.
        writer: open, without shards.
        keep: what is written of a column's values, given the table's name and its own.
    """
    numbers = trace.sequences["sequence"].to_numpy()
    offsets = {table: trace.offsets(table) for table in header.tables}
    for index in range(writer.n_shards):
        sequences = writer.shard_sequences(index)
        rows = slice(*trace.position_offsets[[sequences.start, sequences.stop]])
        tables = {}
        for table, columns in header.tables.items():
            mine = slice(*offsets[table][[rows.start, rows.stop]])
            tables[table] = {
                name: keep(trace.column(table, name)[mine], table, name) for name in columns.names
            }
        if header.experts:
            tables["experts"] = _experts(trace, numbers[[sequences.start, sequences.stop - 1]])
        for columns in tables.values():
            columns["sequence"] = np.searchsorted(numbers, columns["sequence"])
        part = None
        if header.attached_to is None:
            part = trace.sequences.slice(sequences.start, len(sequences)).to_pydict()
            part |= {"sequence": list(sequences)}
        writer.write_shard(index, part, **tables)


def _experts(trace: Trace, ends: np.ndarray) -> dict[str, np.ndarray]:
    """The rows of experts of sequences from one number to another."""
    low, high = np.searchsorted(trace.column("experts", "sequence"), ends + [0, 1])
    names = (*schema.WITH_STATE["experts"].names, schema.state_name("experts"))
    return {name: trace.column("experts", name)[low:high] for name in names}
