"""The log of live runs: what took how long, kept in Parquet as the runs go on."""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from simkit.errors import LiveError
from simkit.live.clock import Clock, Mark
from traces import files, outputs, parquet, schema
from traces.messages import how_many

LEFT_OUT = "left out"
BASELINE = "baseline"  # the name of autoregressive decoding by the target alone


class LiveRow(NamedTuple):
    """One span of time; the fields are columns of `traces.schema.LIVE`."""

    step: int
    start: int
    accepted: int
    kind: str
    component: str
    depth: int
    tokens_in: int
    context_len: int
    batch_size: int
    seconds: float


class Spans:
    """What a sequence's time went to, as marks; they become rows when the sequence is done.

    Args:
        clock: that gives the marks.
        batch_size: how many sequences these are.

    Attributes:
        batch_size: how many are in the passes of the step at hand; those that end leave.
        mark: gives the moment.
    """

    def __init__(self, clock: Clock, batch_size: int = 1) -> None:
        self.clock, self.batch_size, self._n_sequences = clock, batch_size, batch_size
        self.mark = clock.mark
        self._open: list[tuple] = []
        self._closed: list[tuple] = []

    def add(
        self,
        kind: str,
        component: str,
        begin: Mark,
        end: Mark,
        tokens_in: int = 0,
        context_len: int = 0,
        depth: int = 0,
    ) -> None:
        """A span of the step at hand."""
        self._open.append((kind, component, depth, tokens_in, context_len, begin, end))

    @contextmanager
    def left_out(self) -> Iterator[None]:
        """Between two parts of a step: what is done inside is in no row, and taken off the step."""
        begun = self.clock.mark()
        yield
        self.add(LEFT_OUT, "", begun, self.clock.mark())

    def close(
        self, number: int, begin: Mark, start: int, drafted: int, accepted: int, emitted: int
    ) -> None:
        """The step at hand is over; it began at a mark."""
        whole = ("step", "", drafted, emitted, 0, begin, self.clock.mark())
        size = self.batch_size
        self._closed += [(number, start, accepted, size, span) for span in (*self._open, whole)]
        self._open.clear()

    def rows(self) -> list[LiveRow]:
        """All spans with their seconds, and one of the sequence: the sum of its steps."""
        self.clock.settle()
        rows: list[LiveRow] = []
        left_out = total = 0.0
        accepted = emitted = 0
        for number, start, a, size, span in self._closed:
            kind, what, depth, tokens, context, begin, end = span
            seconds = self.clock.between(begin, end)
            if kind == LEFT_OUT:
                left_out += seconds
                continue
            if kind == "step":
                seconds, left_out = seconds - left_out, 0.0
                total, accepted, emitted = total + seconds, accepted + a, emitted + tokens
            place = (number, start, a)
            rows.append(LiveRow(*place, kind, what, depth, tokens, context, size, seconds))
        last = rows[-1].step if rows else 0
        size = self._n_sequences
        rows.append(LiveRow(last, 1, accepted, "sequence", "", 0, emitted, 0, size, total))
        self._closed.clear()
        return rows


