"""Run a drafter over the outputs of a recording and write what it drafts; take it away again."""

from __future__ import annotations

import os
import re
import shutil
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from traces import stores
from traces.attach.drafter import Attachable, Attachment, Means, check_means, check_outputs
from traces.describe import size_in_words
from traces.differences import settings_of
from traces.errors import DrafterError
from traces.finding import DRAFTERS
from traces.loops import beside_itself
from traces.manifest import read_manifest
from traces.messages import how_many
from traces.outputs import hold_folder, passing_name, sync_folder, write_error
from traces.registry import suggest
from traces.trace import OWN, Trace
from traces.writer import TraceWriter, add_file

_NAME = re.compile(r"[A-Za-z][\w.+-]{0,63}")
_LONG_S = 5.0  # less need not be told


class Done(NamedTuple):
    """A drafter that was attached.

    Attributes:
        name: in the trace.
        folder: of its files.
        notes: what the user should know of the run, one line each.
        was_there: whether it was attached already, whole, and no row was written.
    """

    name: str
    folder: Path
    notes: list[str]
    was_there: bool = False


def attach(
    recording: Trace,
    drafter: Attachable,
    name: str | None = None,
    means: Means | None = None,
    resume: bool = False,
    on_shard: Callable[[int], None] = lambda n: None,
    on_size: Callable[[str], None] | None = None,
) -> Done:
    """Draft from every start of every output of a recording.

    What is written is a folder of its own inside the recording, whose other files stay as they are.
    A run that was stopped leaves whole shards; with `resume` they are kept, and the result is the
    same as if it had not been stopped.

    Args:
        recording: a trace with the outputs' tokens, in a folder.
        drafter: as `registry.parse` gives it.
        name: of the drafter in the trace; the name of its kind unless given.
        means: what networks are run with.
        resume: go on where a run was stopped.
        on_shard: told after every shard how many prompts are done.
        on_size: told before the first one, of a drafter that takes much room and time, how much:
            a line of text, from a trial; None makes none.

    Returns:
        where the drafter is, and what should be known of it.

    Raises:
        UserError: the drafter does not fit the recording, one of that name is there, or the folder
            cannot be written.
    """
    chosen = {drafter.name if name is None else name: drafter}
    return attach_all(recording, chosen, means, resume, on_shard, on_size)[0]


def attach_all(
    recording: Trace,
    drafters: Mapping[str, Attachable],
    means: Means | None = None,
    resume: bool = False,
    on_shard: Callable[[int], None] = lambda n: None,
    on_size: Callable[[str], None] | None = None,
    on_open: Callable[[Path], None] = lambda folder: None,
) -> list[Done]:
    """Attach drafters in one run, in which those that ask the target of the outputs share it.

    Args:
        recording: see `attach`.
        drafters: by their names in the trace.
        means: each of its settings is of those drafters that heed it.
        resume: see `attach`.
        on_shard: see `attach`.
        on_size: see `attach`.
        on_open: told, before the first shard is made, each folder that is to be filled.

    Returns:
        of each drafter, in their order.

    Raises:
        UserError: see `attach`; nothing is written then, or whole shards of some.
    """
    folders = [_folder(recording, name, resume) for name in drafters]
    check_outputs(recording)
    with ExitStack() as stack:
        opened = _opened(recording, list(drafters.values()), means or Means())
        writers: list[TraceWriter] = []
        try:
            for folder, one in zip(folders, opened, strict=True):
                writers.append(stack.enter_context(TraceWriter(folder, one.header, resume=resume)))
            was_there = [writer.complete for writer in writers]
            left = [p for p in zip(writers, opened, strict=True) if not p[0].complete]
            for writer, _ in left:
                on_open(writer.path)
            if on_size is not None:
                _tell(recording, left, on_size)
            _draft(left, on_shard, partial(_tell_more, recording, on_size))
        except BaseException:
            for writer in writers:
                _discard_if_empty(writer)
            raise
    return [
        Done(name, folder, _late_times(folder, one) if there else _notes(one), there)
        for name, folder, one, there in zip(drafters, folders, opened, was_there, strict=True)
    ]


def _notes(opened: Attachment) -> list[str]:
    return [*filter(None, [beside_itself(opened.header)]), *opened.notes]


def _opened(recording: Trace, drafters: list[Attachable], means: Means) -> list[Attachment]:
    """The drafters, loaded; each is told of those before it, and of the settings that it heeds."""
    check_means(drafters, means)
    opened: list[Attachment] = []
    for drafter in drafters:
        heeded = {name: getattr(means, name) for name in drafter.heeds}
        own = Means(**{**heeded, "beside": tuple(opened)})
        one = drafter.open(recording, own)
        said = settings_of(getattr(drafter, "path", None), own.target)
        one.header = replace(one.header, settings=said)
        opened.append(one)
    return opened


