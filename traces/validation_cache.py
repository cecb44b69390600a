"""Which traces were looked at and found to be fine, so that each is looked at once.

A small file of the user's cache folder remembers a manifest and the stamps of the files that it
lists (size, times of change, place on the disk). Files that were changed in any way have another
stamp, and are looked at again.

Another one remembers, by a content's hash, which of its columns made sense, wherever they lie. Of
files that are listed under that hash these are not looked at again, whatever is found of the files.
It is noted of what was looked at, and of what is looked at as it is written.

A cache that cannot be read, written or believed is no error: then the trace is looked at each time.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from traces import reading
from traces.cache import cache_folder
from traces.errors import TraceError
from traces.files import place
from traces.manifest import Manifest
from traces.own_sources import first_digest, is_own

_SETTLED_NS = 2 * 10**9  # a file changed this moment may change again within the clock's tick
_MOST_BYTES = 2**22

Stamps = list[list[int]]
Column = tuple[str, str]
"""A table's name and a column's."""


def is_known(folder: Path, manifest: Manifest, names: Sequence[str]) -> bool:
    """Whether these files of a trace were looked at, and nothing has changed since."""
    if not _is_named(manifest):
        return False
    try:
        kept = _read(_file(folder, names))
        # Where a file was replaced, its stamp is another; where the manifest was, its text is.
        return kept == _facts(folder, manifest, names, stamps(folder, names))
    except (OSError, ValueError, RuntimeError, TraceError):
        return False


def stamps(folder: Path, names: Sequence[str]) -> Stamps:
    """What tells whether files are the same as before: never the same for two contents."""
    found = [os.stat(folder / name) for name in names]
    return [[s.st_dev, s.st_ino, s.st_size, s.st_mtime_ns, s.st_ctime_ns] for s in found]


def first_stamps(folder: Path, names: Sequence[str]) -> Stamps:
    """`stamps` of files that are to be looked at.

    Raises:
        TraceError: one is not there, as where a drafter was detached this moment.
    """
    try:
        return stamps(folder, names)
    except OSError as error:
        raise TraceError(f"{error.filename}: cannot be read: {error.strerror}") from None


def remember(folder: Path, manifest: Manifest, names: Sequence[str], before: Stamps) -> None:
    """Note that these files are fine.

    Args:
        folder: of the trace.
        manifest: its manifest.
        names: of the files.
        before: their stamps from before they were looked at.
    """
    if not _is_named(manifest):
        return
    newest = max((max(stamp[3:]) for stamp in before), default=0)
    with suppress(OSError, RuntimeError):
        if before != stamps(folder, names) or time.time_ns() - newest < _SETTLED_NS:
            return
        _write(_file(folder, names), _facts(folder, manifest, names, before))


def content(manifest: Manifest) -> str:
    """A digest of a trace's content, wherever it lies, and of the code that looks at it.

    "" where that code has no name, under which nothing is remembered.
    """
    if not _is_named(manifest):
        return ""
    return hashlib.sha256(f"{_checks()} {manifest.content_hash()}".encode()).hexdigest()


def columns(digest: str) -> set[Column]:
    """Which columns of this `content` were looked at and are fine."""
    if not digest:
        return set()
    try:
        kept = _read(_note(digest))
        if kept["content"] != digest:
            return set()
        return {(table, column) for table, column in kept["columns"]}
    except (OSError, ValueError, RuntimeError, TypeError, KeyError, TraceError):
        return set()


def note(digest: str, fine: Iterable[Column]) -> None:
    """Note that these columns of this `content` are fine."""
    if not digest:
        return
    with suppress(OSError, RuntimeError):
        known = columns(digest)
        if not known.issuperset(fine):
            _write(_note(digest), {"content": digest, "columns": sorted(known.union(fine))})


def _facts(folder: Path, manifest: Manifest, names: Sequence[str], found: Stamps) -> dict[str, Any]:
    return {
        "checks": _checks(),
        "manifest": hashlib.sha256(manifest.to_json().encode()).hexdigest(),
        "places": [str(place(folder, name, manifest.files[name]).name) for name in names],
        "stamps": found,
    }


def _is_named(manifest: Manifest) -> bool:
    """Whether the code that looks is all of these packages, and its sources can be read."""
    return bool(_checks()) and is_own(type(manifest.drafter))


def _checks() -> str | None:
    """A digest of the code that looks: what an earlier version let pass is looked at again."""
    return first_digest()


def _file(folder: Path, names: Sequence[str]) -> Path:
    what = json.dumps([str(folder.resolve()), sorted({name.split("/")[0] for name in names})])
    return cache_folder() / "seen" / hashlib.sha256(what.encode()).hexdigest()[:32]


def _note(digest: str) -> Path:
    return cache_folder() / "contents" / digest[:32]


def _read(file: Path) -> Any:
    """What `_write` has written; raises one of many errors if that is not there, whole."""
    digest, _, text = reading.read_text(file, _MOST_BYTES, TraceError).partition("\n")
    if hashlib.sha256(text.encode()).hexdigest() != digest:
        raise TraceError(f"{file}: corrupt")
    return json.loads(text)


def _write(file: Path, facts: dict[str, Any]) -> None:
    text = json.dumps(facts)
    file.parent.mkdir(parents=True, exist_ok=True)
    passing = file.with_name(f"{file.name}.{os.getpid()}.tmp")
    passing.write_text(f"{hashlib.sha256(text.encode()).hexdigest()}\n{text}")
    os.replace(passing, file)
