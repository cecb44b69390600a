"""Some of a trace's prompts as a trace of their own."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from traces import schema
from traces.memory import from_arrays
from traces.scores import RowScores, Scores, attach, load
from traces.trace import Trace


def select(trace: Trace, indices: Sequence[int], heads: Sequence[str] = ()) -> Trace:
    """A trace in memory of some sequences; they keep their numbers.

    A replay of it is the replay of these prompts alone: state that lasts a whole run passes over
    the others. It has no timing samples.

    Args:
        trace: of rows.
        indices: ascending, of sequences.
        heads: whose scores come along.

    Raises:
        TraceError: a head's scores are missing.
    """
    offsets, branch = trace.position_offsets, trace.branch_offsets
    rows = _ranges(offsets, indices)
    off = _ranges(branch, rows)
    keys = ("sequence", "position")
    chosen = from_arrays(
        trace.sequences.take(pa.array(indices, pa.int64())).to_pydict(),
        {
            name: trace.positions(name)[rows]
            for name in schema.POSITIONS.names
            if trace.has("positions", name) and name not in keys
        },
        {
            name: trace.branches(name)[off]
            for name in schema.BRANCHES_WITH_TARGET.names
            if trace.has("branches", name)
        },
        max_draft=trace.max_draft,
        max_new_tokens=trace.max_new_tokens,
        eos_token_ids=trace.eos_token_ids,
        sampler=trace.sampler,
        vocab_size=trace.manifest.vocab_size,
    )
    for head in heads:
        chosen = attach(chosen, head, _of(load(trace, head), rows, off))
    return chosen


def _of(scores: Scores, rows: np.ndarray, off: np.ndarray) -> Scores:
    if isinstance(scores, RowScores):
        return RowScores(scores.path[rows], scores.branches[off])
    return type(scores)(scores.values[rows])


def _ranges(offsets: np.ndarray, indices: Sequence[int] | np.ndarray) -> np.ndarray:
    """Rows offsets[i] to offsets[i + 1] of every i, end to end."""
    parts = [np.arange(offsets[i], offsets[i + 1]) for i in indices]
    return np.concatenate([np.empty(0, np.int64), *parts])
