"""A smaller copy of a trace, to be passed on: fewer statistics, rounded, chosen drafters."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np

from traces import schema, spans
from traces.arrays import rounded
from traces.checks import left_out
from traces.copying import copy_rows
from traces.errors import TraceError
from traces.finding import DRAFTERS
from traces.manifest import Manifest
from traces.outputs import whole_folder
from traces.registry import suggest
from traces.trace import Trace
from traces.writer import TraceWriter, add_file

BATCH_SIZE = 64  # sequences of a shard: long columns are smaller


def thin(
    trace: Trace,
    path: str | Path,
    columns: Sequence[str] = (),
    bits: int = 0,
    drafters: Sequence[str] | None = None,
    own: str | None = None,
    drop_tokens: bool = False,
    drafter_columns: Sequence[str] = (),
) -> Path:
    """Write a smaller copy of a recording, with its times, spans and attached drafters.

    Outputs and verdicts are those of the whole. Statistics are rounded to the nearest number of
    ``bits`` significant bits, an error of at most one part in 2^bits, which keeps their order: a
    rule that compares one with a threshold stops elsewhere only where the two are that close.
    Experts come along, scores of heads and states are left behind.

    Args:
        trace: a recording in a folder.
        path: of the copy; nothing is there.
        columns: the statistics to keep, of the recording and of its drafters; empty: all.
        drafter_columns: those of drafters, where they are not to be the same.
        bits: 0 keeps them as they are.
        drafters: names of those that come along; None: all.
        drop_tokens: leave out what no replay reads: draft tokens of branches and of lattices, but
            for EOS. The rows of a path keep theirs.
        own: name of a draft model that was attached to a recording of the target alone; the copy is
            a recording of the two, whose own draft it is.

    Returns:
        where the copy is.

    Raises:
        TraceError: the trace is a drafter or not in a folder, or the copy would lie in it; a column
            or drafter is unknown, or no column is there; bits are out of range; the own drafter is
            no draft model or not the first; or nothing could be written.
    """
    place = Path(path)
    _check(trace, place, (*columns, *drafter_columns))
    base, chosen = _chosen(trace, drafters, own)
    with whole_folder(place) as passing:
        header = replace(_header(base, columns, bits, drop_tokens), attached_to=None, spec="")
        whole = _copy(base, header, passing, is_held=True)
        _copy_spans(trace, whole, passing)
        for name in chosen:
            drafter = trace.with_drafter(name)
            header = _header(drafter, drafter_columns or columns, bits, drop_tokens)
            header = replace(header, attached_to=whole.content_hash())
            _copy(drafter, header, passing / DRAFTERS / name)
    return place


def _copy_spans(trace: Trace, whole: Manifest, passing: Path) -> None:
    if (found := spans.of_copy(trace, whole.content_hash())) is not None:
        add_file(passing, spans.FILE, found, is_held=True)


def _check(trace: Trace, place: Path, columns: Sequence[str]) -> None:
    """Refuse what is no recording in a folder, a copy inside, and columns that are no statistics.

    Raises:
        TraceError: as said.
    """
    if trace.path is None or trace.recording is not None:
        raise TraceError(f"{trace!r} is no recording in a folder: name the recording's")
    trace.manifest.drafter.refuse("replay")
    for name in columns:
        if name not in schema.STATISTICS:
            raise TraceError(
                f"no statistic is called {name!r} ({suggest(name, schema.STATISTICS)})"
            )
    if place.resolve().is_relative_to(trace.path.resolve()):
        raise TraceError(f"{place}: lies in the trace that is copied: name another folder")


def _chosen(
    trace: Trace, drafters: Sequence[str] | None, own: str | None
) -> tuple[Trace, list[str]]:
    """What the copy is of, and the names of drafters that come along; its own draft is none."""
    base = trace if own is None else _pair(trace, own)
    there = trace.drafters if drafters is None else dict.fromkeys(drafters)
    chosen = [name for name in there if name != own]
    for name in chosen:
        if name not in trace.drafters:
            raise TraceError(f"{trace.path}: no drafter {name!r} ({suggest(name, trace.drafters)})")
    return base, chosen


def _pair(trace: Trace, own: str) -> Trace:
    """The drafter of this name, a draft model, of a recording that has none of its own."""
    found = trace.with_drafter(own)
    if found.manifest.kind != "path":
        raise TraceError(f"{own}: a {found.manifest.kind} has no rows of a draft model")
    if trace.manifest.kind != "target":
        raise TraceError(f"{trace.path}: has a draft of its own already")
    return found


def _header(trace: Trace, columns: Sequence[str], bits: int, drop_tokens: bool) -> Manifest:
    """The copy's: what was kept is said in it."""
    manifest = _kept_columns(trace, columns, bits)
    if not drop_tokens or manifest.kind == "target":
        return manifest
    left = tuple(name for name in manifest.lattice_columns if name != "target_token")
    return replace(manifest, tokens="ends", lattice_columns=left)


def _kept_columns(trace: Trace, columns: Sequence[str], bits: int) -> Manifest:
    coarsest = min(filter(None, (bits, trace.manifest.bits)), default=0)
    manifest = replace(
        trace.manifest, batch_size=BATCH_SIZE, bits=coarsest, hidden=False, mix=0.0, files={}
    )
    if not columns:
        return manifest
    there = manifest.path_columns or schema.STATISTICS
    if manifest.kind == "path" and not set(columns) & set(there):
        raise TraceError(f"none of these statistics is there, only {', '.join(there)}")
    with_tokens = (*columns, "draft_token", "target_token")
    kept = {
        "path": {"path_columns": _of(columns, there)},
        "lattice": {"lattice_columns": _of(with_tokens, manifest.lattice_columns)},
        "target": {"target_columns": _of(columns, manifest.target_columns)},
    }
    return replace(manifest, **kept.get(manifest.kind, {}))


def _of(columns: Sequence[str], there: Sequence[str]) -> tuple[str, ...]:
    return tuple(name for name in there if name in columns)


def _copy(trace: Trace, header: Manifest, folder: Path, is_held: bool = False) -> Manifest:
    """Write one folder; the manifest that it has then."""
    with TraceWriter(folder, header, is_held=is_held, tight=True) as writer:
        copy_rows(trace, header, writer, partial(kept, header=header))
        latency = trace.own_latency() if header.attached_to else trace.latency()
        if latency is not None:
            writer.write_latency(latency)
        writer.finish()
        return writer.manifest


def kept(values: np.ndarray, table: str, name: str, header: Manifest) -> np.ndarray:
    """What a copy with this header has of a column of one of its tables."""
    if header.bits and name in schema.STATISTICS:
        return rounded(values, header.bits)
    if header.tokens == "ends" and name == "draft_token" and table != "positions":
        ends = header.eos_token_ids
        return np.where(np.isin(values, ends), values, np.int32(left_out(ends)))
    return values
