"""A trace that is larger than memory: some of its shards at a time.

What there is one value of for a prompt (lengths, tasks) is read whole. The rows are read in windows
of shards, each a trace of its own, whose files and rows are looked at as those of any trace are.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cache, cached_property, partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from traces import files, parquet, row_checks, same_prompts, schema, stores, validation_cache
from traces.allocator import trim
from traces.errors import TraceError
from traces.finding import find
from traces.folder_source import FolderSource
from traces.lazy_checks import Look, refuse_proposals
from traces.manifest import Manifest
from traces.messages import how_many
from traces.trace import Trace, load

LEAST = 2**30  # bytes: half of it is Python and its libraries
SHORT = ("sequence", "task", "n_prompt", "n_output", "finish_reason")  # one value a prompt
_FEWEST = 2**18  # positions of a window, at least
_PATH_BYTES, _ROW_BYTES = 96, 24  # of a position, and of another row, while they are replayed
_SHARE = 0.25  # of the memory that a window's rows may take


class Streamed(Trace):
    """A trace whose rows are read in windows.

    `sequences` lacks texts and tokens, and columns of rows are refused: `windows` have them.

    Attributes:
        memory: bytes that may be used.
    """

    def __init__(self, whole: Trace, memory: int) -> None:
        assert whole.path is not None
        self.memory = memory
        self._whole = whole
        home = whole.recording or whole
        assert home.path is not None
        self._outputs = _Outputs(home.path, home.manifest)
        source = _Short(whole.path, whole.manifest, self._outputs)
        super().__init__(whole.manifest, source, whole.path, whole.recording)

    @property
    def _folders(self) -> list[Path]:
        """Where the windows' files lie: its own, and those of the recording."""
        return [one.path for one in (self._whole, self.recording) if one and one.path]

    def with_drafter(self, name: str) -> Trace:
        """See `Trace`: read in windows as well."""
        whole = self._whole.with_drafter(name)
        if whole is self._whole:
            return self
        whole.manifest.drafter.refuse("replay")
        return Streamed(whole, self.memory)

    def __repr__(self) -> str:
        return (
            super()
            .__repr__()
            .replace("<Trace", f"<Trace in {how_many(len(self.ranges), 'window')}:", 1)
        )

    @cached_property
    def ranges(self) -> list[range]:
        """The shards of each window, in order."""
        manifest, most = self.manifest, int(_SHARE * self.memory)
        taken = np.zeros(manifest.n_shards, np.int64)
        lengths = self.sequences["n_output"].to_numpy().astype(np.int64)
        starts = np.arange(0, manifest.n_prompts, manifest.batch_size)
        positions = np.add.reduceat(lengths, starts) if len(lengths) else taken
        for table in manifest.tables:
            rows = [manifest.files[name].rows for name in manifest.shard_files(table)]
            taken += np.array(rows, np.int64) * _ROW_BYTES
        taken += positions * _PATH_BYTES
        cuts, room, held = [0], most, 0
        for k, (size, here) in enumerate(zip(taken.tolist(), positions.tolist(), strict=True)):
            if k > cuts[-1] and size > room and held >= _FEWEST:
                cuts.append(k)
                room, held = most, 0
            room, held = room - size, held + here
        return [range(a, b) for a, b in zip(cuts, [*cuts[1:], manifest.n_shards], strict=True)]

    @cached_property
    def prompt_numbers(self) -> np.ndarray:
        """See `Trace`; the prompts of one window are read at a time."""
        told = [self._outputs.keys(self._rows(shards)) for shards in self.ranges]
        return same_prompts.numbers(np.concatenate(told))

    def _rows(self, shards: range) -> range:
        """The sequences of some shards."""
        size, n = self.manifest.batch_size, self.manifest.n_prompts
        return range(shards.start * size, min(shards.stop * size, n))

    def windows(self) -> Iterator[Trace]:
        """Each window's trace, in order; the one before must be let go of by then."""
        for shards in self.ranges:
            window = self.window(shards)
            sources = [one.manifest for one in (window, window.recording) if one]
            yield window
            del window
            trim()
            for one, manifest in zip(self._folders, sources, strict=True):
                stores.let_go(one, [*manifest.files])

    def window(self, shards: range) -> Trace:
        """Some shards, one after another, as a trace; its prompts keep their numbers."""
        self._is_proposed  # noqa: B018
        home = None if self.recording is None else self._cut(self.recording, shards, None)
        return self._cut(self._whole, shards, home)

    @cached_property
    def _is_proposed(self) -> bool:
        """Whether the rows are its rule's, in one go: a rule may remember earlier prompts.

        Raises:
            TraceError: they are not.
        """
        folder, manifest = self._whole.path, self.manifest
        assert folder is not None

        def outputs(rows: range) -> pa.Table:
            stores.let_go(folder, [*manifest.files])  # of the shards before
            return self._outputs.of(rows)

        refuse_proposals(folder, manifest, outputs)
        return True

    def _cut(self, trace: Trace, shards: range, recording: Trace | None) -> Trace:
        assert trace.path is not None
        source = _Window(trace.path, trace.manifest, shards, self._outputs)
        return Trace(source.manifest, source, None, recording)