def detach(recording: Trace, name: str) -> Path:
    """Remove a drafter that was attached, whole or in part; all else stays as it is.

    It is gone at once: a process that is killed leaves what no reader finds, and what the next one
    that detaches a drafter of that name clears away.

    Args:
        recording: the trace, in a folder.
        name: of the drafter in the trace.

    Returns:
        where it was.

    Raises:
        UserError: there is none, another process writes to it, or the system refuses.
    """
    if recording.path is None or recording.recording is not None:
        raise DrafterError(f"{recording!r} has no attached drafters: give the recording's folder")
    stores.refuse_copy(recording.path)
    folder = recording.path / DRAFTERS / name
    passing = passing_name(folder)
    there = name in recording.drafters
    if not there and not (_NAME.fullmatch(name) and passing.exists()):
        known = suggest(name, recording.drafters) if recording.drafters else "none is"
        raise DrafterError(f"{recording.path}: no drafter {name!r} is attached ({known})")
    try:
        handle = hold_folder(folder) if there else None
    except BlockingIOError:
        raise DrafterError(f"{folder}: another process is writing to it") from None
    try:
        if passing.exists():  # a run that was killed has left it
            shutil.rmtree(passing)
        if there:
            os.rename(folder, passing)
            sync_folder(folder.parent)
            shutil.rmtree(passing)
        with suppress(OSError):
            folder.parent.rmdir()  # it was the last one
    except OSError as error:
        raise write_error(folder, error) from None
    finally:
        if handle is not None:
            os.close(handle)
    return folder


def _draft(
    parts: list[tuple[TraceWriter, Attachment]],
    on_shard: Callable[[int], None],
    on_first: Callable[[list[TraceWriter], int, float], None],
) -> None:
    """Write the shards that are left and the times; whoever reads a drafter finds both."""
    took_s: float | None = None
    for index in range(parts[0][0].n_shards if parts else 0):
        begun = time.monotonic()
        left = [(writer, opened) for writer, opened in parts if index not in writer.done]
        for writer, opened in left:
            tables: dict[str, Any] = {**opened.shard(index)}
            writer.write_shard(index, None, **tables)
        if took_s is None and len(left) == len(parts):
            took_s = time.monotonic() - begun
            on_first([writer for writer, _ in parts], index, took_s)
        on_shard(parts[0][0].shard_sequences(index).stop)
    for writer, opened in parts:
        if not writer.has_latency and (times := opened.times()) is not None:
            writer.write_latency(times)
        writer.finish()


def _tell(
    recording: Trace,
    parts: list[tuple[TraceWriter, Attachment]],
    on_size: Callable[[str], None],
) -> None:
    """Say what the shards that are left take."""
    begin = recording.position_offsets
    for writer, opened in parts:
        left = [index for index in range(writer.n_shards) if index not in writer.done]
        size = opened.trial(left[0]) if left else None
        if size is None:
            continue
        shards = [writer.shard_sequences(index) for index in left]
        starts = int(sum(begin[shard.stop] - begin[shard.start] for shard in shards))
        seconds = size.seconds * starts
        took = f"{seconds:,.0f} s" if seconds >= 1 else "less than a second"
        sizes = size_in_words(int(size.n_bytes)), size_in_words(int(size.n_bytes * starts))
        on_size(
            f"{opened.header.kind}s: about {sizes[0]} a start, {how_many(starts, 'start')}:"
            f" {sizes[1]}, about {took}"
        )


def _tell_more(
    recording: Trace,
    on_size: Callable[[str], None] | None,
    writers: list[TraceWriter],
    index: int,
    took_s: float,
) -> None:
    """Say what the shards behind the first one take, if that is long.

    Trees are told before, by a trial. What shards take goes by their starts.
    """
    done = writers[0].shard_sequences(index)
    begin = recording.position_offsets
    here = int(begin[done.stop] - begin[done.start])
    rest = int(begin[-1] - begin[done.stop])
    seconds = took_s * rest / max(here, 1)
    if on_size is None or seconds < _LONG_S or any(w.manifest.kind == "tree" for w in writers):
        return
    known = [writer.manifest for writer in writers]
    first = [m.files[name].bytes for m in known for t in m.tables for name in m.shard_files(t)[:1]]
    more = size_in_words(int(sum(first) * rest / max(here, 1)))
    on_size(f"{how_many(rest, 'more start')}: about {more}, {seconds:,.0f} s")


def _discard_if_empty(writer: TraceWriter) -> None:
    """Leave nothing of a drafter of which no shard is written."""
    if not writer.complete:
        writer.discard_if_empty()
        with suppress(OSError):
            writer.path.parent.rmdir()  # it was made for this one


def _late_times(folder: Path, opened: Attachment) -> list[str]:
    """Give a whole drafter the times that it lacks; what to say of that."""
    if "latency.parquet" in read_manifest(folder).files or (times := opened.times()) is None:
        return []
    add_file(folder, "latency.parquet", times)
    return ["it had no times: they were taken now"]


def _folder(recording: Trace, name: str, resume: bool) -> Path:
    if recording.path is None:
        raise DrafterError("the trace is in memory: drafters are attached to one in a folder")
    if recording.recording is not None:
        raise DrafterError(
            f"{recording.path} is an attached drafter: attach to {recording.recording.path}"
        )
    if name == OWN:
        raise DrafterError(
            f"{OWN} is the word for the drafter of the recording: give another --name"
        )
    if not _NAME.fullmatch(name):
        raise DrafterError(
            f"{name!r} cannot be a drafter's name: begin with a letter, and use at most 64 letters,"
            " digits, . _ - +"
        )
    if name in recording.drafters and not resume:
        raise DrafterError(f"{recording.path}: {_there(recording.path / DRAFTERS / name)}")
    return recording.path / DRAFTERS / name


def _there(folder: Path) -> str:
    """What to say of a drafter of the wanted name, which is in its folder."""
    name = folder.name
    if read_manifest(folder).complete:
        return f"a drafter {name} is attached already: give --name"
    try:
        handle = hold_folder(folder)
    except BlockingIOError:
        return f"another run attaches a drafter {name} at this moment: give --name"
    if handle is not None:
        os.close(handle)
    return (
        f"a drafter {name} is attached already in part: give --resume to go on where its run was"
        " stopped, or --name"
    )
