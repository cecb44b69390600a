"""Some of a trace's prompts as a trace of their own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa

from traces import parquet, schema, spans
from traces.arrays import count_up
from traces.errors import TraceError
from traces.manifest import Manifest
from traces.memory import Arrays
from traces.scores import NodeScores, RowScores, Scores, attach, load, with_table
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
    the others. Its manifest says what the whole was recorded with. Hidden states, mixed rows and
    drafters that were attached are dropped; experts and spans come along.

    `writer.save` writes a greedy one, numbered anew. Draws of a sampled trace are keyed by the
    numbers. A live run could not repeat those of a renumbered cut, so only the first prompts of a
    sampled trace can be written.

    Args:
        trace: of rows.
        indices: of sequences, from 0, ascending; at least one.
        heads: whose scores come along.
        max_new_tokens: T_max, no more than the trace's: longer outputs and branches are cut, to
            what would have been recorded (draws do not depend on it). None: the trace's.
        latency: its timing samples. Times are dropped unless they are given: those of the trace
            are `trace.latency()`.

    Raises:
        TraceError: the trace is a lattice, indices do not ascend or are not of its sequences, a
            head's scores are missing, max_new_tokens is out of range, or latency is no table of
            samples.
    """
    budget = trace.max_new_tokens if max_new_tokens is None else max_new_tokens
    _check(trace, budget, latency)
    chosen = _chosen(indices, trace.n_sequences)
    begins = trace.position_offsets[chosen]
    lengths = np.minimum(trace.position_offsets[chosen + 1] - begins, budget)
    rows = _ranges(begins, begins + lengths)
    room = np.maximum(budget - 1 - count_up(lengths), 0)
    branch = trace.branch_offsets[rows]
    off = _ranges(branch, np.minimum(trace.branch_offsets[rows + 1], branch + room))
    header = _header(trace.manifest, len(chosen), budget)
    columns = _experts(trace, chosen, lengths, budget)
    columns |= {"positions": _columns(trace, "positions", rows)}
    columns |= {"branches": _columns(trace, "branches", off)}
    sizes = {"positions": len(rows), "branches": len(off), "experts": _length(columns)}
    sequences = _sequences(trace, chosen, lengths)
    part = _with_spans(trace, Trace(header, Arrays(header, sequences, columns, sizes, latency)))
    for head in heads:
        part = attach(part, head, _of(load(trace, head), rows, off))
    return part


def select_trees(
    trace: Trace,
    indices: Sequence[int],
    latency: pa.Table | None = None,
    heads: Sequence[str] = (),
) -> Trace:
    """A trace in memory of the trees of some sequences; they keep numbers, T_max and spans.

    Args:
        trace: of trees.
        indices: see `select`.
        latency: likewise.
        heads: whose scores of nodes come with it.

    Raises:
        TraceError: see `select`.
    """
    if trace.manifest.kind != "tree":
        raise TraceError("the trace holds no trees")
    _check_latency(latency)
    chosen = _chosen(indices, trace.n_sequences)
    begins = trace.position_offsets[chosen]
    lengths = trace.position_offsets[chosen + 1] - begins
    starts = _ranges(begins, begins + lengths)
    offsets = trace.offsets("tree")
    rows = _ranges(offsets[starts], offsets[starts + 1])
    names = [name for name in schema.TREE.names if trace.has("tree", name)]
    columns = {"tree": {name: trace.column("tree", name)[rows] for name in names}}
    header = _header(trace.manifest, len(chosen), trace.max_new_tokens)
    sequences = _sequences(trace, chosen, lengths)
    source = Arrays(header, sequences, columns, {"tree": len(rows)}, latency)
    part = _with_spans(trace, Trace(header, source))
    for head in heads:
        found = load(trace, head)
        assert isinstance(found, NodeScores)
        part = attach(part, head, NodeScores(found.values[rows]))
    return part


def _with_spans(trace: Trace, part: Trace) -> Trace:
    """A part with the spans of the whole, if it has any."""
    table = spans.of_part(trace, part)
    return part if table is None else with_table(part, spans.FILE, table)


def _check(trace: Trace, budget: int, latency: pa.Table | None) -> None:
    trace.manifest.drafter.refuse("select")
    if not 1 <= budget <= trace.max_new_tokens:
        raise TraceError(
            f"max_new_tokens must be from 1 to the trace's {trace.max_new_tokens}, not {budget}"
        )
    _check_latency(latency)


