"""Some of a trace's prompts as a trace of their own."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from traces import schema
from traces.errors import TraceError
from traces.memory import count_up, from_arrays
from traces.scores import RowScores, Scores, attach, load
from traces.trace import Trace


def select(
    trace: Trace,
    indices: Sequence[int],
    heads: Sequence[str] = (),
    max_new_tokens: int | None = None,
    latency: pa.Table | None = None,
) -> Trace:
    """A trace in memory of some sequences; they keep their numbers.

    A replay of it is the replay of these prompts alone: state that lasts a whole run passes over
    the others. `writer.save` writes a greedy one, numbered anew.

    Args:
        trace: of rows.
        indices: ascending, of sequences.
        heads: whose scores come along.
        max_new_tokens: T_max, no more than the trace's: longer outputs and branches are cut, to
            what would have been recorded (draws do not depend on it). None: the trace's.
        latency: its timing samples. Times are dropped unless they are given: those of the trace
            are `trace.latency()`.

    Raises:
        TraceError: a head's scores are missing, or max_new_tokens is out of range.
    """
    budget = trace.max_new_tokens if max_new_tokens is None else max_new_tokens
    if not 1 <= budget <= trace.max_new_tokens:
        raise TraceError(
            f"max_new_tokens must be from 1 to the trace's {trace.max_new_tokens}, not {budget}"
        )
    chosen = np.array(indices, np.int64)
    begins = trace.position_offsets[chosen]
    lengths = np.minimum(trace.position_offsets[chosen + 1] - begins, budget)
    rows = _ranges(begins, begins + lengths)
    room = np.maximum(budget - 1 - count_up(lengths), 0)
    branch = trace.branch_offsets[rows]
    off = _ranges(branch, np.minimum(trace.branch_offsets[rows + 1], branch + room))
    part = from_arrays(
        _sequences(trace, chosen, lengths),
        _columns(trace, "positions", rows),
        _columns(trace, "branches", off),
        max_draft=trace.max_draft,
        max_new_tokens=budget,
        eos_token_ids=trace.eos_token_ids,
        sampler=trace.sampler,
        seed=trace.manifest.seed,
        latency=latency,
        vocab_size=trace.manifest.vocab_size,
    )
    for head in heads:
        part = attach(part, head, _of(load(trace, head), rows, off))
    return part


def _sequences(trace: Trace, chosen: np.ndarray, lengths: np.ndarray) -> dict[str, list]:
    columns = trace.sequences.take(pa.array(chosen)).to_pydict()
    for k, length in enumerate(lengths.tolist()):
        if length < columns["n_output"][k]:
            columns["n_output"][k], columns["finish_reason"][k] = length, "length"
            columns["output_tokens"][k] = columns["output_tokens"][k][:length]
    return columns


def _columns(trace: Trace, table: str, rows: np.ndarray) -> dict[str, np.ndarray]:
    if table == "positions":
        names, read = schema.POSITIONS.names[2:], trace.positions  # without the key
    else:
        names, read = schema.BRANCHES_WITH_TARGET.names, trace.branches
    return {name: read(name)[rows] for name in names if trace.has(table, name)}


def _of(scores: Scores, rows: np.ndarray, off: np.ndarray) -> Scores:
    if isinstance(scores, RowScores):
        return RowScores(scores.path[rows], scores.branches[off])
    return type(scores)(scores.values[rows])


def _ranges(begins: np.ndarray, ends: np.ndarray) -> np.ndarray:
    """The numbers from each begin to before its end, end to end."""
    parts = [np.arange(a, b) for a, b in zip(begins, ends, strict=True)]
    return np.concatenate([np.empty(0, np.int64), *parts])
