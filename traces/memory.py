"""A trace over arrays in memory: for tests, benchmarks and studies on made-up data."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from traces import drafters, schema
from traces.arrays import count_up, dtype_of
from traces.drafters.passes import Passes
from traces.errors import TraceError
from traces.manifest import Manifest, SourceInfo
from traces.sampler import Sampler
from traces.trace import Trace

Column = np.ndarray | Sequence[Any] | Callable[[], np.ndarray]


def from_arrays(
    sequences: Mapping[str, Any],
    positions: Mapping[str, Column],
    branches: Mapping[str, Column],
    *,
    max_draft: int,
    max_new_tokens: int,
    eos_token_ids: Sequence[int] = (),
    sampler: Sampler | None = None,
    latency: pa.Table | None = None,
    vocab_size: int | None = None,
    seed: int = 0,
) -> Trace:
    """Build a trace from columns; those left out do not exist in it.

    A column is an array, a list, or a function that makes the array when it is first asked for.

    Args:
        sequences: columns of `schema.SEQUENCES`. `n_output` is needed, others are filled in: keys
            from 0, empty prompts, the target tokens as outputs, `finish_reason` by the last token.
        positions: columns of `schema.POSITIONS`, rows by (sequence, position). `sequence` and
            `position` are filled in from `n_output`.
        branches: columns of `schema.BRANCHES_WITH_TARGET`, rows by (sequence, position, depth).
        max_draft: Γ.
        max_new_tokens: T_max.
        eos_token_ids: tokens that end an output.
        sampler: how tokens were drawn; None is greedy.
        latency: timing samples, `schema.LATENCY`.
        vocab_size: of both models' vocabulary.
        seed: of the keyed draws.

    Raises:
        TraceError: an unknown column, or columns whose lengths or types do not fit.
    """
    given, keys, lengths = _keys(sequences)
    manifest = Manifest(
        max_draft=max_draft,
        max_new_tokens=max_new_tokens,
        vocab_size=vocab_size,
        seed=seed,
        branch_target="target_token" in branches,
        **_of_all(len(lengths), sampler, eos_token_ids),
    )
    columns = {"positions": {**_filled(keys, lengths), **positions}, "branches": dict(branches)}
    rows = {"positions": int(lengths.sum()), "branches": _n_rows(branches)}
    return Trace(manifest, Arrays(manifest, given, columns, rows, latency))


def from_drafts(
    sequences: Mapping[str, Any],
    lattice: Mapping[str, Column],
    *,
    max_draft: int,
    max_new_tokens: int,
    eos_token_ids: Sequence[int] = (),
    sampler: Sampler | None = None,
    latency: pa.Table | None = None,
    draft_passes: Passes = "token",
    source: SourceInfo | None = None,
    kind: str = "lattice",
    draft_ends: bool = False,
) -> Trace:
    """Build a lattice from columns; the arguments are those of `from_arrays`.

    Args:
        sequences: columns of `schema.SEQUENCES`, see `from_arrays`; `finish_reason` is "length"
            unless it is given.
        lattice: columns of `schema.lattice`, rows by (sequence, start, depth).
        max_draft: Γ, the longest of the drafts.
        max_new_tokens: T_max.
        eos_token_ids: tokens that end a draft, where it has a `draft_token`.
        sampler: how tokens were drawn; None is greedy.
        latency: timing samples, `schema.LATENCY`.
        draft_passes: of the draft model, see `Manifest`.
        source: the file that they come from, if they were not recorded.
        kind: of drafter: this one, or another whose rows are in the same table.
        draft_ends: a draft's end is the drafter's own, not that of what was recorded.

    Raises:
        TraceError: an unknown column, or columns whose lengths or types do not fit.
    """
    given, keys, lengths = _keys(sequences)
    manifest = Manifest(
        max_draft=max_draft,
        max_new_tokens=max_new_tokens,
        kind=kind,
        draft_passes=draft_passes,
        draft_ends=draft_ends,
        source=source,
        lattice_columns=tuple(name for name in schema.LATTICE_COLUMNS if name in lattice),
        **_of_all(len(lengths), sampler, eos_token_ids),
    )
    rows = {"lattice": _n_rows(lattice)}
    return Trace(manifest, Arrays(manifest, given, {"lattice": lattice}, rows, latency))


def from_outputs(
    sequences: Mapping[str, Any],
    *,
    max_new_tokens: int,
    eos_token_ids: Sequence[int] = (),
    sampler: Sampler | None = None,
    source: SourceInfo | None = None,
) -> Trace:
    """Build a recording of the target alone from its outputs' tokens.

    Args:
        sequences: columns of `schema.SEQUENCES`, see `from_arrays`; `output_tokens`, a list for
            each, is needed, and `n_output` follows from it.
        max_new_tokens: T_max.
        eos_token_ids: tokens that end an output.
        sampler: how tokens were drawn; None is greedy.
        source: the file that they come from, if they were not recorded.

    Raises:
        TraceError: an unknown column, or columns whose lengths or types do not fit.
    """
    outputs = pa.array(sequences["output_tokens"], pa.list_(pa.int32()))
    lengths = np.diff(outputs.offsets.to_numpy())
    given = {**sequences, "output_tokens": outputs, "n_output": lengths}
    given, *_ = _keys(given)
    tokens = outputs.flatten().to_numpy()
    rows = {
        "sequence": np.repeat(given["sequence"], lengths),
        "position": count_up(lengths),
        "target_token": tokens,
    }
    manifest = Manifest(
        max_draft=1,
        max_new_tokens=max_new_tokens,
        kind="target",
        coupling="target",
        source=source,
        **_of_all(len(lengths), sampler, eos_token_ids),
    )
    return Trace(manifest, Arrays(manifest, given, {"target": rows}, {"target": len(tokens)}))


def from_steps(
    sequences: Mapping[str, Any],
    log: Mapping[str, np.ndarray],
    source: SourceInfo,
    room: int = 0,
    shared_path: bool = False,
    unordered: bool = False,
    totals: bool = False,
    draft_passes: Passes = "token",
    live: pa.Table | None = None,
) -> Trace:
    """Build a log of steps from their counts.

    Args:
        sequences: columns of `schema.SEQUENCES`, see `from_arrays`, `n_output` among them; why
            outputs ended need not be known.
        log: columns of `schema.LOG`, rows by (sequence, step).
        source: the file that they come from.
        room: budget behind the longest output, in tokens.
        shared_path: see `Manifest`.
        unordered: see `Manifest`.
        totals: see `Manifest`.
        draft_passes: see `Manifest`.
        live: times of the steps, `schema.LIVE`.

    Raises:
        TraceError: an unknown column, or columns whose lengths or types do not fit.
    """
    given, _, lengths = _keys(sequences)
    n = len(lengths)
    given.setdefault("finish_reason", ["unknown"] * n)
    manifest = Manifest(
        max_draft=max(1, int(np.max(log["drafted"], initial=0))),
        max_new_tokens=int(given["n_output"].max(initial=1)) + room,
        kind="log",
        draft_passes=draft_passes,
        coupling="target",
        shared_path=shared_path,
        unordered=unordered,
        totals=totals,
        source=source,
        **_of_all(n),
    )
    rows = {"log": len(log["drafted"])}
    return Trace(manifest, Arrays(manifest, given, {"log": log}, rows, live=live))


def _of_all(
    n: int, sampler: Sampler | None = None, eos_token_ids: Sequence[int] = ()
) -> dict[str, Any]:
    """What the manifest says of any trace of `n` sequences in memory: one shard, and whole."""
    return {
        "sampler": sampler or Sampler(),
        "eos_token_ids": tuple(sorted(eos_token_ids)),
        "batch_size": max(1, n),
        "n_prompts": n,
        "complete": True,
    }


class Arrays:
    """Columns in memory as a `Source`.

    Attributes:
        fingerprint: what `hash` covers instead of all values, for contents that are a function of
            it.
    """

    fingerprint: str | None = None

    def __init__(
        self,
        manifest: Manifest,
        sequences: Mapping[str, Any],
        columns: Mapping[str, Mapping[str, Column]],
        rows: Mapping[str, int | Callable[[], int]],
        latency: pa.Table | None = None,
        live: pa.Table | None = None,
    ) -> None:
        self._manifest = manifest
        self._sequences = sequences
        self._columns = columns
        self._rows = rows
        self._extra = {"latency.parquet": latency, "live.parquet": live}
        self._types = known = dict(drafters.get(manifest.kind).widest())
        if experts := manifest.experts:
            known["experts"] = schema.with_state("experts", experts.row_bytes)
        for table, given in columns.items():
            for name, values in given.items():
                if name not in known[table].names:
                    raise TraceError(f"{table}: unknown column {name}")
                if not callable(values):
                    self._check(table, name, values)

    def columns(self, table: str) -> frozenset[str]:
        """Names of a table's columns."""
        return frozenset(self._columns.get(table, ()))

    def rows(self, table: str) -> int:
        """Rows of a table."""
        rows = self._rows.get(table, 0)
        return rows() if callable(rows) else rows

    def read(self, table: str, column: str) -> np.ndarray:
        """One column, as a read-only array of the schema's type.

        Raises:
            TraceError: no such column, or its function makes one that does not fit.
        """
        if column not in self.columns(table):
            raise TraceError(f"{table}: column {column} is not in this trace")
        values = self._columns[table][column]
        return self._check(table, column, values() if callable(values) else values)

    def sequences(self) -> pa.Table:
        """The sequences, with what was not given filled in."""
        given = dict(self._sequences)
        n = len(given["n_output"])
        if "output_tokens" not in given:
            given["output_tokens"] = self._output_tokens(given["n_output"])
        given.setdefault("prompt_tokens", [[]] * n)
        given.setdefault("n_prompt", [len(prompt) for prompt in given["prompt_tokens"]])
        if "finish_reason" not in given:
            eos = self._manifest.eos_token_ids
            last = [out[-1].as_py() if len(out) else None for out in given["output_tokens"]]
            given["finish_reason"] = ["eos" if token in eos else "length" for token in last]
        arrays = [
            pa.array(given[field.name], field.type)
            if field.name in given
            else pa.nulls(n, field.type)
            for field in schema.SEQUENCES
        ]
        return pa.Table.from_arrays(arrays, schema=schema.SEQUENCES)

    def extra(self, name: str) -> pa.Table | None:
        """The timing samples or the live runs, the only tables there may be."""
        return self._extra.get(name)

    def hash(self) -> str:
        """A sha256 over the manifest and the columns, or over the fingerprint."""
        state = hashlib.sha256(self._manifest.content_hash().encode())
        if self.fingerprint is not None:
            state.update(self.fingerprint.encode())
            return state.hexdigest()
        for table, given in sorted(self._columns.items()):
            for name in sorted(given):
                state.update(f"{table}.{name}".encode())
                state.update(np.ascontiguousarray(self.read(table, name)).tobytes())
        state.update(repr(self.sequences().to_pylist()).encode())
        return state.hexdigest()

    def _output_tokens(self, lengths: np.ndarray) -> pa.Array:
        has = "target_token" in self._columns.get("positions", ())
        tokens = self.read("positions", "target_token") if has else np.empty(0, np.int32)
        ends = np.cumsum(lengths) if has else np.zeros(len(lengths))
        offsets = np.concatenate([[0], ends]).astype(np.int32)
        return pa.ListArray.from_arrays(pa.array(offsets), pa.array(tokens))

    def _check(self, table: str, column: str, values: Any) -> np.ndarray:
        shape, kind = _shape(self._types[table].field(column).type, self.rows(table))
        array = np.asarray(values)
        if array.shape != shape:
            raise TraceError(f"{table}: column {column} has shape {array.shape}, not {shape}")
        if array.size and not np.can_cast(array.dtype, kind, "same_kind"):
            raise TraceError(f"{table}: column {column} is {array.dtype}, not {np.dtype(kind)}")
        array = np.array(array, kind, order="C", copy=None).view()
        array.flags.writeable = False
        return array