def _check_latency(latency: pa.Table | None) -> None:
    if latency is None:
        return
    if not isinstance(latency, pa.Table):
        found = type(latency).__name__
        raise TraceError(f"latency must be timing samples, such as trace.latency(), not {found}")
    types = {field.name: field.type for field in schema.LATENCY}
    parquet.check_columns(latency.schema, types, Path("latency"), TraceError)


def _chosen(indices: Sequence[int], n_sequences: int) -> np.ndarray:
    """The indices as an array, (n,) int64, n >= 1."""
    if not n_sequences:
        raise TraceError("the trace has no sequences: there is nothing to select")
    try:
        given = np.asarray(indices)
    except ValueError:  # lists in it, of several lengths
        given = np.empty(0)
    if (
        given.ndim != 1
        or not given.size
        or given.dtype.kind not in "iu"
        or not 0 <= given[0] <= given[-1] < n_sequences
        or not np.all(given[1:] > given[:-1])
    ):
        raise TraceError(
            f"indices must ascend within 0..{n_sequences - 1}: one or more whole numbers, each once"
        )
    return given.astype(np.int64)


def _header(whole: Manifest, n_sequences: int, budget: int) -> Manifest:
    """What is said of the whole, but for what is not true of some of its prompts' rows."""
    return replace(
        whole,
        max_new_tokens=budget,
        complete=True,
        batch_size=n_sequences,
        n_prompts=n_sequences,
        prompts_sha256=None,  # of all prompts: a recording of them must not go on in the cut
        near_ties=0,  # of all tokens, likewise
        hidden=False,
        mix=0.0,
        files={},
    )


def _sequences(trace: Trace, chosen: np.ndarray, lengths: np.ndarray) -> dict[str, list]:
    columns = trace.sequences.take(pa.array(chosen)).to_pydict()
    for k, length in enumerate(lengths.tolist()):
        if length < columns["n_output"][k]:
            columns["n_output"][k], columns["finish_reason"][k] = length, "length"
            columns["output_tokens"][k] = columns["output_tokens"][k][:length]
    return columns


def _columns(trace: Trace, table: str, rows: np.ndarray) -> dict[str, np.ndarray]:
    names = {"positions": schema.POSITIONS, "branches": schema.BRANCHES_WITH_TARGET}[table].names
    return {name: trace.column(table, name)[rows] for name in names if trace.has(table, name)}


def _experts(
    trace: Trace, chosen: np.ndarray, lengths: np.ndarray, budget: int
) -> dict[str, dict[str, np.ndarray]]:
    """The table of experts of some sequences, cut as outputs and branches are; or none."""
    if trace.manifest.experts is None:
        return {}
    names = (*schema.WITH_STATE["experts"].names, schema.state_name("experts"))
    key = {name: trace.column("experts", name) for name in names[:-1]}
    numbers = trace.sequences["sequence"].to_numpy()[chosen]
    place = np.minimum(np.searchsorted(numbers, key["sequence"]), len(numbers) - 1)
    position, depth, last = key["position"], key["depth"], lengths[place]
    on_path = (depth == 0) & (position <= np.minimum(last + 1, budget))
    off_path = (depth > 0) & (position <= last) & (depth <= budget - position)
    kept = (numbers[place] == key["sequence"]) & (on_path | off_path)
    return {"experts": {name: trace.column("experts", name)[kept] for name in names}}


def _length(columns: dict[str, dict[str, np.ndarray]]) -> int:
    """Rows of experts."""
    return len(columns["experts"]["depth"]) if "experts" in columns else 0


def _of(scores: Scores, rows: np.ndarray, off: np.ndarray) -> Scores:
    if isinstance(scores, RowScores):
        return RowScores(scores.path[rows], scores.branches[off], scores.lag)
    return type(scores)(scores.values[rows])


def _ranges(begins: np.ndarray, ends: np.ndarray) -> np.ndarray:
    """The numbers from each begin to before its end, end to end."""
    parts = [np.arange(a, b) for a, b in zip(begins, ends, strict=True)]
    return np.concatenate([np.empty(0, np.int64), *parts])
