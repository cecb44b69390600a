"""A recorded trace, as numpy columns that are read when they are first asked for."""

from __future__ import annotations

import os
from abc import abstractmethod
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from traces import parquet, same_prompts, schema, stores
from traces.allocator import trim
from traces.arrays import read_only
from traces.bundle import DATA
from traces.card import card
from traces.did_you_mean import Helpful, facts_html
from traces.errors import TraceError
from traces.finding import attached, find
from traces.folder_source import AttachedSource, FolderSource
from traces.manifest import Manifest
from traces.messages import how_many
from traces.sampler import Sampler
from traces.samples import check_samples, with_own

OWN = "own"  # the word for the drafter that a trace was recorded with
_TWINS = {"draft_prob": "draft_prob_raw", "draft_prob_raw": "draft_prob"}
_KEYS = ("sequence", "position", "start", "depth")  # of a row, in a frame's first columns
_TRIES = 3  # of reading what another process is replacing


class Source(Protocol):
    """Where a trace's columns come from: files or memory."""

    @abstractmethod
    def columns(self, table: str) -> frozenset[str]:
        """Names of a table's columns; none if there is no such table."""

    @abstractmethod
    def read(self, table: str, column: str) -> np.ndarray:
        """One column, in key order. Raises TraceError if it is not there or damaged."""

    @abstractmethod
    def rows(self, table: str) -> int:
        """Rows of a sharded table; 0 if there is no such table."""

    @abstractmethod
    def sequences(self) -> pa.Table:
        """The sequences, ascending, with the columns of schema.SEQUENCES."""

    @abstractmethod
    def extra(self, name: str) -> pa.Table | None:
        """A table that was added after the recording ("latency.parquet", …), or None."""

    @abstractmethod
    def hash(self) -> str:
        """A sha256 that tells contents apart."""


