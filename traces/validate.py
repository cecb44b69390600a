"""Check all of a trace: the bytes of its files, and what its rows say."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path, PurePosixPath

import pyarrow as pa

from traces import files, schema, scores, spans
from traces.errors import TraceError
from traces.finding import find
from traces.lazy_checks import check_proposals
from traces.manifest import Manifest
from traces.row_checks import SEQUENCES, check_files, check_listed, check_rows
from traces.trace import Trace, load


def validate(path_or_name: str | Path) -> list[str]:
    """Check hashes, keys, ranges and the rules that tie rows to each other.

    Drafters that were attached to a recording are checked with it.

    Args:
        path_or_name: a trace's folder, or the name of a bundled trace.

    Returns:
        One line for each problem: the file, the sequence and the position, and what is wrong.
        Many problems of one kind in one file are counted after the first few. Empty: all is well.

    Raises:
        TraceError: there is no finished trace there.
    """
    folder, manifest = find(path_or_name)
    problems = _problems(folder, manifest, None)
    if problems or manifest.attached_to is not None:
        return problems
    recording = load(folder)
    for name in recording.drafters:
        try:
            drafter = recording.with_drafter(name)
            assert drafter.path is not None  # it is in a folder
            problems += _problems(drafter.path, drafter.manifest, recording.sequences)
        except TraceError as error:
            problems.append(str(error))
    return problems


def _problems(folder: Path, manifest: Manifest, outputs: pa.Table | None) -> list[str]:
    """What is wrong with one folder; `outputs` as in `row_checks.check_rows`."""
    if manifest.attached_to is not None and outputs is None:
        outputs = load(folder).sequences
    if manifest.n_shards > len(manifest.files):  # before all of their names are made
        try:
            check_listed(folder, manifest)
        except TraceError as error:
            return [str(error)]
    problems = list(check_files(folder, manifest))
    # Rows of damaged files say nothing.
    problems = problems or list(check_rows(folder, manifest, outputs=outputs))
    if manifest.attached_to is not None and outputs is not None and not problems:
        problems = list(check_proposals(folder, manifest, partial(_part, outputs)))
    return problems or list(_check_added(folder, manifest))


def check_schemas(trace: Trace) -> None:
    """Refuse a trace in a folder that lacks a column which all of its kind have; reads no row.

    Raises:
        TraceError: as said, or a file is damaged; the message names the file.
    """
    if trace.path is None:
        return
    own = {} if trace.recording else {SEQUENCES: schema.SEQUENCES}
    for table, wanted in {**own, **trace.manifest.tables}.items():
        types = {field.name: field.type for field in wanted}
        names = [table] if table == SEQUENCES else trace.manifest.shard_files(table)
        files.bring(trace.path, trace.manifest, names)
        for name in names:
            files.check_schema(trace.path, name, types)


def _part(outputs: pa.Table, rows: range) -> pa.Table:
    return outputs.slice(rows.start, len(rows))


def _check_added(folder: Path, manifest: Manifest) -> Iterator[str]:
    """A line for each table that was added and does not fit: times, spans, scores of heads."""
    looks: dict[str, Callable[[Trace], object]] = {
        "latency.parquet": Trace.own_latency,
        spans.FILE: spans.load,
    }
    for name in sorted(manifest.files):
        if name.startswith("scores/"):
            looks[name] = partial(scores.load, name=PurePosixPath(name).stem)
    for name, look in looks.items():
        try:
            if name in manifest.files:
                look(load(folder))
        except TraceError as error:
            where = f"{folder / name}: " if name.startswith("scores/") else ""
            yield where + str(error).removeprefix(where)
