"""Write a trace shard by shard, so that a recording killed at any moment can go on.

Every file is written whole under a passing name, made durable and renamed; then the manifest, which
is replaced the same way, lists it. What the manifest does not list does not exist. Sequences of a
shard wait in `parts/` until all shards are there, then they become one file.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import replace
from pathlib import Path

import pyarrow as pa

from traces import files, parquet, row_checks, schema, spans, stores, validation_cache
from traces.columns import Columns, state_table, to_table
from traces.copying import check_can_be_saved, copy_rows
from traces.differences import refusal
from traces.errors import TraceError
from traces.leftovers import PARTS, is_only_begun, remove_leftovers, settle
from traces.manifest import MANIFEST, FileInfo, Manifest, read_manifest
from traces.messages import how_many
from traces.outputs import (
    hold_folder,
    make_folder,
    passing_name,
    remove_empty,
    waiting_name,
    whole_folder,
    write_atomic,
    write_error,
)
from traces.trace import Trace
from traces.urls import refuse_url

_LATENCY = "latency.parquet"
_SEALED = (_LATENCY, "live.parquet")  # they are read without their manifest too, as costs
_ADDED = re.compile(r"(latency|live|spans|scores/[\w.@+-]+)\.parquet")  # names of `add_file`


class TraceWriter:
    """The one writer of a trace folder; use it in a `with` block.

    Attributes:
        path: the folder.
        done: indices of the shards that are whole and listed.

    Args:
        path: the folder, which is made if need be.
        header: the manifest without files.
        resume: go on with the recording that is there, if there is one.
        is_held: the folder is there, empty, and held by the caller.
        tight: see `files.encode`.

    Raises:
        TraceError: the folder is not empty (and `resume` is off), holds another recording or none,
            cannot be written, or another process is writing to it.
    """

    def __init__(
        self,
        path: str | Path,
        header: Manifest,
        resume: bool = False,
        is_held: bool = False,
        tight: bool = False,
    ) -> None:
        self.path = Path(path)
        self._tight = tight
        self.done: set[int] = set()
        self._fine: set[int] = set()  # shards whose rows were looked at as they were written
        header = replace(header, files={}, complete=False)
        header = Manifest.from_json(header.to_json())  # 0 is 0.0 from now on, as after a resume
        self._made = not self.path.exists()
        self._lock: int | None = None
        try:
            self._lock = None if is_held else _lock_folder(self.path, make=True)
            self._manifest = self._open(header, resume)
        except BaseException:
            with suppress(OSError):
                if self._made:
                    self.path.rmdir()
            self.close()
            raise
        self.done = {int(name[-13:-8]) for name in self._manifest.shards}

    def __enter__(self) -> TraceWriter:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    @property
    def manifest(self) -> Manifest:
        """What is listed by now."""
        return self._manifest

    @property
    def complete(self) -> bool:
        """Whether the trace is finished."""
        return self._manifest.complete

    @property
    def has_latency(self) -> bool:
        """Whether the trace has timing samples."""
        return _LATENCY in self._manifest.files

    @property
    def n_shards(self) -> int:
        """Shards that the whole recording has."""
        return self._manifest.n_shards

    def shard_sequences(self, index: int) -> range:
        """The prompts of a shard."""
        first = index * self._manifest.batch_size
        return range(first, min(first + self._manifest.batch_size, self._manifest.n_prompts))

    def write_shard(
        self,
        index: int,
        sequences: Columns | None,
        positions: Columns | None = None,
        branches: Columns | None = None,
        hidden: Columns | None = None,
        mixed: Columns | None = None,
        near_ties: int = 0,
        **others: Columns | None,
    ) -> None:
        """Add a shard. All of its files are durable before the manifest lists any.

        Args:
            index: which, below `n_shards` and not in `done`.
            sequences: columns of `schema.SEQUENCES`; `id`, `task`, `prompt_text` may be absent.
                None for a drafter that is attached: they are the recording's.
            positions: columns of `schema.POSITIONS`, rows by (sequence, position).
            branches: columns of `schema.BRANCHES` (or with the target's), rows by (sequence,
                position, depth).
            hidden: columns of `schema.HIDDEN` and `state`, a (rows, width) array of float16.
            mixed: columns of `schema.MIXED` and `state`, rows by (sequence, position).
            near_ties: of its greedy tokens, see `Manifest`.
            others: columns of the tables of another kind of drafter than a path; or of `experts`.

        Raises:
            TraceError: the file cannot be written (disk full); earlier shards stay valid.
            ValueError: columns do not fit the schema or each other.
        """
        manifest = self._manifest
        if manifest.complete or index in self.done or index not in range(manifest.n_shards):
            raise ValueError(f"shard {index} is not one that is left to write")
        given = {PARTS: sequences, "positions": positions, "branches": branches, **others}
        given |= {"hidden": hidden, "mixed": mixed}
        encoded = self._encoded({name: one for name, one in given.items() if one is not None})
        self._check_shard(index, encoded)
        listed = dict(manifest.files)
        for name, table in encoded.items():
            file = f"{name}/{index:05d}.parquet"
            listed[file] = _write(self.path, file, table, self._tight)
        self._save(replace(manifest, files=listed, near_ties=manifest.near_ties + near_ties))
        self.done.add(index)

    def _encoded(self, given: dict[str, Columns]) -> dict[str, pa.Table]:
        """The tables of a shard, those that the header says and no others."""
        manifest = self._manifest
        schemas = dict(manifest.tables)
        if manifest.attached_to is None:
            schemas = {PARTS: schema.SEQUENCES, **schemas}
        for name in sorted({*schemas, *manifest.with_state} ^ given.keys()):
            nouns = {PARTS: "sequences", "hidden": "hidden states", "mixed": "mixed rows"}
            nouns |= {"experts": "experts of tokens"}
            raise ValueError(f"{nouns.get(name, name)} do not go with the header")
        encoded = {name: to_table(given[name], columns) for name, columns in schemas.items()}
        return encoded | {name: state_table(name, given[name]) for name in manifest.with_state}

    def write_latency(self, samples: pa.Table) -> None:
        """Add timing samples, so that the trace has them once it is finished.

        Args:
            samples: `schema.LATENCY`.

        Raises:
            TraceError: the file cannot be written.
        """
        info = _write(self.path, _LATENCY, parquet.sealed(samples))
        self._save(replace(self._manifest, files={**self._manifest.files, _LATENCY: info}))

    def finish(self, remark: str = "") -> None:
        """Merge the sequences and mark the trace complete; nothing if it is already.

        Args:
            remark: of its outputs, where an engine produced them; else the header's stays.

        Raises:
            TraceError: a file cannot be written, or a part cannot be read.
            ValueError: shards are missing.
        """
        manifest = self._manifest
        if manifest.complete:
            return
        if manifest.outputs is not None and remark:
            manifest = replace(manifest, outputs=replace(manifest.outputs, remark=remark))
        if len(self.done) != manifest.n_shards:
            raise ValueError(f"{len(self.done)} of {manifest.n_shards} shards are written")
        types = {field.name: field.type for field in schema.SEQUENCES}
        parts = manifest.shard_files(PARTS)
        tables = [files.read(self.path, name, manifest.files[name], types) for name in parts]
        merged = pa.concat_tables([schema.SEQUENCES.empty_table(), *tables]).combine_chunks()
        listed = {name: info for name, info in manifest.files.items() if name not in parts}
        if manifest.attached_to is None:
            listed["sequences.parquet"] = _write(
                self.path, "sequences.parquet", merged, self._tight
            )
        self._save(replace(manifest, files=listed, complete=True, settings={}))
        remove_leftovers(self.path, self._manifest)
        if len(self._fine) == manifest.n_shards:
            tables = self._manifest.tables.items()
            fine = [(table, name) for table, columns in tables for name in columns.names]
            validation_cache.note(validation_cache.content(self._manifest), fine)

    def discard_if_empty(self) -> None:
        """Remove the folder if it holds no shard, so that a failed recording leaves nothing."""
        if self.done:
            return
        with suppress(OSError, TraceError):  # what it says of the disk has been said
            remove_leftovers(self.path, replace(self._manifest, files={}))
            (self.path / MANIFEST).unlink(missing_ok=True)
            for folder in self.path.iterdir():
                if folder.name in (PARTS, *self._manifest.tables, *self._manifest.with_state):
                    folder.rmdir()
            self.path.rmdir()  # not if something in it is not ours

    def discard(self) -> None:
        """Remove all shards, and the folder; for a recording that turned out to be wrong."""
        self.done = set()
        self.discard_if_empty()

    def close(self) -> None:
        """Let others write to the folder."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def _open(self, header: Manifest, resume: bool) -> Manifest:
        there = [file.name for file in self.path.iterdir()]
        begun = all(name == passing_name(self.path / MANIFEST).name for name in there)
        if not begun and not resume and not is_only_begun(self.path):
            raise TraceError(
                f"{self.path}: the output folder is not empty: give --resume to continue the"
                " recording in it, or name another folder"
            )
        if begun or not resume:
            remove_leftovers(self.path, header)
            _save_manifest(self.path, header)
            return header
        manifest = read_manifest(self.path)
        if why := refusal(manifest, header):
            raise TraceError(f"{self.path}: {why}")
        for name, info in manifest.files.items():
            files.check_size(self.path, name, info)
        remove_leftovers(self.path, manifest)
        return manifest

    def _check_shard(self, index: int, tables: Mapping[str, pa.Table]) -> None:
        if PARTS not in tables:
            return
        expected = self.shard_sequences(index)
        if tables[PARTS]["sequence"].to_pylist() != list(expected):
            raise ValueError(f"shard {index} must hold sequences {expected}")
        rows = tables["positions"].num_rows if "positions" in tables else None
        if rows not in (None, sum(tables[PARTS]["n_output"].to_pylist())):
            raise ValueError(
                f"shard {index} has {how_many(rows, 'position')}, n_output adds up to another"
            )
        if row_checks.makes_sense(self.path, self._manifest, expected, tables[PARTS], tables):
            self._fine.add(index)

    def _save(self, manifest: Manifest) -> None:
        _save_manifest(self.path, manifest)
        self._manifest = manifest


