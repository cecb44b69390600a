"""One Parquet file of a trace: its bytes, and a checked read."""

from __future__ import annotations

import hashlib
import os
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from traces import parquet, reading, stores
from traces.arrays import dtype_of
from traces.errors import TraceError
from traces.manifest import FileInfo, Manifest
from traces.messages import how_many
from traces.outputs import waiting_name

ADDED = (
    "latency.parquet",
    "live.parquet",
    "spans.parquet",
    "scores",
)  # of what may be added to a recording
_FEW_VALUES = 16  # up to so many different floats a dictionary is the smallest
_ZSTD_LEVEL = 3
_GROUP = 2**14  # rows of long texts that are read at a time
_TIGHT_LEVEL = 15  # a tenth smaller, in six times as long
_CHANGED = "corrupt: its sha256 is not the manifest's"


def encode(table: pa.Table, tight: bool = False) -> tuple[bytes, FileInfo]:
    """A table as the bytes of a Parquet file; equal tables give equal bytes.

    Floats and tokens are split into byte streams, keys into deltas: on recorded columns that is
    5 to 25 % smaller than plain or dictionary encoding. Floats of few values (everything that is
    0 or 1 under greedy decoding) keep a dictionary, at half the size.

    Args:
        table: any.
        tight: whether it is written once and kept: a tenth smaller, in six times as long.
    """
    dictionary, encodings = [], {}
    for column in table.schema:
        kind = column.type
        path = column.name
        while pa.types.is_nested(kind):
            kind, path = kind.value_type, f"{path}.list.element"
        if pa.types.is_string(kind) or _has_few_values(table[column.name]):
            dictionary.append(path)
        elif column.name in ("sequence", "position", "start", "depth"):
            encodings[path] = "DELTA_BINARY_PACKED"
        elif pa.types.is_integer(kind) or pa.types.is_floating(kind):
            encodings[path] = "BYTE_STREAM_SPLIT"
    sink = pa.BufferOutputStream()
    pq.write_table(
        table,
        sink,
        row_group_size=_GROUP if any(map(pa.types.is_list, table.schema.types)) else None,
        compression="zstd",
        compression_level=_TIGHT_LEVEL if tight else _ZSTD_LEVEL,
        use_dictionary=dictionary,  # pyright: ignore[reportArgumentType]
        column_encoding=encodings,
        write_statistics=["sequence"],  # pyright: ignore[reportArgumentType]
        write_page_checksum=True,
        store_schema=_needs_schema(table.schema),
    )
    data = sink.getvalue().to_pybytes()
    return data, FileInfo(table.num_rows, len(data), hashlib.sha256(data).hexdigest())


def _needs_schema(schema: pa.Schema) -> bool:
    """Whether Parquet's own words leave something out: lists of fixed size, facts of ours."""
    return bool(schema.metadata) or any(map(pa.types.is_fixed_size_list, schema.types))


def _has_few_values(column: pa.ChunkedArray) -> bool:
    if not pa.types.is_float32(column.type) or column.num_chunks == 0:
        return False
    return len(np.unique(column.to_numpy())) <= _FEW_VALUES


def place(folder: Path, name: str, info: FileInfo) -> Path:
    """Where a listed file is: what was added since the recording may still wait for its place."""
    file = folder / name
    # What was recorded is never replaced; and no path is made of what is no hash.
    if name.split("/")[0] not in ADDED or not info.sha256.isalnum():
        return file
    waits = waiting_name(file, info.sha256)
    return waits if waits.exists() else file


def check_size(folder: Path, name: str, info: FileInfo) -> Path:
    """Where a listed file is, see `place`; refuse one that is missing or has another size.

    Raises:
        TraceError: as said; the message names the file.
    """
    file = folder / name
    where = place(folder, name, info)
    if not os.path.lexists(where):
        raise TraceError(f"{file}: missing")
    size = reading.check_file(where, float("inf"), TraceError).st_size
    _compare_size(file, size, info)
    return where


def bring(folder: Path, manifest: Manifest, names: Iterable[str]) -> None:
    """Have files of a copy of a store there, before any of them is read; others are there already.

    Raises:
        TraceError: one cannot be brought.
    """
    stores.bring(folder, {name: manifest.files[name] for name in names})


def check_sizes(folder: Path, manifest: Manifest) -> None:
    """`check_size` of all listed files; those of a store are asked of it, and not brought.

    Raises:
        TraceError: see there.
    """
    there = stores.sizes(folder)
    for name, info in manifest.files.items():
        if there is None:
            check_size(folder, name, info)
            continue
        where = f"{stores.copied_from(folder)}/{name}"
        if name not in there:
            raise TraceError(f"{where}: missing")
        _compare_size(where, there[name], info)


def _compare_size(where: str | Path, size: int, info: FileInfo) -> None:
    if size != info.bytes:
        kind = "truncated" if size < info.bytes else "too long"
        raise TraceError(f"{where}: {kind}: {size} bytes, the manifest says {info.bytes}")


def check_hash(folder: Path, name: str, info: FileInfo) -> None:
    """Refuse a listed file whose bytes are not those that were written.

    That of a copy of a store is brought again first, once.

    Raises:
        TraceError: as said; the message names the file.
    """
    if _has_hash(folder, name, info):
        return
    if not (stores.bring_again(folder, name, info) and _has_hash(folder, name, info)):
        raise TraceError(f"{folder / name}: {_CHANGED}")


def _has_hash(folder: Path, name: str, info: FileInfo) -> bool:
    where = check_size(folder, name, info)
    try:
        with open(where, "rb") as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest() == info.sha256
    except OSError as error:
        raise TraceError(f"{folder / name}: cannot be read: {error.strerror}") from None


