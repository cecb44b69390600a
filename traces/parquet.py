"""Read a Parquet file that may be damaged or made to harm: sizes first, then what was checked."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from traces import footer, reading
from traces.errors import UserError

DIGEST = b"simkit.content_sha256"  # in the metadata of tables that no manifest lists
_LONGEST_TEXT = 4096  # of a name: a rule, a head, a device
_EASY_BYTES = 256 * reading.MEBIBYTE  # a table of so many is read, however small its file is
_MOST_RATIO = 100  # of bytes in memory to bytes in the file; recorded tables have 2 to 10
_MOST_BYTES = 8192 * reading.MEBIBYTE
_FAULTS = (OSError, pa.ArrowException, ValueError, MemoryError, OverflowError, KeyError)


@contextmanager
def opened(
    file: Path,
    source: Path | pa.BufferReader,
    error: type[UserError],
    checksums: bool = True,
    **options,
) -> Iterator[pq.ParquetFile]:
    """A Parquet file that fits into memory when it is read; what goes wrong meanwhile is its fault.

    Args:
        file: for the messages.
        source: the file, or its bytes.
        error: to raise.
        checksums: hold pages against the sums that the file has of them.
        **options: of `pq.ParquetFile`.

    Raises:
        error: the file is damaged, no regular file, or its rows take far more memory than it has
            bytes.
    """
    with complaints(file, error), open_file(file, source, error, checksums, **options) as found:
        yield found


def open_file(
    file: Path,
    source: Path | pa.BufferReader,
    error: type[UserError],
    checksums: bool = True,
    **options,
) -> pq.ParquetFile:
    """`opened`, to be closed by the caller, who reads it within `complaints`."""
    if isinstance(source, Path):
        n_bytes = reading.check_file(source, float("inf"), error).st_size
    else:
        n_bytes = source.size()
    with complaints(file, error):
        # Reading ahead is for several columns from far away; here it costs threads for one.
        found = pq.ParquetFile(
            source, pre_buffer=False, page_checksum_verification=checksums, **options
        )
        needed = 4 * max(footer.n_values(source), found.metadata.num_rows)
        if needed > min(max(_EASY_BYTES, _MOST_RATIO * n_bytes), _MOST_BYTES):
            found.close()
            raise error(
                f"{file}: {n_bytes} bytes that would take {needed / reading.MEBIBYTE:.0f} MiB"
                " of memory"
            )
    return found


@contextmanager
def complaints(file: Path, error: type[UserError]) -> Iterator[None]:
    """Say what goes wrong within as a file's damage, in one line."""
    try:
        yield
    except UserError:
        raise
    except _FAULTS as problem:
        reason = " ".join(str(problem).split())[:200] or type(problem).__name__
        raise error(f"{file}: corrupt: {ascii(reason)[1:-1]}") from None


def read_schema(file: Path, error: type[UserError]) -> pa.Schema:
    """A file's columns; no row is read.

    Raises:
        error: see `opened`.
    """
    with opened(file, file, error) as found:
        return found.schema_arrow


def read_samples(file: Path, wanted: pa.Schema, error: type[UserError]) -> pa.Table:
    """The rows of a file that no manifest lists: timing samples or a log of live runs.

    What `sealed` has put in is held against what was read. A file of another program has no such
    digest; what is damaged in it is found only where its pages have checksums.

    Args:
        file: of any name.
        wanted: its columns, in this order.
        error: to raise.

    Raises:
        error: the file is damaged, or it lacks a column, has one twice, with another type, with
            holes, or with texts that are too long.
    """
    types = {field.name: field.type for field in wanted}
    texts = [name for name, kind in types.items() if pa.types.is_string(kind)]
    with opened(file, file, error) as found:
        check_columns(found.schema_arrow, types, file, error)
        metadata = found.schema_arrow.metadata or {}
    # Texts as numbers of a dictionary: a text that a million rows share is there once.
    with opened(file, file, error, read_dictionary=texts) as found:
        table = found.read(columns=list(types)).select(list(types))
        for name in texts:
            _check_texts(table[name], file, name, error)
        columns = [table[name].cast(kind) for name, kind in types.items()]
        table = pa.table(columns, schema=wanted.with_metadata(metadata))
        table.validate(full=True)
    return check_sealed(table, file, error)


def is_sealed(file: Path, error: type[UserError]) -> bool:
    """Whether `sealed` has made the table in a file, so that changes are noticed.

    Raises:
        error: see `opened`.
    """
    return DIGEST in (read_schema(file, error).metadata or {})


def check_sealed(table: pa.Table, file: Path, error: type[UserError]) -> pa.Table:
    """The table without the digest that `sealed` has put in.

    Raises:
        error: it holds nulls, or its content is not that of the digest.
    """
    for name in table.column_names:
        if table[name].null_count:
            raise error(f"{file}: column {name}: a value is null")
    digest = (table.schema.metadata or {}).get(DIGEST)
    if digest is not None and digest.decode("ascii", "replace") != _digest(table):
        raise error(f"{file}: corrupt: its content is not what was written")
    return table.replace_schema_metadata(_facts(table))


def sealed(table: pa.Table) -> pa.Table:
    """The table with a digest of its content, for a file that no manifest lists."""
    table = table.replace_schema_metadata(_facts(table))
    return table.replace_schema_metadata({**_facts(table), DIGEST: _digest(table).encode()})


def check_columns(
    found: pa.Schema, types: Mapping[str, pa.DataType], file: Path, error: type[UserError]
) -> None:
    """Refuse a schema that lacks a column or has it twice or in another type.

    Raises:
        error: as said; the message names the file and the column.
    """
    names = found.names
    known = dict(zip(names, found.types, strict=True))
    for column, kind in types.items():
        if known.get(column) == kind and (len(known) == len(names) or names.count(column) == 1):
            continue
        count = names.count(column)
        if count != 1:
            raise error(f"{file}: column {column} is {'there twice' if count else 'missing'}")
        raise error(f"{file}: column {column} is {known[column]}, not {kind}")


def _check_texts(column: pa.ChunkedArray, file: Path, name: str, error: type[UserError]) -> None:
    for chunk in column.chunks:
        texts = chunk.dictionary
        texts.validate(full=True)
        if any(len(text or "") > _LONGEST_TEXT for text in texts.to_pylist()):
            raise error(f"{file}: column {name}: a text of more than {_LONGEST_TEXT} letters")


def _facts(table: pa.Table) -> dict[bytes, bytes]:
    facts = dict(table.schema.metadata or {})
    facts.pop(DIGEST, None)
    facts.pop(b"ARROW:schema", None)
    return facts


def _digest(table: pa.Table) -> str:
    """A sha256 over names, values and facts; not over how they are cut or encoded."""
    digest = hashlib.sha256()
    # A damaged fact may be no UTF-8: then the digest is another, and that is what is said.
    facts = {
        key.decode(errors="backslashreplace"): value.decode(errors="backslashreplace")
        for key, value in sorted(_facts(table).items())
    }
    digest.update(json.dumps(facts, sort_keys=True).encode())
    for name in table.column_names:
        column = table[name]
        digest.update(f"\n{name} {column.type} {len(column)}\n".encode())
        if pa.types.is_string(column.type):
            digest.update(json.dumps(column.to_pylist()).encode())
        else:
            digest.update(column.to_numpy().tobytes())
    return digest.hexdigest()