def save(trace: Trace, path: str | Path, batch_size: int = 16) -> None:
    """Write a trace that is in memory, with times and spans, `batch_size` sequences a shard.

    A file's sequences are numbered from 0, so those of `subset.select` are numbered anew: no rule
    and no cost reads the numbers. Draws of a sampled trace are keyed by them, and a live run could
    not repeat those of a renumbered one. Scores of heads belong to one trace: to the one that was
    written they are added by `scores.save`.

    Raises:
        TraceError: the folder is not empty or cannot be written (nothing is left then), the trace
            lacks a column or has states, it is one drafter of a recording, or it is sampled and its
            numbers are not 0, 1, 2, …
    """
    if trace.manifest.attached_to is not None:
        raise TraceError(
            "one drafter of a recording cannot be written without it: simkit thin RECORDING --own"
            " NAME makes a copy whose own draft model it is"
        )
    header = replace(trace.manifest, batch_size=batch_size)
    latency = trace.latency()
    check_can_be_saved(trace)
    with whole_folder(Path(path)) as place:
        with TraceWriter(place, header, is_held=True) as writer:
            copy_rows(trace, header, writer)
            if latency is not None:
                writer.write_latency(latency)
            writer.finish()
        live = trace.extra("live.parquet") if header.kind == "log" else None
        if live is not None:  # a log's own times; those of live runs are not copied
            add_file(place, "live.parquet", live, is_held=True)
        if (labels := spans.of_copy(trace, writer.manifest.content_hash())) is not None:
            add_file(place, spans.FILE, labels, is_held=True)