def read(
    folder: Path, name: str, info: FileInfo, types: Mapping[str, pa.DataType] | None = None
) -> pa.Table:
    """Columns of a listed file.

    Args:
        folder: the trace.
        name: the file's path in it.
        info: what the manifest says of the file.
        types: the columns wanted, with their types; None reads all as they are.

    Raises:
        TraceError: the file is missing, damaged, of another length than listed, or a column is
            missing, has another type or holes; the message names the file.
    """
    with opened(folder, name, info, types) as columns:
        names = None if types is None else list(types)
        return columns(names, use_threads=names is None or len(names) > 1)  # each takes columns


def read_hashed(
    folder: Path, name: str, info: FileInfo, types: Mapping[str, pa.DataType] | None = None
) -> pa.Table:
    """`check_hash` and `read` of the same bytes, which are read once.

    Raises:
        TraceError: see there.
    """
    with opened(folder, name, info, types, is_hashed=True) as columns:
        return columns(None if types is None else list(types))


class ReadColumns(Protocol):
    """Decodes columns of an open file; None means all of them."""

    @abstractmethod
    def __call__(self, names: Sequence[str] | None, use_threads: bool = False) -> pa.Table:
        """Raises TraceError where they are damaged; the message names the file."""


@contextmanager
def opened(
    folder: Path,
    name: str,
    info: FileInfo,
    types: Mapping[str, pa.DataType] | None = None,
    is_hashed: bool = False,
) -> Iterator[ReadColumns]:
    """A listed file, open, so that columns of it can be decoded when they are needed.

    Args:
        folder: see `read`.
        name: see `read`.
        info: see `read`.
        types: columns that it must have, with their types.
        is_hashed: hold its bytes against the manifest's hash first, and decode those.

    Raises:
        TraceError: see `read` and `check_hash`.
    """
    file = folder / name
    source: Path | pa.BufferReader = check_size(folder, name, info)
    if is_hashed:
        data = _hashed(source, info)
        if data is None and stores.bring_again(folder, name, info):
            data = _hashed(check_size(folder, name, info), info)
        if data is None:
            raise TraceError(f"{file}: {_CHANGED}")
        source = pa.BufferReader(data)
    # The hash vouches for each byte: sums of pages say nothing more.
    with parquet.open_file(file, source, TraceError, checksums=not is_hashed) as found:

        def columns(names: Sequence[str] | None, use_threads: bool = False) -> pa.Table:
            with parquet.complaints(file, TraceError):
                table = found.read(names, use_threads=use_threads)
                table.validate(full=True)  # text is UTF-8, offsets ascend
            check_rows(table.num_rows)
            return table

        def check_rows(rows: int) -> None:
            if rows != info.rows:
                raise TraceError(f"{file}: {how_many(rows, 'row')}, the manifest says {info.rows}")

        check_rows(found.metadata.num_rows)
        if types is not None:
            with parquet.complaints(file, TraceError):
                schema = found.schema_arrow
            parquet.check_columns(schema, types, file, TraceError)
        yield columns


def _hashed(file: Path, info: FileInfo) -> bytes | None:
    """The bytes of a listed file; None if they are not those that were written."""
    data = reading.read_bytes(file, info.bytes, TraceError)
    return data if hashlib.sha256(data).hexdigest() == info.sha256 else None


def check_schema(folder: Path, name: str, types: Mapping[str, pa.DataType]) -> None:
    """Refuse a listed file that lacks a column, or has it twice or in another type; reads no row.

    Raises:
        TraceError: as said, or the file is damaged; the message names the file and the column.
    """
    file = folder / name
    parquet.check_columns(parquet.read_schema(file, TraceError), types, file, TraceError)


def list_width(file: Path, column: str) -> int:
    """Numbers in each row of a column of lists of fixed size.

    Raises:
        TraceError: the file is damaged or the column is not such lists.
    """
    found = parquet.read_schema(file, TraceError)
    if found.names.count(column) != 1:
        raise TraceError(f"{file}: column {column} is missing")
    kind = found.field(column).type
    if not pa.types.is_fixed_size_list(kind):
        raise TraceError(f"{file}: column {column} is {kind}, not a list of fixed size")
    return kind.list_size


def empty(kind: pa.DataType, rows: int) -> np.ndarray:
    """An array for `rows` values of a column; a fixed-size list, or bytes, make it 2-D."""
    if pa.types.is_fixed_size_binary(kind):
        return np.empty((rows, kind.byte_width), np.uint8)
    if pa.types.is_fixed_size_list(kind):
        return np.empty((rows, kind.list_size), dtype_of(kind.value_type))
    return np.empty(rows, dtype_of(kind))


def fill(out: np.ndarray, column: pa.ChunkedArray, file: Path) -> None:
    """Copy a column into an array of its length.

    Raises:
        TraceError: a value is null.
    """
    start = 0
    for chunk in column.chunks:
        values = chunk if out.ndim == 1 else _flat(chunk)
        if chunk.null_count or values.null_count:
            raise TraceError(f"{file}: a value is null")
        stop = start + len(chunk)
        out[start:stop] = values.to_numpy(zero_copy_only=False).reshape(out[start:stop].shape)
        start = stop


def _flat(chunk: pa.Array) -> pa.Array:
    """The numbers of fixed-size lists, or the bytes of texts of one length, end to end."""
    if not pa.types.is_fixed_size_binary(chunk.type):
        return chunk.flatten()
    width, data = chunk.type.byte_width, chunk.buffers()[1]
    n, begin = len(chunk) * width, chunk.offset * width
    return pa.Array.from_buffers(pa.uint8(), n, [None, data], offset=begin)