def _shape(kind: pa.DataType, rows: int) -> tuple[tuple[int, ...], np.dtype]:
    """Of a column as an array: bytes of one length are a row each."""
    if pa.types.is_fixed_size_binary(kind):
        return (rows, kind.byte_width), np.dtype(np.uint8)
    return (rows,), dtype_of(kind)


def _keys(sequences: Mapping[str, Any]) -> tuple[dict[str, Any], np.ndarray, np.ndarray]:
    """The columns of sequences, with `sequence` and `n_output` in any case; and these two."""
    lengths = np.asarray(sequences.get("n_output", ()), np.int32)
    keys = np.asarray(sequences.get("sequence", np.arange(len(lengths))), np.int32)
    if len(keys) != len(lengths) or np.any(np.diff(keys) <= 0):
        raise TraceError("sequences: the keys must ascend, one for each n_output")
    return {**sequences, "sequence": keys, "n_output": lengths}, keys, lengths


def _filled(keys: np.ndarray, lengths: np.ndarray) -> dict[str, Callable[[], np.ndarray]]:
    """The keys of positions."""
    return {"sequence": lambda: np.repeat(keys, lengths), "position": lambda: count_up(lengths)}


def _n_rows(columns: Mapping[str, Column]) -> int | Callable[[], int]:
    """The length of the first column at hand; if all are lazy, one of them must be made."""
    for values in columns.values():
        if not callable(values):
            return len(values)
    first = next(iter(columns.values()), None)
    return (lambda: len(first())) if callable(first) else 0
