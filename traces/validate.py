"""Check all of a trace: the bytes of its files, and what its rows say."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa

from traces import files, schema
from traces.checks import Rows
from traces.drafters.kind import Shard
from traces.errors import TraceError
from traces.manifest import Manifest
from traces.trace import Trace, find

_SEQUENCES = "sequences.parquet"


def validate(path_or_name: str | Path) -> list[str]:
    """Check hashes, keys, ranges and the rules that tie rows to each other.

    Args:
        path_or_name: a trace's folder, or the name of a bundled trace.

    Returns:
        One line for each problem: the file, the sequence and the position, and what is wrong.
        Many problems of one kind in one file are counted after the first few. Empty: all is well.

    Raises:
        TraceError: there is no finished trace there.
    """
    folder, manifest = find(path_or_name)
    problems = list(_check_files(folder, manifest))
    # Rows of damaged files say nothing.
    return problems or list(_check_rows(folder, manifest))


def check_schemas(trace: Trace) -> None:
    """Refuse a trace in a folder that lacks a column which all of its kind have; reads no row.

    Raises:
        TraceError: as said, or a file is damaged; the message names the file.
    """
    if trace.path is None:
        return
    for table, wanted in {_SEQUENCES: schema.SEQUENCES, **trace.manifest.tables}.items():
        types = {field.name: field.type for field in wanted}
        names = [table] if table == _SEQUENCES else trace.manifest.shard_files(table)
        for name in names:
            files.check_schema(trace.path, name, types)


def _check_files(folder: Path, manifest: Manifest) -> Iterator[str]:
    for name, info in sorted(manifest.files.items()):
        try:
            files.check_hash(folder, name, info)
        except TraceError as error:
            yield str(error)
    tables = [*manifest.tables, *manifest.with_state]
    wanted = [f"{table}/{k:05d}.parquet" for table in tables for k in range(manifest.n_shards)]
    for name in [_SEQUENCES, *wanted]:
        if name not in manifest.files:
            yield f"{folder / name}: the manifest does not list it"
    for file in sorted([*folder.glob("*.parquet"), *folder.glob("*/*.parquet")]):
        name = file.relative_to(folder).as_posix()
        left = name.startswith((".", "parts/"))  # by a writer that was killed: no one reads it
        if name not in manifest.files and not left:
            yield f"{file}: not listed in the manifest"


def _check_rows(folder: Path, manifest: Manifest) -> Iterator[str]:
    try:
        sequences = _read(folder, _SEQUENCES, manifest, schema.SEQUENCES)
        problems = list(_check_sequences(folder / _SEQUENCES, sequences, manifest))
        yield from problems
        for shard in range(0 if problems else manifest.n_shards):
            part = sequences.slice(shard * manifest.batch_size, manifest.batch_size)
            rows = partial(_shard_rows, folder, manifest, shard)
            width = partial(_state_width, folder, manifest)
            yield from manifest.drafter.check_shard(Shard(folder, manifest, part, rows, width))
        latency = manifest.files.get("latency.parquet")
        if latency is not None:
            yield from _check_latency(folder, manifest)
    except TraceError as error:
        yield str(error)


def _check_sequences(file: Path, table: pa.Table, manifest: Manifest) -> Iterator[str]:
    key = table["sequence"].to_numpy()
    if not np.array_equal(key, np.arange(manifest.n_prompts)):
        yield f"{file}: the sequences are not 0 to {manifest.n_prompts - 1}, each once"
        return
    known = {"n_prompt": "prompt_tokens", "n_output": "output_tokens"}
    if not manifest.drafter.known_outputs:
        del known["n_output"]
    for count, tokens in known.items():
        lengths = np.diff(table[tokens].combine_chunks().offsets.to_numpy())
        wrong = table[count].to_numpy() != lengths
        for s in np.flatnonzero(wrong):
            yield f"{file}: sequence {s}: {count} is not the length of {tokens}"
    longest = manifest.max_new_tokens
    eos = set(manifest.eos_token_ids)
    for s, row in enumerate(
        table.select(["n_output", "output_tokens", "finish_reason"]).to_pylist()
    ):
        length, reason = row["n_output"], row["finish_reason"]
        if not 1 <= length <= longest:
            yield f"{file}: sequence {s}: {length} output tokens, not 1 to {longest}"
        elif reason not in schema.FINISH_REASONS:
            yield f"{file}: sequence {s}: finish_reason is {reason!r}"
        elif not manifest.drafter.known_outputs:
            continue
        elif row["output_tokens"][-1:] and row["output_tokens"][-1] in eos:
            if reason != "eos":
                yield f"{file}: sequence {s}: ends in EOS, but finish_reason is {reason!r}"
        elif reason != "length" or length != longest:
            yield f"{file}: sequence {s}: {reason!r} at {length} tokens, the last of them no EOS"


def _check_latency(folder: Path, manifest: Manifest) -> Iterator[str]:
    table = _read(folder, "latency.parquet", manifest, schema.LATENCY)
    seconds = table["seconds"].to_numpy()
    for row in np.flatnonzero(~(np.isfinite(seconds) & (seconds > 0))):
        yield f"{folder / 'latency.parquet'}: row {row}: seconds is {seconds[row]}"


def _read(folder: Path, name: str, manifest: Manifest, wanted: pa.Schema) -> pa.Table:
    types = {field.name: field.type for field in wanted}
    return files.read(folder, name, manifest.files[name], types)


def _state_width(folder: Path, manifest: Manifest) -> int:
    return files.list_width(folder / f"{manifest.with_state[0]}/00000.parquet", "state")


def _shard_rows(
    folder: Path, manifest: Manifest, shard: int, table: str, wanted: pa.Schema
) -> Rows:
    return _rows(folder, f"{table}/{shard:05d}.parquet", manifest, wanted)


def _rows(folder: Path, name: str, manifest: Manifest, wanted: pa.Schema) -> Rows:
    table = _read(folder, name, manifest, wanted)
    columns = {}
    for field in wanted:
        columns[field.name] = files.empty(field.type, table.num_rows)
        files.fill(columns[field.name], table[field.name], folder / name)
    return Rows(folder / name, columns)