def stream(path_or_name: str | Path, drafter: str | None = None, memory: int = 4 * 10**9) -> Trace:
    """Open a trace whose rows are read in windows, at a bounded memory.

    Args:
        path_or_name: see `load`.
        drafter: see `load`.
        memory: bytes that this process may use, about; windows have a quarter of it.

    Raises:
        TraceError: see `load`; or the memory is below 1 GiB, or the trace cannot be replayed.
    """
    if memory < LEAST:
        raise TraceError(f"memory must be at least 1 GiB ({LEAST:,} bytes), not {memory:,}")
    _, manifest = find(path_or_name, drafter)
    manifest.drafter.refuse("replay")
    return Streamed(load(path_or_name, drafter), memory)


class _Outputs:
    """The sequences of a recording, some at a time."""

    def __init__(self, folder: Path, manifest: Manifest) -> None:
        self._folder = folder
        self._manifest = manifest

    @cached_property
    def short(self) -> pa.Table:
        """All sequences, the columns that have one value each; the file's hash is looked at."""
        self._check_hash()
        return self._read(list(SHORT))

    def of(self, rows: range) -> pa.Table:
        """Some sequences, all columns, checked."""
        self.short  # noqa: B018
        table = self._read(schema.SEQUENCES.names, rows)
        found = row_checks.check_sequences(self._folder, self._manifest, table, rows)
        for problem in found:
            raise TraceError(problem)
        return table

    def keys(self, rows: range) -> np.ndarray:
        """What tells the prompts of some sequences."""
        return same_prompts.keys(self._read([*same_prompts.COLUMNS], rows))

    def _check_hash(self) -> None:
        names = [row_checks.SEQUENCES]
        files.bring(self._folder, self._manifest, names)
        if validation_cache.is_known(self._folder, self._manifest, names):
            return
        before = validation_cache.first_stamps(self._folder, names)
        info = self._manifest.files[row_checks.SEQUENCES]
        files.check_hash(self._folder, row_checks.SEQUENCES, info)
        types = {field.name: field.type for field in schema.SEQUENCES}
        files.check_schema(self._folder, row_checks.SEQUENCES, types)
        validation_cache.remember(self._folder, self._manifest, names, before)

    def _read(self, names: list[str], rows: range | None = None) -> pa.Table:
        file = self._folder / row_checks.SEQUENCES
        with parquet.open_file(file, file, TraceError) as found:
            groups, skipped = _groups(found.metadata, rows)
            with parquet.complaints(file, TraceError):
                table = found.read_row_groups(groups, names, use_threads=False)
        return table if rows is None else table.slice(rows.start - skipped, len(rows))


def _groups(metadata: pq.FileMetaData, rows: range | None) -> tuple[list[int], int]:
    """The row groups that hold some rows, and the rows before them."""
    every = range(metadata.num_row_groups)
    if rows is None:
        return list(every), 0
    sizes = [metadata.row_group(k).num_rows for k in every]
    begins = np.cumsum([0, *sizes])
    some = [k for k in every if begins[k] < rows.stop and begins[k + 1] > rows.start]
    return some, int(begins[some[0]]) if some else 0


class _Short(FolderSource):
    """The whole trace, of which no row is read."""

    def __init__(self, folder: Path, manifest: Manifest, outputs: _Outputs) -> None:
        self._outputs = outputs
        super().__init__(folder, manifest)

    def sequences(self) -> pa.Table:
        """See `traces.trace.Source`."""
        return self._outputs.short

    def read(self, table: str, column: str) -> np.ndarray:
        """See `traces.trace.Source`."""
        raise TraceError(
            f"{self.folder}: {table}/{column} is needed whole, but rows are read in windows here:"
            " leave out --memory"
        )


class _Window(FolderSource):
    """The files of some shards, one after another."""

    def __init__(self, folder: Path, whole: Manifest, shards: range, outputs: _Outputs) -> None:
        size = whole.batch_size
        self._rows = range(shards.start * size, min(shards.stop * size, whole.n_prompts))
        self._outputs = outputs
        self._first = shards.start
        tables = [*whole.tables, *whole.with_state]
        names = [f"{table}/{k:05d}.parquet" for table in tables for k in shards]
        self.folder = folder
        cut = {name: whole.files[name] for name in names}
        self.manifest = replace(whole, n_prompts=len(self._rows), files=cut)
        self.tables = self.manifest.tables
        self._look = self._new_look()

    def _new_look(self) -> Look:
        # Not a method of this: what refers to itself stays in memory until garbage is collected.
        read = cache(partial(self._outputs.of, self._rows))
        return Look(self.folder, self.manifest, read, self._first)

    def extra(self, name: str) -> pa.Table | None:
        """What was added is the whole trace's."""
        return None
