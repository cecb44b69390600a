"""What a kind of drafter promises: the one owner of its tables, checks, offsets and limits."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Literal, NamedTuple, cast

import numpy as np
import pyarrow as pa

from traces.arrays import read_only
from traces.checks import check_keys
from traces.drafters.passes import DraftPasses, Paid, Passes, opened, passes_of
from traces.errors import TraceError
from traces.registry import Registry, of_class

if TYPE_CHECKING:
    from traces.manifest import Manifest
    from traces.rows import FileRows
    from traces.trace import Trace

Ability = Literal["path", "select", "live", "scores", "replay"]
"""What some kinds cannot do: rows along the output; cuts of some prompts; live runs of the pair
that was recorded; scores of heads, one for each row; replays of steps one by one."""


class Shard(NamedTuple):
    """What a kind is handed of one shard to check it.

    Attributes:
        folder: of the trace.
        manifest: of the trace.
        sequences: the shard's, `schema.SEQUENCES`.
        rows: one of the shard's tables, whose schema is given; columns are read when needed.
        state_width: numbers in each row of a table's wide column, whatever its shard.
        states: tables with a wide column that are to be looked at too.
    """

    folder: Path
    manifest: Manifest
    sequences: pa.Table
    rows: Callable[[str, pa.Schema], FileRows]
    state_width: Callable[[str], int]
    states: Collection[str] = ()


class DrafterKind(ABC):
    """A stateless object; `KINDS` holds the classes by name.

    Attributes:
        name: its word.
        stored: the word that manifests have for it.
        layout: "module:class" of what a step of a replay sees of it, a
            `simkit.drafters.layout.Layout`.
        own: fields of the manifest that no other kind has; left out of the text and the hash of
            other kinds' traces.
        known_outputs: whether outputs are known token by token.
        known_prompts: whether prompts are; if not, how long they are may still be known.
        lacks: what traces of this kind cannot do, each with the reason as a line for people.
        noun: what is counted off the path, in the singular, and the table that holds it.
    """

    name: ClassVar[str]
    stored: ClassVar[str]
    layout: ClassVar[str]
    own: ClassVar[tuple[str, ...]] = ()
    known_outputs: ClassVar[bool] = True
    known_prompts: ClassVar[bool] = True
    lacks: ClassVar[Mapping[Ability, str]] = {}
    noun: ClassVar[tuple[str, str]]

    def tables(self, manifest: Manifest) -> dict[str, pa.Schema]:
        """The sharded tables that every trace of this kind has; a shard has a file in each."""
        return self.widest()

    @abstractmethod
    def widest(self) -> dict[str, pa.Schema]:
        """These tables with every column that they may have."""

    @abstractmethod
    def check_header(self, manifest: Manifest) -> None:
        """Refuse what the manifest says, as far as it is this kind's.

        Raises:
            TraceError: as said.
        """

    @abstractmethod
    def check_shard(self, shard: Shard) -> Iterator[str]:
        """A line for each thing that is wrong with the rows of a shard.

        Not all of its columns need be asked for; a rule is applied where one that it ties is, see
        `FileRows.has`. Before any other column, the keys of all tables are asked for, and with them
        whatever is no statistic in the first of `tables`.
        """

    def n_positions(self, trace: Trace) -> int:
        """Output tokens of all sequences."""
        return int(trace.position_offsets[-1])

    @abstractmethod
    def offsets(self, trace: Trace, table: str) -> np.ndarray:
        """Where the rows of each position start in a table, (n_positions + 1,) int64."""

    @abstractmethod
    def outcomes(self, trace: Trace) -> tuple[str, np.ndarray | slice]:
        """The table whose `accepted` says what is accepted given all before it, and its rows."""

    @abstractmethod
    def uses(self, manifest: Manifest) -> str:
        """Which policies can be replayed on it, in a line for people."""

    def can(self, what: Ability) -> bool:
        """Whether traces of this kind can do that."""
        return what not in self.lacks

    def refuse(self, what: Ability, error: type[Exception] = TraceError) -> None:
        """Say why not, if traces of this kind cannot do that.

        Raises:
            Exception: of the class that is given.
        """
        if what in self.lacks:
            raise error(self.lacks[what])

    def draft_passes(
        self, manifest: Manifest, tokens: np.ndarray, unread: np.ndarray | int = 1
    ) -> DraftPasses:
        """The draft model's passes over drafts; by the manifest's word, or a kind's own.

        Args:
            manifest: of the trace.
            tokens: in each draft, any shape.
            unread: see `traces.drafters.passes.passes_of`.
        """
        word = cast(Passes, manifest.draft_passes)
        return passes_of(opened(word, max_draft=manifest.max_draft), tokens, unread)

    def paid(self, manifest: Manifest) -> Paid:
        """How drafts are paid: the manifest's word, or this kind's own `draft_passes`."""
        if type(self).draft_passes is DrafterKind.draft_passes:
            return cast(Passes, manifest.draft_passes)
        return partial(self.draft_passes, manifest)


class ByPosition(DrafterKind):
    """A kind with a table that has a row for each output token, `on_path`."""

    on_path: ClassVar[str]

    def check_shard(self, shard: Shard) -> Iterator[str]:
        """See `DrafterKind`: what else is wrong is only told of rows whose keys hold."""
        rows = shard.rows(self.on_path, self.tables(shard.manifest)[self.on_path])
        key, n_output = (shard.sequences[n].to_numpy() for n in ("sequence", "n_output"))
        problems = list(check_keys(rows, key, n_output))
        yield from problems or self.check_rows(rows, shard)

    @abstractmethod
    def check_rows(self, rows: FileRows, shard: Shard) -> Iterator[str]:
        """A line for each thing that is wrong with the table's rows, whose keys hold, or others."""

    def n_positions(self, trace: Trace) -> int:
        """See `DrafterKind`."""
        return trace.rows(self.on_path)

    def offsets(self, trace: Trace, table: str) -> np.ndarray:
        """See `DrafterKind`: a row each."""
        return np.arange(trace.n_positions + 1)

    def outcomes(self, trace: Trace) -> tuple[str, slice]:
        """See `DrafterKind`."""
        return self.on_path, slice(None)


