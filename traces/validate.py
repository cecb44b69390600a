"""Check all of a trace: the bytes of its files, and what its rows say."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa

from traces import files, schema
from traces.checks import (
    Rows,
    check_branches,
    check_hidden,
    check_keys,
    check_lattice,
    check_mixed,
    check_positions,
)
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
        if name not in manifest.files and not name.startswith("."):
            yield f"{file}: not listed in the manifest"


def _check_rows(folder: Path, manifest: Manifest) -> Iterator[str]:
    try:
        sequences = _read(folder, _SEQUENCES, manifest, schema.SEQUENCES)
        problems = list(_check_sequences(folder / _SEQUENCES, sequences, manifest))
        yield from problems
        check = _check_shard if manifest.kind == "rows" else _check_lattice
        for shard in range(0 if problems else manifest.n_shards):
            part = sequences.slice(shard * manifest.batch_size, manifest.batch_size)
            yield from check(folder, shard, part, manifest)
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
    # The outputs of a lattice need not be known token by token.
    known = {"n_prompt": "prompt_tokens", "n_output": "output_tokens"}
    for count, tokens in list(known.items())[: 1 if manifest.kind == "lattice" else 2]:
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
        elif manifest.kind == "lattice":
            continue
        elif row["output_tokens"][-1:] and row["output_tokens"][-1] in eos:
            if reason != "eos":
                yield f"{file}: sequence {s}: ends in EOS, but finish_reason is {reason!r}"
        elif reason != "length" or length != longest:
            yield f"{file}: sequence {s}: {reason!r} at {length} tokens, the last of them no EOS"


def _check_shard(
    folder: Path, shard: int, sequences: pa.Table, manifest: Manifest
) -> Iterator[str]:
    tables = manifest.tables
    positions, branches = (
        _rows(folder, f"{table}/{shard:05d}.parquet", manifest, tables[table])
        for table in ("positions", "branches")
    )
    key, n_output = sequences["sequence"].to_numpy(), sequences["n_output"].to_numpy()
    problems = list(check_keys(positions, key, n_output))
    yield from problems
    if problems:
        return
    outputs = sequences["output_tokens"].combine_chunks().flatten().to_numpy()
    yield from check_positions(positions, outputs, manifest)
    yield from check_branches(branches, positions, manifest)
    for table in manifest.with_state:
        # All states are of one width, whatever their table and shard.
        width = files.list_width(folder / f"{manifest.with_state[0]}/00000.parquet", "state")
        wanted = schema.with_state(table, width)
        rows = _rows(folder, f"{table}/{shard:05d}.parquet", manifest, wanted)
        if table == "hidden":
            n_prompt = sequences["n_prompt"].to_numpy()
            yield from check_hidden(rows, positions, branches, key, n_prompt)
        else:
            yield from check_mixed(rows, positions, manifest)


def _check_lattice(
    folder: Path, shard: int, sequences: pa.Table, manifest: Manifest
) -> Iterator[str]:
    wanted = manifest.tables["lattice"]
    rows = _rows(folder, f"lattice/{shard:05d}.parquet", manifest, wanted)
    key, n_output = sequences["sequence"].to_numpy(), sequences["n_output"].to_numpy()
    yield from check_lattice(rows, key, n_output, manifest)


def _check_latency(folder: Path, manifest: Manifest) -> Iterator[str]:
    table = _read(folder, "latency.parquet", manifest, schema.LATENCY)
    seconds = table["seconds"].to_numpy()
    for row in np.flatnonzero(~(np.isfinite(seconds) & (seconds > 0))):
        yield f"{folder / 'latency.parquet'}: row {row}: seconds is {seconds[row]}"


def _read(folder: Path, name: str, manifest: Manifest, wanted: pa.Schema) -> pa.Table:
    types = {field.name: field.type for field in wanted}
    return files.read(folder, name, manifest.files[name], types)


def _rows(folder: Path, name: str, manifest: Manifest, wanted: pa.Schema) -> Rows:
    table = _read(folder, name, manifest, wanted)
    columns = {}
    for field in wanted:
        columns[field.name] = files.empty(field.type, table.num_rows)
        files.fill(columns[field.name], table[field.name], folder / name)
    return Rows(folder / name, columns)