class Trace(Helpful):
    """One recording: every output position of every sequence, and the branches off the path.

    What tables there are is the kind of drafter's, `manifest.drafter`: a lattice has neither rows
    nor branches; it holds the draft from each position.

    Arrays are contiguous, in key order, read-only and cached: asking twice reads once.

    Attributes:
        path: the folder; None for a trace in memory.
        manifest: what was recorded with what.
        recording: where its outputs come from, if this is a drafter that was attached to them.

    >>> import traces
    >>> trace = traces.load("reference")
    >>> trace.positions("accepted").shape, trace.max_draft
    ((23672,), 40)
    """

    def __init__(
        self,
        manifest: Manifest,
        source: Source,
        path: Path | None = None,
        recording: Trace | None = None,
    ) -> None:
        self.path = path
        self.manifest = manifest
        self.recording = recording
        self._source = source
        self._cache: dict[tuple[str, str], np.ndarray] = {}

    @property
    def place(self) -> str:
        """Where it lies, for people: a folder, the URL of one in a store, or "in memory"."""
        if self.path is None:
            return "in memory"
        return stores.copied_from(self.path) or str(self.path)

    def __repr__(self) -> str:
        name: Path | str = self.place
        if self.path is not None and self.path.is_relative_to(DATA):
            name = self.path.relative_to(DATA)
        sequences = how_many(self.n_sequences, "sequence")
        return f"<Trace {name}: {sequences}, {how_many(self.n_positions, 'position')}>"

    def __str__(self) -> str:
        return "\n".join(f"{name:18} {said}" for name, said in card(self))

    def _repr_html_(self) -> str:
        return facts_html(card(self))

    @property
    def sampler(self) -> Sampler:
        """How tokens were drawn."""
        return self.manifest.sampler

    @property
    def max_draft(self) -> int:
        """Γ: the deepest recorded draft, in tokens."""
        return self.manifest.max_draft

    @property
    def has_draft_model(self) -> bool:
        """Whether its drafts may be taken for those of a draft model with times of its own.

        An imported file's are not: they are some drafter's, of which it says the name alone.
        """
        own = self.manifest.attached_to is None or self.manifest.draft is not None
        return self.manifest.source is None and own

    @property
    def drafters(self) -> list[str]:
        """Names of the drafters that were attached to it, half attached ones too."""
        return attached(self.path) if self.path and self.recording is None else []

    def with_drafter(self, name: str) -> Trace:
        """This recording with the drafts of a drafter that was attached to it; "own": as it is.

        Raises:
            TraceError: there is none of that name, it is not whole, or the recording is in memory
                or a drafter itself.
        """
        if name == OWN:
            return self
        if self.path is None or self.recording is not None:
            raise TraceError(f"{self!r} has no attached drafters: give the recording in its folder")
        return _attached_to(self, *find(self.path, name))

    @property
    def max_new_tokens(self) -> int:
        """T_max: the longest output allowed, in tokens."""
        return self.manifest.max_new_tokens

    @property
    def eos_token_ids(self) -> tuple[int, ...]:
        """Tokens that end an output."""
        return self.manifest.eos_token_ids

    @property
    def n_sequences(self) -> int:
        """Recorded prompts."""
        return self.manifest.n_prompts

    @property
    def n_positions(self) -> int:
        """Output tokens of all sequences."""
        return self.manifest.drafter.n_positions(self)

    def rows(self, table: str) -> int:
        """Rows of a sharded table ("positions", …); 0 if there is no such table."""
        return self._source.rows(table)

    @property
    def n_branch_rows(self) -> int:
        """Recorded draft tokens off the path."""
        return self._source.rows("branches")

    @property
    def n_lattice_rows(self) -> int:
        """Draft tokens of all starts of a lattice."""
        return self._source.rows("lattice")

    @cached_property
    def hash(self) -> str:
        """A sha256 of the recording; tables added later do not change it."""
        return self._source.hash()

    @cached_property
    def sequences(self) -> pa.Table:
        """One row a prompt, ascending; the columns of `schema.SEQUENCES`."""
        return self._source.sequences()

    @cached_property
    def prompt_numbers(self) -> np.ndarray:
        """The number of each sequence's prompt, (S,) int64; copies of one prompt share it."""
        return same_prompts.numbers(same_prompts.keys(self.sequences))

    def positions(self, column: str) -> np.ndarray:
        """A column of the on-path rows, shape (n_positions,), by (sequence, position).

        Raises:
            TraceError: no such column, or its file is damaged.
        """
        return self.column("positions", column)

    def branches(self, column: str) -> np.ndarray:
        """A column of the off-path rows, shape (n_branch_rows,), by (sequence, position, depth).

        Raises:
            TraceError: no such column, or its file is damaged.
        """
        return self.column("branches", column)

    def lattice(self, column: str) -> np.ndarray:
        """A column of a lattice, shape (n_lattice_rows,), by (sequence, start, depth).

        Raises:
            TraceError: no such column, or its file is damaged.
        """
        return self.column("lattice", column)

    def to_arrow(self) -> pa.Table:
        """All columns of `positions`, or of `lattice` where there are none, keys first.

        Raises:
            TraceError: the trace has neither.
        """
        for table in ("positions", "lattice"):
            names = self._source.columns(table)
            if names:
                keys = [name for name in _KEYS if name in names]
                ordered = [*keys, *sorted(names.difference(keys))]
                return pa.table({name: self.column(table, name) for name in ordered})
        raise TraceError(f"{self.place}: a recording of the target alone has no drafts to show")

    def to_pandas(self) -> Any:
        """`to_arrow` as a pandas.DataFrame; pandas must be installed."""
        return self.to_arrow().to_pandas()

    def column(self, table: str, column: str) -> np.ndarray:
        """A column of any sharded table ("positions", "hidden", …); see `positions`."""
        key = (table, self._stored(table, column))
        if key not in self._cache:
            self._cache[key] = self._source.read(*key)
        return self._cache[key]

    @property
    def kept_bytes(self) -> int:
        """Memory of the columns that were read and are kept."""
        return sum(column.nbytes for column in self._cache.values())

    def forget(self) -> None:
        """Drop the columns that are kept; asked for again, they are read again."""
        self._cache.clear()
        trim()

    def has(self, table: str, column: str) -> bool:
        """Whether a column was recorded, or one that has its values."""
        return self._stored(table, column) in self._source.columns(table)

    def _stored(self, table: str, column: str) -> str:
        """The column that holds its values, where it was not kept beside one that has the same.

        At temperature 1 without cuts q is the raw one, and the two are equal to the bit. Greedily a
        draft model drafts its likeliest token; there the last bits may differ.
        """
        there, sampler, twin = self._source.columns(table), self.sampler, None
        if sampler.q_temperature == 1 and sampler.top_k == 0 and sampler.top_p == 1:
            twin = _TWINS.get(column)
        elif sampler.greedy and self.manifest.kind == "path" and column == "draft_top1_prob":
            twin = "draft_prob_raw"
        return twin if twin in there and column not in there else column

    @cached_property
    def position_offsets(self) -> np.ndarray:
        """Where sequences start: shape (n_sequences + 1,), int64.

        Rows offsets[s] to offsets[s + 1] of `positions` are the s-th sequence's.
        """
        lengths = self.sequences["n_output"].to_numpy()
        return read_only(np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)]))

    @cached_property
    def branch_offsets(self) -> np.ndarray:
        """Where branches start: shape (n_positions + 1,), int64.

        Rows offsets[r] to offsets[r + 1] of `branches` are the branch of the r-th on-path row;
        none if it was accepted.
        """
        return self.offsets("branches")

    @cached_property
    def lattice_offsets(self) -> np.ndarray:
        """Where the drafts of a lattice start: shape (n_positions + 1,), int64.

        Rows offsets[r] to offsets[r + 1] are the draft from the r-th position of all.
        """
        return self.offsets("lattice")

    def offsets(self, table: str) -> np.ndarray:
        """Where the rows of each position start in a sharded table of this trace's kind.

        Shape (n_positions + 1,), int64; made anew whenever it is asked for.
        """
        return self.manifest.drafter.offsets(self, table)

    def uncached(self, table: str, column: str) -> np.ndarray:
        """A column as `column` gives it, which is not kept."""
        return self._source.read(table, column)

    def extra(self, name: str) -> pa.Table | None:
        """A table that was added after the recording, by its path in the trace; None if absent."""
        return self._source.extra(name)

    def latency(self) -> pa.Table | None:
        """Raw timing samples (`schema.LATENCY`), or None where none were taken.

        A drafter that was attached may have some of its own; those of the target, of rules and of
        heads are then the recording's, and without any of those there are no times. One that runs
        passes has none until these were timed: the recording's draft model is another one.
        """
        own = self.own_latency()
        if self.recording is None or (own and "target" in own["component"].to_pylist()):
            return own
        if own is None and self.manifest.draft_passes != "none":
            return None
        known = self.recording.latency()
        return known and with_own(known, own)

    def own_latency(self) -> pa.Table | None:
        """The timing samples in its own folder, see `latency`; those of a recording are there."""
        table = self.extra("latency.parquet")
        if table is None:
            return None
        types = {field.name: field.type for field in schema.LATENCY}
        file = (self.path or Path()) / "latency.parquet"
        parquet.check_columns(table.schema, types, file, TraceError)
        table = parquet.check_sealed(table.select(schema.LATENCY.names), file, TraceError)
        for problem in check_samples(table, file):
            raise TraceError(problem)
        return table


