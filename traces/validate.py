"""Check all of a trace: the bytes of its files, and what its rows say."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from pathlib import Path, PurePosixPath

from traces import files, schema, scores
from traces.content import SEQUENCES, check_files, check_listed, check_rows
from traces.errors import TraceError
from traces.manifest import Manifest
from traces.samples import check_samples
from traces.trace import Trace, find, load


def validate(path_or_name: str | Path) -> list[str]:
    """Check hashes, keys, ranges and the rules that tie rows to each other.

    Args:
        path_or_name: a trace's folder, or the name of a bundled trace.

    Returns:
        One line for each problem: the file, the sequence and the position, and what is wrong.
        Many problems of one kind in one file are counted after the first few. Empty: all is well.

    Raises:
        TraceError: there is no finished trace there.
    """
    folder, manifest = find(path_or_name)
    if manifest.n_shards > len(manifest.files):  # before all of their names are made
        try:
            check_listed(folder, manifest)
        except TraceError as error:
            return [str(error)]
    problems = list(check_files(folder, manifest))
    # Rows of damaged files say nothing.
    problems = problems or list(check_rows(folder, manifest))
    added = chain(_check_latency(folder, manifest), _check_scores(folder, manifest))
    return problems or list(added)


def check_schemas(trace: Trace) -> None:
    """Refuse a trace in a folder that lacks a column which all of its kind have; reads no row.

    Raises:
        TraceError: as said, or a file is damaged; the message names the file.
    """
    if trace.path is None:
        return
    for table, wanted in {SEQUENCES: schema.SEQUENCES, **trace.manifest.tables}.items():
        types = {field.name: field.type for field in wanted}
        names = [table] if table == SEQUENCES else trace.manifest.shard_files(table)
        for name in names:
            files.check_schema(trace.path, name, types)


def _check_latency(folder: Path, manifest: Manifest) -> Iterator[str]:
    if "latency.parquet" not in manifest.files:
        return
    try:
        table = load(folder).latency()
        assert table is not None  # it is listed
    except TraceError as error:
        yield str(error)
        return
    yield from check_samples(table, folder / "latency.parquet")


def _check_scores(folder: Path, manifest: Manifest) -> Iterator[str]:
    for name in sorted(manifest.files):
        if name.startswith("scores/"):
            try:
                scores.load(load(folder), PurePosixPath(name).stem)
            except TraceError as error:
                yield f"{folder / name}: {str(error).removeprefix(f'{folder / name}: ')}"