KINDS: Registry[type[DrafterKind]] = Registry(
    "kind of drafter", TraceError, "simkit.drafters", of_class(DrafterKind)
)
"""The classes by name."""


def register(cls: type[DrafterKind]) -> type[DrafterKind]:
    """Make a kind known by its `name` (decorator).

    Raises:
        TraceError: another kind has that name.
    """
    return KINDS.add(cls.name, cls)


def get(name: str) -> DrafterKind:
    """The kind of that name.

    Raises:
        TraceError: there is none, and the message suggests the nearest.
    """
    return KINDS[name]()


def run_offsets(
    trace: Trace, table: str, key: str, first: tuple[str, int] = ("depth", 1)
) -> np.ndarray:
    """Where runs of rows start in a table, each at the position that `key` names.

    Args:
        trace: that has it.
        table: its name.
        key: column of positions.
        first: the column that tells a run's first row, and what it has there.

    Returns:
        (n_positions + 1,) int64; a position without a run has no rows.
    """
    read = trace.uncached  # three long columns that the rest rarely needs
    name, value = first
    starts = np.flatnonzero(read(table, name) == value)
    sequence = read(table, "sequence")[starts]
    position = read(table, key)[starts]
    index = np.searchsorted(trace.sequences["sequence"].to_numpy(), sequence)
    lengths = np.zeros(trace.n_positions, np.int64)
    rows = trace.position_offsets[index] + position - 1
    lengths[rows] = np.diff(starts, append=trace.rows(table))
    return read_only(np.concatenate([[0], np.cumsum(lengths)]))
