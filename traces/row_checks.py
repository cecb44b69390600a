"""What the files of a trace hold, against its manifest and against each other."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Generator, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path

import numpy as np
import pyarrow as pa

from traces import files, schema, stores
from traces.decoded_cache import Kept
from traces.drafters.kind import Shard
from traces.errors import TraceError
from traces.manifest import Manifest
from traces.messages import how_many
from traces.rows import FileRows, Lazy

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
                f" {SEQUENCES} has {how_many(listed.rows, 'row')}"
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
            f"{folder / 'manifest.json'}: {how_many(len(found), 'file')} of {table}, not"
            f" {manifest.n_shards}"
        )


def _shards(table: str, manifest: Manifest) -> list[str]:
    return [f"{table}/{k:05d}.parquet" for k in range(manifest.n_shards)]


def check_files(folder: Path, manifest: Manifest) -> Iterator[str]:
    """A line for each file that is not what the manifest lists, or not listed."""
    try:
        files.bring(folder, manifest, manifest.files)
    except TraceError as error:
        yield str(error)
        return
    for name, info in sorted(manifest.files.items()):
        try:
            files.check_hash(folder, name, info)
        except TraceError as error:
            yield str(error)
    tables = [*manifest.tables, *manifest.with_state]
    wanted = [name for table in tables for name in _shards(table, manifest)]
    for name in wanted if manifest.attached_to else [SEQUENCES, *wanted]:
        if name not in manifest.files:
            yield f"{folder / name}: the manifest does not list it"
    found = stores.sizes(folder)
    if found is None:
        there = (*folder.glob("*.parquet"), *folder.glob("*/*.parquet"))
        found = [file.relative_to(folder).as_posix() for file in there]
    for name in sorted(found):
        if not re.fullmatch(r"([^/]+/)?[^/]+\.parquet", name):
            continue
        left = name.startswith((".", "parts/"))  # by a writer that was killed: no one reads it
        if name not in manifest.files and not left:
            yield f"{folder / name}: not listed in the manifest"


@dataclass
class TablePart:
    """Some of a trace's columns, which are looked at in one go.

    Attributes:
        asked: names of columns by their table.
        states: those of the tables with states that are among them.
        kept: takes what is decoded, and gives what was decoded before.
        hashed: takes the names of files whose hash was taken as they were read; None: all of them
            were found to have the hashes that the manifest lists.
    """

    asked: Mapping[str, Collection[str]]
    states: Collection[str]
    kept: Kept
    hashed: set[str] | None


def check_rows(
    folder: Path,
    manifest: Manifest,
    outputs: pa.Table | None = None,
    part: TablePart | None = None,
    first: int = 0,
) -> Generator[str, None, None]:
    """A line for each row that is wrong.

    Args:
        folder: of the trace, or of a drafter that was attached to one.
        manifest: whose files are there.
        outputs: the sequences, checked; None: they are read, and looked at too.
        part: of the columns that are looked at; None is all of them, also those of tables with
            states, in files that were found to have the hashes that the manifest lists.
        first: number of the first of the manifest's shards, which are some of a trace's.
    """
    try:
        sequences = read_sequences(folder, manifest) if outputs is None else outputs
        problems = [] if outputs is not None else list(check_sequences(folder, manifest, sequences))
        yield from problems
        if problems:
            return

        def shard_problems(shard: int) -> list[str]:
            mine = sequences.slice(shard * manifest.batch_size, manifest.batch_size)
            width = partial(_state_width, folder, manifest)
            states = manifest.with_state if part is None else part.states
            with ExitStack() as stack:
                rows = partial(_shard_rows, folder, manifest, first + shard, part, stack)
                found = Shard(folder, manifest, mine, rows, width, states)
                return list(manifest.drafter.check_shard(found))

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
    """Whether `check_rows` would find nothing in a shard that is about to be written.

    Args:
        folder: of the trace.
        manifest: its header.
        numbers: of the shard's sequences.
        sequences: of the shard, `schema.SEQUENCES`.
        tables: its rows, of each of the kind's tables.
    """
    if any(check_sequences(folder, manifest, sequences, numbers)):
        return False

    def rows(table: str, wanted: pa.Schema) -> FileRows:
        found, file = tables[table], folder / table
        return FileRows(file, {field.name: _column(found[field.name], file) for field in wanted})

    shard = Shard(folder, manifest, sequences, rows, lambda table: 0)
    try:
        return not any(manifest.drafter.check_shard(shard))
    except TraceError:
        return False


def read_sequences(folder: Path, manifest: Manifest, is_hashed: bool = False) -> pa.Table:
    """The sequences of a recording; where `is_hashed`, their bytes are held against the manifest.

    Raises:
        TraceError: the file is damaged, or is not the one that is listed.
    """
    types = {field.name: field.type for field in schema.SEQUENCES}
    read = files.read_hashed if is_hashed else files.read
    return read(folder, SEQUENCES, manifest.files[SEQUENCES], types)


def check_sequences(
    folder: Path, manifest: Manifest, table: pa.Table, numbers: range | None = None
) -> Iterator[str]:
    """A line for each sequence that is wrong, of those with these numbers; None is all of them."""
    file, numbers = folder / SEQUENCES, numbers or range(manifest.n_prompts)
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
    if not manifest.drafter.known_prompts:
        del known["n_prompt"]
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
            yield f"{file}: sequence {s}: {how_many(length, 'output token')}, not 1 to {longest}"
        elif reason not in schema.FINISH_REASONS:
            yield f"{file}: sequence {s}: finish_reason is {reason!r}"
        elif not manifest.drafter.known_outputs:
            continue
        elif last in eos:
            if reason != "eos":
                yield f"{file}: sequence {s}: ends in EOS, but finish_reason is {reason!r}"
        elif reason == "unknown" and (manifest.source or manifest.outputs):
            continue
        elif reason != "length" or length != longest:
            tokens = how_many(length, "token")
            yield f"{file}: sequence {s}: {reason!r} at {tokens}, the last of them no EOS"


def _last_tokens(table: pa.Table) -> list[int | None]:
    """The last output token of each sequence; None where there is none."""
    tokens = table["output_tokens"].combine_chunks()
    lengths = np.diff(tokens.offsets.to_numpy())
    last = pa.array(tokens.offsets.to_numpy()[1:] - 1, mask=lengths == 0)
    return tokens.values.take(last).to_pylist()


def _state_width(folder: Path, manifest: Manifest, table: str) -> int:
    if table == "experts" and manifest.experts:
        return manifest.experts.row_bytes
    return files.list_width(folder / f"{manifest.with_state[0]}/00000.parquet", "state")


def _shard_rows(
    folder: Path,
    manifest: Manifest,
    shard: int,
    part: TablePart | None,
    stack: ExitStack,
    table: str,
    wanted: pa.Schema,
) -> FileRows:
    """Rows of a file that is opened once one of its columns is needed, until the stack closes."""
    name = f"{table}/{shard:05d}.parquet"
    types = {field.name: field.type for field in wanted}
    is_hashed = part is not None and part.hashed is not None

    @cache
    def opened() -> files.ReadColumns:
        file = files.opened(folder, name, manifest.files[name], types, is_hashed)
        columns = stack.enter_context(file)
        if part is not None and part.hashed is not None:
            part.hashed.add(name)
        return columns

    def decoded(column: str) -> np.ndarray:
        found = None if part is None else part.kept.find(table, shard, column)
        if found is None:
            found = _column(opened()([column])[column], folder / name)
            if part is not None:
                part.kept.keep(table, shard, column, found)
        return found

    asked = None if part is None else part.asked.get(table, ())
    return FileRows(folder / name, Lazy(types, decoded), asked)


def _column(column: pa.ChunkedArray, file: Path) -> np.ndarray:
    """A column without nulls as an array, which is no copy where it need not be one."""
    is_number = pa.types.is_integer(column.type) or pa.types.is_floating(column.type)
    if is_number and column.num_chunks == 1 and not column.null_count:
        return column.chunk(0).to_numpy()
    out = files.empty(column.type, len(column))
    files.fill(out, column, file)
    return out
