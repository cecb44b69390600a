"""What is looked at of a trace before it is handed out: each column once, when it is asked for.

The bytes of the files are held against the manifest's hashes, and the sequences and the keys of all
rows against each other, before anything is read; so is what is no statistic in the first table of
the kind (`first_columns`). A statistic is looked at when it is read, with those that a rule ties to
it. What was found to be fine is remembered (`validation_cache`), by the content's hash. So it is of
the rows of attached drafters that are rules on tokens alone: they are what the rule proposes.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import closing, suppress
from functools import cached_property
from importlib import import_module
from pathlib import Path
from threading import RLock
from typing import Any

import numpy as np
import pyarrow as pa

from traces import files, row_checks, schema, validation_cache
from traces.bundle import DATA
from traces.decoded_cache import Kept
from traces.errors import TraceError
from traces.manifest import Manifest
from traces.own_sources import is_own
from traces.rows import KEYS

Columns = Mapping[str, Collection[str]]
"""Names of columns by their table."""
_PROPOSALS: validation_cache.Column = ("", "proposals")  # no table is called so


def first_columns(tables: Mapping[str, pa.Schema]) -> dict[str, list[str]]:
    """What is looked at before anything is read of these tables.

    That is the keys, which say what a row is of, and in the first table what is no statistic:
    tokens and verdicts, which every replay reads, and which are tied to the outputs.
    """
    main = next(iter(tables), None)
    return {
        table: [
            name
            for name in columns.names
            if name in KEYS or (table == main and name not in schema.STATISTICS)
        ]
        for table, columns in tables.items()
    }


def check_proposals(
    folder: Path, manifest: Manifest, outputs: Callable[[range], pa.Table]
) -> Iterator[str]:
    """A line for each file whose rows are not what a rule on tokens alone proposes.

    See `traces.attach.tokens.again.check_proposals`.
    """
    if not _is_of_rule(manifest):
        return
    try:
        yield from _again().check_proposals(folder, manifest, outputs)
    except TraceError as error:
        yield str(error)


def refuse_proposals(
    folder: Path, manifest: Manifest, outputs: Callable[[range], pa.Table]
) -> None:
    """Refuse what `check_proposals` finds; each content is looked at once.

    Bundled drafters are taken as they are, as the package's code is: its own tests check them.

    Raises:
        TraceError: the first problem.
    """
    if not _is_of_rule(manifest) or folder.resolve().is_relative_to(DATA):
        return
    digest = validation_cache.content(manifest)
    if _PROPOSALS in validation_cache.columns(digest):
        return
    for problem in check_proposals(folder, manifest, outputs):
        raise TraceError(problem)
    if is_own(type(_again().rule_of(manifest))):  # that of another package may change
        validation_cache.note(digest, [_PROPOSALS])


def _is_of_rule(manifest: Manifest) -> bool:
    return manifest.attached_to is not None and manifest.draft_passes == "none"


def _again() -> Any:
    return import_module("traces.attach.tokens.again")  # compiles, which others need not load


class Look:
    """What was looked at of one folder's tables; its methods raise TraceError: the first problem.

    Args:
        folder: of the trace, or of a drafter that was attached to one.
        manifest: of the folder.
        outputs: gives the sequences of the recording, checked, where a drafter was attached to it.
        first: number of the first of the manifest's shards, which are some of a trace's.
    """

    def __init__(
        self,
        folder: Path,
        manifest: Manifest,
        outputs: Callable[[], pa.Table] | None = None,
        first: int = 0,
    ) -> None:
        self._folder = folder
        self._manifest = manifest
        self._outputs = outputs
        self._first = first
        self._sequences: pa.Table | None = None
        self._kept = Kept(manifest.n_shards)
        self._fine: set[validation_cache.Column] = set()
        self._begun: dict[str, tuple[list[str], validation_cache.Stamps]] = {}
        self._lock = RLock()  # for a trace that several threads read

    def sequences(self) -> pa.Table:
        """The sequences, once they and the keys of all rows were looked at."""
        with self._lock:
            self._begin("")
            return self._read_sequences()

    def column(self, table: str, column: str) -> np.ndarray | None:
        """Look at a column; all of it if that has decoded it, None if it is yet to be read."""
        with self._lock:
            part = table if table in self._manifest.with_state else ""
            self._begin(part)
            if (table, column) not in self._fine:
                self._see(part, {table: [column]})
                self._note(part)
            return self._kept.take(table, column)

    @cached_property
    def _content(self) -> str:
        return validation_cache.content(self._manifest)

    def _begin(self, part: str) -> None:
        """Look at the files, and at what is first, of one table with states or of all others."""
        if part in self._begun:
            return
        if part:
            self._begin("")
        tables = {part: schema.WITH_STATE[part]} if part else self._manifest.tables
        names = [name for table in tables for name in self._manifest.shard_files(table)]
        if not part and self._outputs is None:
            names = [row_checks.SEQUENCES, *names]
        files.bring(self._folder, self._manifest, names)
        is_known = validation_cache.is_known(self._folder, self._manifest, names)
        before = validation_cache.first_stamps(self._folder, names)
        self._fine |= validation_cache.columns(self._content)
        hashed: set[str] = set()
        if part and not is_known:  # states are long: their bytes do not fit into memory at once
            self._check_hashes(names, hashed)
        first = first_columns(tables)
        if not self._fine.issuperset(_pairs(first)):
            if not part:
                self._check_sequences(None if is_known else hashed)
            self._see(part, first, None if part or is_known else hashed)
        if not is_known:
            self._check_hashes(names, hashed)  # a kind of drafter need not look at all its tables
            validation_cache.remember(self._folder, self._manifest, names, before)
        self._begun[part] = names, before
        self._note(part)

    def _check_hashes(self, names: list[str], hashed: set[str]) -> None:
        for name in names:
            if name not in hashed:
                files.check_hash(self._folder, name, self._manifest.files[name])
                hashed.add(name)

    def _check_sequences(self, hashed: set[str] | None) -> None:
        table = self._read_sequences(is_hashed=hashed is not None)
        if self._outputs is not None:
            return
        if hashed is not None:
            hashed.add(row_checks.SEQUENCES)
        for problem in row_checks.check_sequences(self._folder, self._manifest, table):
            raise TraceError(problem)

    def _read_sequences(self, is_hashed: bool = False) -> pa.Table:
        if self._outputs is not None:
            return self._outputs()
        if self._sequences is None:
            self._sequences = row_checks.read_sequences(self._folder, self._manifest, is_hashed)
        return self._sequences

    def _see(self, part: str, asked: Columns, hashed: set[str] | None = None) -> None:
        """Apply all rules that tie the columns that are asked for."""
        columns = row_checks.TablePart(asked, [part] if part else [], self._kept, hashed)
        sequences = self._read_sequences()
        look = row_checks.check_rows(self._folder, self._manifest, sequences, columns, self._first)
        with closing(look) as found:  # its threads end here, not where garbage is collected
            problem = next(found, None)
        if problem is not None:
            raise TraceError(problem)
        self._fine |= _pairs(asked)

    def _note(self, part: str) -> None:
        """Remember what is fine, of files that are still those whose hashes were taken."""
        names, before = self._begun[part]
        with suppress(OSError):
            if validation_cache.stamps(self._folder, names) == before:
                validation_cache.note(self._content, self._fine)


def _pairs(columns: Columns) -> set[validation_cache.Column]:
    return {(table, name) for table, names in columns.items() for name in names}
