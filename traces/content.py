"""What the files of a trace hold, against its manifest and against each other."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa

from traces import files, schema, seen
from traces.checks import FileRows
from traces.drafters.kind import Shard
from traces.errors import TraceError
from traces.looked import Looked
from traces.manifest import Manifest

SEQUENCES = "sequences.parquet"
_MOST_TOKENS = 2**24  # of a prompt: no context is longer
_THREADS = min(4, os.cpu_count() or 1)  # shards that are looked at, and in memory, at a time


def check_listed(folder: Path, manifest: Manifest) -> None:
    """Refuse a manifest whose counts contradict each other; reads nothing.

    Raises:
        TraceError: as said.
    """
    listed = manifest.files.get(SEQUENCES)
    if manifest.attached_to is None:
        if listed is None:
            raise TraceError(f"{folder / 'manifest.json'}: {SEQUENCES} is not listed")
        if listed.rows != manifest.n_prompts:
            raise TraceError(
                f"{folder / 'manifest.json'}: n_prompts is {manifest.n_prompts}, but"
                f" {SEQUENCES} has {listed.rows} rows"
            )
    for table in [*manifest.tables, *manifest.with_state]:
        found = manifest.shard_files(table)
        # Counted first: a number of shards that is made up may be too large for a list of names.
        if len(found) == manifest.n_shards and found == _shards(table, manifest):
            continue
        missing = f"{table}/{len(found):05d}.parquet"
        if len(found) < manifest.n_shards and manifest.n_shards < 10**6:
            missing = next(name for name in _shards(table, manifest) if name not in found)
            raise TraceError(f"{folder / missing}: the manifest does not list it")
        raise TraceError(
            f"{folder / 'manifest.json'}: {len(found)} files of {table}, not {manifest.n_shards}"
        )


def _shards(table: str, manifest: Manifest) -> list[str]:
    return [f"{table}/{k:05d}.parquet" for k in range(manifest.n_shards)]


def check(folder: Path, manifest: Manifest, outputs: pa.Table | None = None) -> Looked | None:
    """Refuse a trace whose recorded rows are not those that were written, or make no sense.

    Each trace is looked at once: as long as its files are left alone, that it was fine is
    remembered (`seen`). Its content is, too: of a copy the files' hashes alone are taken. Tables
    with states are not looked at here, see `check_states`.

    Args:
        folder: of the trace, or of a drafter that was attached to one.
        manifest: of the folder.
        outputs: the sequences of the recording, checked, where a drafter was attached to it.

    Returns:
        What it has read; None if it was looked at before.

    Raises:
        TraceError: the first problem.
    """
    names = [name for table in manifest.tables for name in manifest.shard_files(table)]
    names = names if outputs is not None else [SEQUENCES, *names]
    if seen.is_known(folder, manifest, names):
        return None
    before, fine = seen.stamps(folder, names), seen.makes_sense(manifest)
    looked = Looked(manifest)
    for problem in () if fine else check_rows(folder, manifest, False, looked, outputs):
        raise TraceError(problem)
    for name in names:
        if name not in looked.hashed:  # a kind of drafter need not look at all of its tables
            files.check_hash(folder, name, manifest.files[name])
    seen.remember(folder, manifest, names, before)
    if not fine:
        seen.note(manifest)
    return looked


def check_states(folder: Path, manifest: Manifest, table: str) -> None:
    """Refuse a table with states whose bytes are not those that were written.

    Raises:
        TraceError: the first problem.
    """
    names = manifest.shard_files(table)
    if seen.is_known(folder, manifest, names):
        return
    before = seen.stamps(folder, names)
    for name in names:
        files.check_hash(folder, name, manifest.files[name])
    seen.remember(folder, manifest, names, before)


def check_files(folder: Path, manifest: Manifest) -> Iterator[str]:
    """A line for each file that is not what the manifest lists, or not listed."""
    for name, info in sorted(manifest.files.items()):
        try:
            files.check_hash(folder, name, info)
        except TraceError as error:
            yield str(error)
    tables = [*manifest.tables, *manifest.with_state]
    wanted = [f"{table}/{k:05d}.parquet" for table in tables for k in range(manifest.n_shards)]
    for name in wanted if manifest.attached_to else [SEQUENCES, *wanted]:
        if name not in manifest.files:
            yield f"{folder / name}: the manifest does not list it"
    for file in sorted([*folder.glob("*.parquet"), *folder.glob("*/*.parquet")]):
        name = file.relative_to(folder).as_posix()
        left = name.startswith((".", "parts/"))  # by a writer that was killed: no one reads it
        if name not in manifest.files and not left:
            yield f"{file}: not listed in the manifest"


def check_rows(
    folder: Path,
    manifest: Manifest,
    states: bool = True,
    looked: Looked | None = None,
    outputs: pa.Table | None = None,
) -> Iterator[str]:
    """A line for each row that is wrong.

    Args:
        folder: of the trace.
        manifest: whose files are there.
        states: look at the tables that hold states too.
        looked: take the hash of each file that is read, too, and note it and its columns here;
            None: the files were found to have the hashes that the manifest lists.
        outputs: see `check`.
    """
    try:
        problems: list[str] = []
        if outputs is None:
            sequences = _read(folder, SEQUENCES, manifest, schema.SEQUENCES, looked)
            if looked is not None:
                looked.sequences = sequences
            all_of_them = range(manifest.n_prompts)
            problems = list(_check_sequences(folder / SEQUENCES, sequences, manifest, all_of_them))
        else:
            sequences = outputs
        yield from problems
        if problems:
            return

        def shard_problems(shard: int) -> list[str]:
            part = sequences.slice(shard * manifest.batch_size, manifest.batch_size)
            rows = partial(_shard_rows, folder, manifest, shard, looked)
            width = partial(_state_width, folder, manifest)
            kind = manifest.drafter
            return list(kind.check_shard(Shard(folder, manifest, part, rows, width, states)))

        with ThreadPoolExecutor(_THREADS) as pool:
            try:
                for found in pool.map(shard_problems, range(manifest.n_shards)):
                    yield from found
            finally:  # whoever asked for the first problem alone waits for no others
                pool.shutdown(cancel_futures=True)
    except TraceError as error:
        yield str(error)


def makes_sense(
    folder: Path,
    manifest: Manifest,
    numbers: range,
    sequences: pa.Table,
    tables: Mapping[str, pa.Table],
) -> bool:
    """Whether `check` would find nothing in a shard that is about to be written.

    Args:
        folder: of the trace.
        manifest: its header.
        numbers: of the shard's sequences.
        sequences: of the shard, `schema.SEQUENCES`.
        tables: its rows, of each of the kind's tables.
    """
    if any(_check_sequences(folder / SEQUENCES, sequences, manifest, numbers)):
        return False

    def rows(table: str, wanted: pa.Schema) -> FileRows:
        found, file = tables[table], folder / table
        return FileRows(file, {field.name: _column(found[field.name], file) for field in wanted})

    shard = Shard(folder, manifest, sequences, rows, lambda: 0, states=False)
    try:
        return not any(manifest.drafter.check_shard(shard))
    except TraceError:
        return False


def _check_sequences(
    file: Path, table: pa.Table, manifest: Manifest, numbers: range
) -> Iterator[str]:
    for field in schema.SEQUENCES:
        if not field.nullable and table[field.name].null_count:
            yield f"{file}: column {field.name}: a value is null"
            return
    key = table["sequence"].to_numpy()
    if not np.array_equal(key, np.arange(numbers.start, numbers.stop)):
        yield f"{file}: the sequences are not {numbers.start} to {numbers.stop - 1}, each once"
        return
    known = {"n_prompt": "prompt_tokens", "n_output": "output_tokens"}
    if not manifest.drafter.known_outputs:
        del known["n_output"]
    for count, tokens in known.items():
        lengths = np.diff(table[tokens].combine_chunks().offsets.to_numpy())
        wrong = table[count].to_numpy() != lengths
        for s in np.flatnonzero(wrong):
            yield f"{file}: sequence {s}: {count} is not the length of {tokens}"
    for s in np.flatnonzero(table["n_prompt"].to_numpy() > _MOST_TOKENS):
        yield f"{file}: sequence {s}: n_prompt is {table['n_prompt'][s]}"
    longest = manifest.max_new_tokens
    eos = set(manifest.eos_token_ids)
    ends = (table[name].to_pylist() for name in ("n_output", "finish_reason"))
    for s, (length, reason, last) in enumerate(zip(*ends, _last_tokens(table), strict=True)):
        if not 1 <= length <= longest:
            yield f"{file}: sequence {s}: {length} output tokens, not 1 to {longest}"
        elif reason not in schema.FINISH_REASONS:
            yield f"{file}: sequence {s}: finish_reason is {reason!r}"
        elif not manifest.drafter.known_outputs:
            continue
        elif last in eos:
            if reason != "eos":
                yield f"{file}: sequence {s}: ends in EOS, but finish_reason is {reason!r}"
        elif reason == "unknown" and manifest.source is not None:
            continue
        elif reason != "length" or length != longest:
            yield f"{file}: sequence {s}: {reason!r} at {length} tokens, the last of them no EOS"


def _last_tokens(table: pa.Table) -> list[int | None]:
    """The last output token of each sequence; None where there is none."""
    tokens = table["output_tokens"].combine_chunks()
    lengths = np.diff(tokens.offsets.to_numpy())
    last = pa.array(tokens.offsets.to_numpy()[1:] - 1, mask=lengths == 0)
    return tokens.values.take(last).to_pylist()


def _read(
    folder: Path, name: str, manifest: Manifest, wanted: pa.Schema, looked: Looked | None
) -> pa.Table:
    types = {field.name: field.type for field in wanted}
    if looked is None:
        return files.read(folder, name, manifest.files[name], types)
    table = files.read_hashed(folder, name, manifest.files[name], types)
    looked.hashed.add(name)
    return table


def _state_width(folder: Path, manifest: Manifest) -> int:
    return files.list_width(folder / f"{manifest.with_state[0]}/00000.parquet", "state")


def _shard_rows(
    folder: Path,
    manifest: Manifest,
    shard: int,
    looked: Looked | None,
    table: str,
    wanted: pa.Schema,
) -> FileRows:
    name = f"{table}/{shard:05d}.parquet"
    file, found = folder / name, _read(folder, name, manifest, wanted, looked)
    rows = FileRows(file, {field.name: _column(found[field.name], file) for field in wanted})
    if looked is not None:
        looked.keep(table, shard, rows.columns)
    return rows


def _column(column: pa.ChunkedArray, file: Path) -> np.ndarray:
    """A column without nulls as an array, which is no copy where it need not be one."""
    is_number = pa.types.is_integer(column.type) or pa.types.is_floating(column.type)
    if is_number and column.num_chunks == 1 and not column.null_count:
        return column.chunk(0).to_numpy()
    out = files.empty(column.type, len(column))
    files.fill(out, column, file)
    return out