def load(path_or_name: str | Path, drafter: str | None = None) -> Trace:
    """Open a trace. Reads the manifest and the sizes of the files, nothing else.

    Args:
        path_or_name: its folder, its URL in a store, or the name of a bundled trace.
        drafter: the name of a drafter that was attached to it, whose drafts are then those of the
            trace; None means the one that it was recorded with.

    Raises:
        TraceError: there is none, it is unfinished, or a file is missing or cut short; the
            message names the file.

    >>> import traces
    >>> traces.load("reference")
    <Trace reference: 128 sequences, 23,672 positions>
    >>> traces.load("reference", "suffix").manifest.spec
    'suffix()'
    """
    for _ in range(_TRIES):
        found = find(path_or_name, drafter)
        with suppress(TraceError):  # a file was replaced this moment, perhaps
            return _open(*found)
    return _open(*find(path_or_name, drafter))


def _open(folder: Path, manifest: Manifest) -> Trace:
    if manifest.attached_to is None:
        return Trace(manifest, FolderSource(folder, manifest), folder)
    try:
        recording = _open(*find(Path(os.path.abspath(folder)).parent.parent))
    except TraceError as error:
        raise TraceError(
            f"{folder} is one drafter of a recording, in whose folder it must lie: {error}"
        ) from None
    return _attached_to(recording, folder, manifest)


def _attached_to(recording: Trace, folder: Path, manifest: Manifest) -> Trace:
    return Trace(manifest, AttachedSource(folder, manifest, recording), folder, recording)


def opened(given: Trace | str | Path) -> Trace:
    """A trace, or what `load` gives for its folder, URL or name."""
    return given if isinstance(given, Trace) else load(given)
