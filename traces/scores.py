"""A head's predicted acceptance of every draft token: `scores/NAME.parquet`.

A head that looks at one token's state gives one score a row. A head that looks at the depth inside
the draft, or at where the draft began, gives one for each (start, depth).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from traces.arrays import read_only, rounded
from traces.bundle import absent
from traces.errors import TraceError
from traces.trace import Trace

_READ = ("token", "chain")  # passes of drafters that read the tokens of their drafts
_FACTS = b"simkit"  # where the table's metadata holds what it was made from, as JSON


@dataclass(frozen=True, eq=False)
class RowScores:
    """One score for each row.

    Attributes:
        path: (n_positions,) float32, of the on-path rows.
        branches: (n_branch_rows,) float32, of the branch rows.
        lag: 1 if a decoder knows a token's score only when the next one is drafted, else 0. Then
            the token of a row that no other row of its draft follows has no score: NaN.
    """

    path: np.ndarray
    branches: np.ndarray
    lag: int = 0


@dataclass(frozen=True, eq=False)
class StartScores:
    """One score for each token of the draft from each start.

    Attributes:
        values: (n_positions, D) float32; row r belongs to the draft that starts at on-path row r,
            column j - 1 to its token of depth j. NaN where no token was recorded, or none scored.
    """

    values: np.ndarray


@dataclass(frozen=True, eq=False)
class NodeScores:
    """One score for each node of trees.

    Attributes:
        values: (n_rows,) float32, in the order of the trace's nodes, of each one's token, from the
            state that has consumed it; NaN where the draft has not read it.
    """

    values: np.ndarray


Scores = RowScores | StartScores | NodeScores


class Followed(NamedTuple):
    """Rows whose token a later row of the same draft has consumed, as indices.

    Attributes:
        path: on-path rows, each followed by the next on-path row.
        opening: rejected on-path rows, each followed by the first row of its branch.
        branches: branch rows, each followed by the next one of its branch.
    """

    path: np.ndarray
    opening: np.ndarray
    branches: np.ndarray


def followed(trace: Trace) -> Followed:
    """The rows of a trace whose token has a score where scores lag."""
    accepted = trace.positions("accepted")
    last = np.isin(np.arange(len(accepted)) + 1, trace.position_offsets)
    ends = trace.branch_offsets if trace.n_branch_rows else np.zeros(len(accepted) + 1, np.int64)
    inner = ~np.isin(np.arange(trace.n_branch_rows) + 1, ends)
    return Followed(
        np.flatnonzero(accepted & ~last), np.flatnonzero(np.diff(ends) > 0), np.flatnonzero(inner)
    )


def file_name(name: str) -> str:
    """Where a trace keeps the scores of that name."""
    return f"scores/{name}.parquet"


def facts(trace: Trace, name: str) -> dict[str, Any] | None:
    """What the scores of that name were made from; None where the trace has none."""
    table = trace.extra(file_name(name))
    return None if table is None else _facts(table)


def lack(trace: Trace, name: str) -> str:
    """Why `facts` gives None."""
    return absent(trace.path, file_name(name)) or f"no scores of {name}"


def load(trace: Trace, name: str) -> Scores:
    """Read scores.

    Raises:
        TraceError: there are none of that name, they belong to another trace, a row has none, or
            one is no probability.
    """
    table = trace.extra(file_name(name))
    where = f"{trace.path or 'the trace'}: scores of {name}"
    if table is None:
        if not trace.manifest.drafter.can("scores"):
            raise TraceError(f"{where} are missing: {trace.manifest.drafter.lacks['scores']}")
        if trace.manifest.kind == "tree" and trace.manifest.draft_passes not in _READ:
            raise TraceError(
                f"{where} are missing: this drafter reads none of its own tokens, no head can judge"
                " them"
            )
        if (said := absent(trace.path, file_name(name))) is not None:
            raise TraceError(said)
        raise TraceError(f"{where} are missing; write them with simkit score")
    # First: a program that rewrites the file may drop what it was made from too.
    for column in ("sequence", "position or start", "depth or node", "score"):
        if not set(column.split(" or ")) & set(table.column_names):
            raise TraceError(f"{where}: column {column} is missing")
    if len(set(table.column_names)) < table.num_columns:
        raise TraceError(f"{where}: a column is there twice")
    if _facts(table).get("trace") != trace.hash:
        raise TraceError(f"{where} belong to another trace; write them again with simkit score")
    try:
        score = table["score"].to_numpy().astype(np.float32)
        without = _without(trace, table)
        score[without] = np.nan  # older files have 1 there
        if not np.all((score >= 0) & (score <= 1) | without):
            raise TraceError(f"{where} hold a value that is no probability")
        made = next(make for key, make in _MADE.items() if key in table.column_names)
        return made(trace, table, score)
    except (ValueError, IndexError):
        raise TraceError(f"{where} do not fit the trace's rows") from None


def save(
    folder: str | Path, trace: Trace, name: str, scores: Scores, head: Mapping, bits: int = 0
) -> None:
    """Write scores as float16 beside the trace that they belong to.

    Args:
        folder: of the trace.
        trace: the one in that folder.
        name: of the scores.
        scores: all of them.
        head: facts about the head that gave them, for JSON.
        bits: significant bits to which they are rounded; 0: those of a float16.

    Raises:
        TraceError: the trace is unfinished, or cannot be written.
    """
    from traces.writer import add_file  # here: a replay reads scores and writes nothing

    add_file(folder, file_name(name), to_table(trace, scores, head, bits))


def attach(trace: Trace, name: str, scores: Scores) -> Trace:
    """The same trace with scores, in memory."""
    return with_table(trace, file_name(name), to_table(trace, scores))


def with_table(trace: Trace, name: str, table: pa.Table) -> Trace:
    """The same trace with one more table that is read by name, in memory."""
    return Trace(trace.manifest, _With(trace, name, table), trace.path, trace.recording)


def to_table(
    trace: Trace, scores: Scores, head: Mapping[str, Any] | None = None, bits: int = 0
) -> pa.Table:
    """Scores as a table, rounded to float16, or to fewer significant bits."""
    if isinstance(scores, RowScores):
        columns = {name: _joined(trace, name) for name in ("sequence", "position", "depth")}
        score = np.concatenate([scores.path, scores.branches])
    elif isinstance(scores, NodeScores):
        there = np.flatnonzero(~np.isnan(scores.values))
        columns = {name: trace.column("tree", name)[there] for name in _NODE}
        score = scores.values[there]
    else:
        row, depth = np.nonzero(~np.isnan(scores.values))
        sequence = np.searchsorted(trace.position_offsets, row, side="right") - 1
        columns = {
            "sequence": trace.sequences["sequence"].to_numpy()[sequence],
            "start": (row - trace.position_offsets[sequence] + 1).astype(np.int32),
            "depth": (depth + 1).astype(np.int32),
        }
        score = scores.values[row, depth]
    score = rounded(score, bits) if bits else score
    table = pa.table({**columns, "score": score.astype(np.float16)})
    lag = {"lag": scores.lag} if isinstance(scores, RowScores) and scores.lag else {}
    made_from = {"trace": trace.hash, "head": dict(head or {}) | lag}
    return table.replace_schema_metadata({_FACTS: json.dumps(made_from, sort_keys=True)})


def _facts(table: pa.Table) -> dict[str, Any]:
    try:
        found = json.loads((table.schema.metadata or {})[_FACTS])
    except (KeyError, ValueError, RecursionError):
        return {}
    head = found.get("head", {}) if isinstance(found, dict) else None
    whole = isinstance(head, dict) and isinstance(head.get("max_draft", 0), int)
    return found if whole else {}


def _joined(trace: Trace, key: str) -> np.ndarray:
    """A key of all rows, branches behind the path."""
    path = np.zeros(trace.n_positions, np.int32) if key == "depth" else trace.positions(key)
    return np.concatenate([path, trace.branches(key)]) if trace.n_branch_rows else path


def _without(trace: Trace, table: pa.Table) -> np.ndarray:
    """Which rows of a table of scores have none, bool; see `RowScores.lag`."""
    if "position" not in table.column_names or not _lag(table):
        return np.zeros(table.num_rows, np.bool_)
    path, opening, branches = followed(trace)
    without = np.ones(trace.n_positions + trace.n_branch_rows, np.bool_)
    without[np.concatenate([path, opening, branches + trace.n_positions])] = False
    if len(without) != table.num_rows:
        raise ValueError
    return without


def _lag(table: pa.Table) -> int:
    return 1 if _facts(table).get("head", {}).get("lag") == 1 else 0


def _by_row(trace: Trace, table: pa.Table, score: np.ndarray) -> RowScores:
    if not trace.manifest.drafter.can("path"):
        raise ValueError
    n = trace.n_positions
    if len(score) != n + trace.n_branch_rows:
        raise ValueError
    for key in ("sequence", "position", "depth"):
        if not np.array_equal(table[key].to_numpy(), _joined(trace, key)):
            raise ValueError
    return RowScores(read_only(score[:n]), read_only(score[n:]), _lag(table))


def _by_node(trace: Trace, table: pa.Table, score: np.ndarray) -> NodeScores:
    if trace.manifest.kind != "tree":
        raise ValueError
    keys = trace.column("tree", "sequence"), trace.column("tree", "start")
    begin = trace.offsets("tree")
    sequence, start, node = (table[name].to_numpy().astype(np.int64) for name in _NODE)
    numbers = trace.sequences["sequence"].to_numpy()
    index = np.searchsorted(numbers, sequence)
    row = begin[trace.position_offsets[index] + start - 1] + node
    for key, mine in zip(keys, (sequence, start), strict=True):
        if not np.array_equal(key[row], mine):
            raise ValueError
    parent = trace.column("tree", "parent")
    above = np.arange(len(parent)) - trace.column("tree", "node") + parent
    read = np.zeros(len(parent), np.bool_)
    read[above[parent >= 0]] = True
    if not np.array_equal(np.sort(row), np.flatnonzero(read)):  # each that has children, no other
        raise ValueError
    values = np.full(len(parent), np.nan, np.float32)
    values[row] = score
    return NodeScores(read_only(values))


def _by_start(trace: Trace, table: pa.Table, score: np.ndarray) -> StartScores:
    if trace.manifest.kind == "tree":
        raise ValueError
    sequence, start, depth = (table[key].to_numpy() for key in ("sequence", "start", "depth"))
    numbers = trace.sequences["sequence"].to_numpy()
    index = np.searchsorted(numbers, sequence)
    if not np.array_equal(numbers[index], sequence) or np.any(start < 1) or np.any(depth < 1):
        raise ValueError
    if np.any(start > np.diff(trace.position_offsets)[index]):
        raise ValueError
    values = np.full((trace.n_positions, int(depth.max(initial=1))), np.nan, np.float32)
    values[trace.position_offsets[index] + start - 1, depth - 1] = score
    return StartScores(read_only(values))


_NODE = ("sequence", "start", "node")
_MADE = {"position": _by_row, "node": _by_node, "depth": _by_start}  # by a column that it has


class _With:
    """A trace's source with one more table."""

    def __init__(self, trace: Trace, name: str, table: pa.Table) -> None:
        self._trace = trace
        self._name = name
        self._table = table
        self.columns = trace._source.columns
        self.read = trace._source.read
        self.rows = trace._source.rows

    def sequences(self) -> pa.Table:
        return self._trace.sequences

    def extra(self, name: str) -> pa.Table | None:
        return self._table if name == self._name else self._trace.extra(name)

    def hash(self) -> str:
        return self._trace.hash