def folder_to_write(
    trace: Trace, given: str | Path, instead: str = "write a copy with simkit thin and name that"
) -> Path:
    """The folder of a trace that something is put into; not the package's own, given by its name.

    Args:
        trace: whose it is.
        given: its name, or its folder.
        instead: what may be done of the package's own.

    Raises:
        TraceError: it is that.
    """
    if trace.path is not None:
        stores.refuse_copy(trace.path)
    folder, path = Path(given), (trace.recording or trace).path
    if path not in (None, folder):  # found by its name
        raise TraceError(
            f"{given}: comes with the package, which is not written to; {instead}. To change"
            f" it anyway, give its folder: {path}"
        )
    return trace.path or folder


def add_file(path: str | Path, name: str, table: pa.Table, is_held: bool = False) -> None:
    """Add a table to a finished trace, or replace it ("latency.parquet", "scores/NAME.parquet").

    The new one is durable, under a name of its own, before the manifest lists it in place of the
    old one: a reader finds one of the two, whole, at any moment, and so does one that comes after
    this process was killed.

    Args:
        path: the trace's folder.
        name: of the file.
        table: what it holds.
        is_held: the caller holds the folder already.

    Raises:
        TraceError: the trace is unfinished, someone else writes to it, or the disk is full; what
            was there is as it was, or (the disk has refused a rename alone) the new table is there
            and read, and the next writer gives it its place.
        ValueError: the name is that of a recorded file, or not that of a Parquet file.
    """
    folder = Path(path)
    if not _ADDED.fullmatch(name):
        raise ValueError(f"{name!r} is not a file that is added to a trace")
    with nullcontext() if is_held else _held(folder):
        manifest = read_manifest(folder)
        if not manifest.complete:
            raise TraceError(f"{folder}: the recording is incomplete: resume it with --resume")
        remove_leftovers(folder, manifest)
        data, info = files.encode(parquet.sealed(table) if name in _SEALED else table, tight=True)
        waits = waiting_name(folder / name, info.sha256)
        made = [] if waits.parent.exists() else [waits.parent]
        try:
            write_atomic(waits, data)
            _save_manifest(folder, replace(manifest, files={**manifest.files, name: info}))
        except BaseException:
            if read_manifest(folder).files.get(name) != info:
                with suppress(OSError):
                    waits.unlink(missing_ok=True)
                remove_empty(made)
            raise
        settle(folder, name, info)


def _lock_folder(folder: Path, make: bool, patience_s: float = 0.0) -> int | None:
    """Hold the folder against other writers until the handle is closed or the process dies."""
    refuse_url(folder)
    stores.refuse_copy(folder)
    until = time.monotonic() + patience_s
    while True:
        try:
            if make:
                make_folder(folder)
            return hold_folder(folder)
        except BlockingIOError:
            if time.monotonic() >= until:
                raise TraceError(f"{folder}: another process is writing to this trace") from None
            time.sleep(0.02)
        except OSError as error:
            if not make:
                read_manifest(folder)  # says what is wrong with it
            raise write_error(folder, error) from None


@contextmanager
def _held(folder: Path) -> Iterator[None]:
    """Hold a finished trace for the moment that it takes to add a file."""
    lock = _lock_folder(folder, make=False, patience_s=2.0)
    try:
        yield
    finally:
        if lock is not None:
            os.close(lock)


def _save_manifest(folder: Path, manifest: Manifest) -> None:
    write_atomic(folder / MANIFEST, manifest.to_json().encode())


def _write(folder: Path, name: str, table: pa.Table, tight: bool = False) -> FileInfo:
    data, info = files.encode(table, tight)
    write_atomic(folder / name, data)
    return info
