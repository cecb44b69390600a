"""The files of a trace's folder, as what a trace reads its columns from."""

from __future__ import annotations

from contextlib import suppress
from difflib import get_close_matches
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from traces import files, row_checks, schema, stores
from traces.errors import TraceError
from traces.lazy_checks import Look, refuse_proposals
from traces.manifest import MANIFEST, FileInfo, Manifest, read_manifest

if TYPE_CHECKING:
    from traces.trace import Trace

_TRIES = 3  # of reading what another process is replacing


class FolderSource:
    """A trace's files as a `Source`, see `traces.trace`."""

    def __init__(self, folder: Path, manifest: Manifest) -> None:
        self.folder = folder
        self.manifest = manifest
        self.tables = manifest.tables
        self.tables |= {name: schema.WITH_STATE[name] for name in manifest.with_state}
        self._look = self._new_look()
        row_checks.check_listed(folder, manifest)
        files.check_sizes(folder, manifest)

    def _new_look(self) -> Look:
        return Look(self.folder, self.manifest)

    def columns(self, table: str) -> frozenset[str]:
        """See `traces.trace.Source`."""
        if table in self.manifest.with_state:
            return frozenset((*self.tables[table].names, schema.state_name(table)))
        if table not in self.tables:
            return frozenset()
        return frozenset(self.tables[table].names)

    def rows(self, table: str) -> int:
        """See `traces.trace.Source`."""
        return self.manifest.rows(table)

    def read(self, table: str, column: str) -> np.ndarray:
        """See `traces.trace.Source`."""
        names = self.manifest.shard_files(table)
        if column not in self.columns(table) or not names:
            close = get_close_matches(column, self.columns(table), n=1)
            meant = f" (did you mean {close[0]}?)" if close else ""
            raise TraceError(f"{self.folder / table}: column {column} was not recorded{meant}")
        out = self._look.column(table, column)
        if out is None:
            out = self._from_files(table, column, names)
        out.flags.writeable = False
        return out

    def _from_files(self, table: str, column: str, names: list[str]) -> np.ndarray:
        files.bring(self.folder, self.manifest, names)
        kind = self._type(table, column, names[0])
        out = files.empty(kind, self.rows(table))
        start = 0
        for name in names:
            info = self.manifest.files[name]
            part = files.read(self.folder, name, info, {column: kind})
            files.fill(out[start : start + info.rows], part[column], self.folder / name)
            start += info.rows
        return out

    def _type(self, table: str, column: str, name: str) -> pa.DataType:
        if column in self.tables[table].names:
            return self.tables[table].field(column).type
        if table == "experts" and self.manifest.experts:
            return schema.with_state(table, self.manifest.experts.row_bytes).field(column).type
        width = files.list_width(self.folder / name, column)
        return schema.with_state(table, width).field(column).type

    def sequences(self) -> pa.Table:
        """See `traces.trace.Source`."""
        return self._look.sequences()

    def extra(self, name: str) -> pa.Table | None:
        """See `traces.trace.Source`."""
        info = self.manifest.files.get(name)
        if info is None:
            return None
        for _ in range(_TRIES):
            with suppress(TraceError):  # replaced this moment, perhaps
                return self._whole(name, info)
            now = read_manifest(self.folder)
            if now.content_hash() == self.manifest.content_hash():
                info = now.files.get(name, info)
        return self._whole(name, info)

    def _whole(self, name: str, info: FileInfo) -> pa.Table:
        stores.bring(self.folder, {name: info})
        files.check_hash(self.folder, name, info)
        return files.read(self.folder, name, info)

    def hash(self) -> str:
        """See `traces.trace.Source`."""
        return self.manifest.content_hash()


class AttachedSource(FolderSource):
    """The files of an attached drafter; the sequences are those of the recording."""

    def __init__(self, folder: Path, manifest: Manifest, recording: Trace) -> None:
        if manifest.attached_to != recording.hash:
            raise TraceError(
                f"{folder}: was attached to another recording than {recording.path}: attach it anew"
            )
        for name in ("n_prompts", "batch_size", "max_new_tokens", "eos_token_ids"):
            if getattr(manifest, name) != getattr(recording.manifest, name):
                raise TraceError(f"{folder / MANIFEST}: {name} is not that of the recording")
        self.recording = recording
        outputs = partial(_part, recording)
        self._check_proposals = cache(partial(refuse_proposals, folder, manifest, outputs))
        super().__init__(folder, manifest)

    def read(self, table: str, column: str) -> np.ndarray:
        """See `traces.trace.Source`."""
        out = super().read(table, column)
        self._check_proposals()
        return out

    def _new_look(self) -> Look:
        recording = self.recording  # not this object, which has the look
        return Look(self.folder, self.manifest, lambda: recording.sequences)


def _part(recording: Trace, rows: range) -> pa.Table:
    return recording.sequences.slice(rows.start, len(rows))