class LiveLog:
    """Collects rows and keeps them safe: parts are written whole beside the file to come.

    A run that is killed leaves the folder `FILE.parts`, each part of which is a Parquet file; the
    next run puts them together in a file of another name. One that ends as it should leaves the
    file, in place of an earlier one; one that breaks off, by whatever error, leaves an earlier one
    as it was and what it has in a file of another name.

    Args:
        file: to write; None keeps all in memory.
        facts: about the run, kept in the file's metadata.
        every_s: seconds of a part, at least.
        where: the file that this one will become, and that messages name; None: the file itself.

    Attributes:
        written: the file that `close` has written; None before, or if there was nothing to write.
        recovered: files of what runs that were killed had measured.

    Raises:
        TraceError: the file cannot be written.
        LiveError: another run is writing this log, or what a killed one left cannot be read.
    """

    def __init__(
        self,
        file: Path | None = None,
        facts: dict[str, str] | None = None,
        every_s: float = 10.0,
        where: Path | None = None,
    ) -> None:
        self.file, self.every_s, self.where = file, every_s, where or file
        self.written: Path | None = None
        self.recovered: list[Path] = []
        self._since = time.monotonic()
        self._schema = schema.LIVE.with_metadata(facts or {})
        self._tables: list[pa.Table] = []
        self._waiting: list[pa.Table] = []
        self._parts = None if file is None else file.with_name(file.name + ".parts")
        self._spare: Path | None = None
        self._lock: int | None = None
        if file is not None and self._parts is not None:
            outputs.check_room(file)
            self._lock = _hold(file, self._parts)
            try:
                self._recover(file, self._parts)
            except BaseException:
                self._release()
                raise
            self._spare = _spare(file) if self.where and self.where.exists() else None

    def _recover(self, file: Path, parts: Path) -> None:
        """Put what earlier runs left here out of the way, under names of its own."""
        if file != self.where and file.exists():  # it did not get to where it belongs
            self.recovered.append(_spare(file))
            os.rename(file, self.recovered[-1])
        left = sorted(part for part in parts.glob("*.parquet") if not part.name.startswith("."))
        if left:
            table = pa.concat_tables([read(part) for part in left]).combine_chunks()
            self.recovered.append(_spare(file))
            data, _ = files.encode(parquet.sealed(table))
            outputs.write_atomic(self.recovered[-1], data)
        for part in parts.iterdir():
            part.unlink()

    def add(
        self, run: int, round_: int, policy: str, sequence: int, rows: Sequence[LiveRow]
    ) -> None:
        """Append one sequence."""
        columns: dict[str, Any] = dict(zip(LiveRow._fields, zip(*rows, strict=True), strict=True))
        for name, value in (("run", run), ("round", round_), ("sequence", sequence)):
            columns[name] = np.full(len(rows), value, np.int32)
        columns["policy"] = [policy] * len(rows)
        arrays = [pa.array(columns[field.name], field.type) for field in self._schema]
        self._waiting.append(pa.Table.from_arrays(arrays, schema=self._schema))
        if time.monotonic() - self._since >= self.every_s:
            self.flush()

    def flush(self) -> None:
        """Write what is waiting as a part."""
        if not self._waiting:
            return
        table = pa.concat_tables(self._waiting)
        if self._parts is not None:
            name = f"{len(self._tables):05d}.parquet"
            outputs.write_atomic(self._parts / name, files.encode(parquet.sealed(table))[0])
        self._tables, self._waiting = [*self._tables, table], []  # at once: no interrupt between
        self._since = time.monotonic()

    def table(self) -> pa.Table:
        """All rows so far, `traces.schema.LIVE`."""
        return pa.concat_tables([self._schema.empty_table(), *self._tables, *self._waiting])

    @property
    def kept(self) -> str:
        """What a run that broke off leaves, in words."""
        whole = self.table().filter(pc.field("kind") == "sequence")
        n = sum(whole["batch_size"].to_pylist())
        if not n:
            return "nothing was measured yet"
        if self.where is None:
            return "no log was asked for, nothing is kept"
        before = f"{self.where} is as it was; " if self._spare else ""
        where = self._spare or self.where
        return f"{before}{where} has the {how_many(n, 'sequence')} that were decoded"

    def close(self, whole: bool = True) -> None:
        """Write the file, if there is anything to write.

        Args:
            whole: the run has not broken off.
        """
        if self.file is None or self._parts is None:
            return
        try:
            table = self.table().combine_chunks()
            if table.num_rows:
                file = self.file if whole else self._spare or self.file
                outputs.write_atomic(file, files.encode(parquet.sealed(table))[0])
                self.written = file
            for part in self._parts.iterdir():
                part.unlink()
        except OSError as error:
            raise outputs.write_error(self._parts, error) from None
        finally:
            self._release()

    def _release(self) -> None:
        """Let others write this log; a folder without parts goes."""
        if self._parts is not None:
            with suppress(OSError):
                self._parts.rmdir()
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def __enter__(self) -> LiveLog:
        return self

    def __exit__(self, kind: type[BaseException] | None, *error: object) -> None:
        self.close(whole=kind is None)


def _hold(file: Path, parts: Path) -> int | None:
    """Make the folder of the parts and keep other runs from it, until the handle is closed."""
    while True:
        try:
            outputs.make_folder(parts)
            return outputs.hold_folder(parts)
        except FileNotFoundError:  # another run has ended this moment, and taken it away
            continue
        except BlockingIOError:
            raise LiveError(f"{file}: another run is writing this log") from None
        except OSError as error:
            raise outputs.write_error(file, error) from None


def _spare(file: Path) -> Path:
    """A free name beside a file: `live.partial.parquet`, then `live.partial-2.parquet`."""
    words = itertools.chain(["partial"], (f"partial-{n}" for n in itertools.count(2)))
    names = (file.with_name(f"{file.stem}.{word}{file.suffix}") for word in words)
    return next(name for name in names if not name.exists())


def read(file: str | Path) -> pa.Table:
    """The log in a file.

    Raises:
        LiveError: it cannot be read, or is no log of live runs.
    """
    return parquet.read_samples(Path(file), schema.LIVE, LiveError)
