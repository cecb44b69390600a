"""A trace in an object store, by its URL: a copy in the user's cache, filled as it is read.

    s3://BUCKET/TRACE?region=…&endpoint_override=…     gs://BUCKET/TRACE     abfs://…

pyarrow's file systems bring the files, each whole and once; what a manifest lists is held against
its hash as it comes. From there on the copy is a trace's folder like any other. A URL and what its
manifests say are a copy's name, so a trace that was changed in the store is another copy. Nothing
is ever written to a store.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import time
from abc import abstractmethod
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import pyarrow as pa

from traces.cache import cache_folder, parse_size
from traces.errors import TraceError
from traces.outputs import filled, make_folder, write_error
from traces.urls import Fault, has_slash_in_key, impatient, reason, shown

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem

FOLDER = "SIMKIT_COPIES"  # environment: where copies lie
LIMIT = "SIMKIT_COPIES_SIZE"  # and what they may take
_LIMIT = "20GB"
_MANIFEST, _DRAFTERS, _FACTS = "manifest.json", "drafters", "store.json"
_IS_MANIFEST = re.compile(rf"({_DRAFTERS}/[^/.][^/]*/)?{_MANIFEST}")
_MOST_BYTES = 2**28  # of a manifest
_CHUNK = 2**22
_TRIES, _WAIT_S = 4, 0.5  # of a file whose connection breaks; the wait doubles
_PATIENCE_S = 60.0  # for an answer
_AT_ONCE = 8  # files
_RECENT_S = 6 * 3600.0  # since a copy was opened: it may be in use
_OPENED: set[Path] = set()  # copies, by this process
_FAULTS = (OSError, pa.ArrowException, ValueError)

on_bring: Callable[[str, Path], object] | None = None
"""Called before files are brought, with the URL and the copy's folder."""


_Answer = TypeVar("_Answer")


class ListedFile(Protocol):
    """What a manifest says of a file."""

    @property
    @abstractmethod
    def bytes(self) -> int:
        """Its size."""

    @property
    @abstractmethod
    def sha256(self) -> str:
        """Its hash."""


def open_url(url: str) -> Path:
    """The folder of a trace's copy, in which its manifests are, as the store has them now.

    Args:
        url: of a trace's folder, or of an attached drafter's in it; a file:// URL is that folder.

    Raises:
        TraceError: no file system is known for it, it cannot be reached, or no trace is there.
    """
    system, path = _system(url)
    if system.type_name == "local":
        return Path(path)
    home, drafter = path.rstrip("/"), ""
    parts = home.rsplit("/", 2)
    if len(parts) == 3 and parts[1] == _DRAFTERS:
        home, drafter = parts[0], f"{_DRAFTERS}/{parts[2]}"
    sizes = _sizes(system, home, url)
    if _MANIFEST not in sizes:
        raise TraceError(f"{shown(url)}: not a trace, it has no {_MANIFEST}")
    names = [name for name in sizes if _IS_MANIFEST.fullmatch(name)]
    texts = {name: _read(system, f"{home}/{name}", url, sizes[name]) for name in names}
    root = re.sub(rf"/{_DRAFTERS}/[^/?]+/?(?=\?|$)", "", url) if drafter else url
    return _made(root, home.rsplit("/", 1)[-1], sizes, texts) / drafter


def copied_from(folder: Path) -> str | None:
    """The URL, without its secrets, of what a folder is a copy of; None if it is none."""
    copy = _copy(folder)
    return None if copy is None else shown(copy.url) + copy.prefix(folder)


def refuse_copy(folder: Path) -> None:
    """Refuse to write into a copy.

    Raises:
        TraceError: the folder is one.
    """
    if url := copied_from(folder):
        raise TraceError(f"{url}: a store is only read: copy the trace to a folder first")


def bring(folder: Path, listed: Mapping[str, ListedFile]) -> None:
    """Bring those files of a copy that are not there yet, or not whole; elsewhere do nothing.

    Args:
        folder: of a trace or an attached drafter.
        listed: what the manifest says of each file, by its path in the folder.

    Raises:
        TraceError: one cannot be read, or is not what is listed; the message names it.
    """
    copy = _copy(folder)
    if copy is None:
        return
    missing = {name: info for name, info in listed.items() if not _is_whole(folder / name, info)}
    if not missing:
        return
    if on_bring:
        on_bring(shown(copy.url), copy.folder)
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        try:
            for _ in pool.map(lambda one: copy.bring(folder, *one), missing.items()):
                pass
        finally:
            pool.shutdown(cancel_futures=True)


def bring_again(folder: Path, name: str, info: ListedFile) -> bool:
    """Bring a damaged file anew; False where the folder is no copy.

    Raises:
        TraceError: see `bring`.
    """
    if _copy(folder) is None:
        return False
    with suppress(OSError):
        (folder / name).unlink()
    bring(folder, {name: info})
    return True


def _is_whole(file: Path, info: ListedFile) -> bool:
    """Whether a file is there and has its size; a crash may have cut it short."""
    try:
        return file.stat().st_size == info.bytes
    except OSError:
        return False


def sizes(folder: Path) -> dict[str, int] | None:
    """Bytes of the files that the store has of a copied folder; None if the folder is no copy."""
    copy = _copy(folder)
    if copy is None:
        return None
    prefix = copy.prefix(folder).removeprefix("/")
    begin = f"{prefix}/" if prefix else ""
    return {k.removeprefix(begin): n for k, n in copy.sizes.items() if k.startswith(begin)}


def let_go(folder: Path, names: list[str]) -> None:
    """Remove files of a copy that were read, if copies take more than they may."""
    if _copy(folder) is None or _taken(_root()) <= _limit():
        return
    for name in names:
        with suppress(OSError):
            (folder / name).unlink()


class _Copy:
    """A copy's URL, and what the store has there."""

    def __init__(self, place: Path) -> None:
        facts = json.loads((place / _FACTS).read_text())
        self.url: str = facts["url"]
        self.sizes: dict[str, int] = facts["sizes"]
        self.folder = place / facts["name"]

    def prefix(self, folder: Path) -> str:
        """A folder's path below the copied one: "", or "/drafters/NAME"."""
        below = folder.relative_to(self.folder).as_posix()
        return "" if below == "." else f"/{below}"

    def bring(self, folder: Path, name: str, info: ListedFile) -> None:
        """Bring one file, whole; a connection that breaks is tried again."""
        system, path = _system(self.url)
        below = f"{self.prefix(folder)}/{name}"
        file, what = folder / name, f"{shown(self.url)}{below}"

        def once() -> None:
            try:
                source = _asked(lambda: system.open_input_stream(path.rstrip("/") + below))
            except FileNotFoundError:
                raise TraceError(f"{what}: missing") from None
            _fill(file, source, info)

        _tried(what, once)


def _tried(what: str, once: Callable[[], _Answer]) -> _Answer:
    """What it gives; where a store's answer is at fault it is asked again."""
    problem: Exception | None = None
    for k in range(_TRIES):
        if problem is not None:
            time.sleep(_WAIT_S * 2 ** (k - 1))
        try:
            return once()
        except _FAULTS as error:
            problem = error
    assert problem is not None
    raise TraceError(f"{what}: {reason(problem)} (tried {_TRIES} times)")


class _UnreadError(Exception):
    """What a store sends cannot be read, or is not what is listed; its argument is the reason."""


def _fill(file: Path, source: Any, info: ListedFile) -> None:
    """Write a file from a stream, and give it its name if it is the one that is listed."""
    digest = hashlib.sha256()
    try:
        make_folder(file.parent)
        with filled(file) as write:
            while part := _part(source):
                digest.update(part)
                write(part)
            if digest.hexdigest() != info.sha256:
                raise _UnreadError(Fault("corrupt: its sha256 is not the manifest's"))
    except OSError as error:
        raise write_error(file, error) from None
    except _UnreadError as unread:
        raise unread.args[0] from None


def _part(source: Any) -> bytes:
    try:
        return _asked(lambda: source.read(_CHUNK))
    except _FAULTS as error:
        raise _UnreadError(error) from None


def _made(url: str, name: str, sizes: dict[str, int], texts: dict[str, bytes]) -> Path:
    """The copy's folder, with its manifests; older copies go where all take too much."""
    digest = hashlib.sha256(url.encode())
    for each, text in sorted(texts.items()):
        digest.update(f"\0{each}\0{len(text)}\0".encode() + text)
    place = _root() / digest.hexdigest()[:32]
    folder = place / (name or "trace")
    facts = {"url": url, "name": folder.name, "sizes": sizes}
    try:
        for each, text in texts.items():
            make_folder((folder / each).parent)
            _put(folder / each, text)
        _put(place / _FACTS, json.dumps(facts).encode())  # private: a URL may hold a key
    except OSError as error:
        raise write_error(folder, error) from None
    _tidy(_root(), place)
    _copy_at.cache_clear()
    return folder


def _put(file: Path, data: bytes) -> None:
    if file.exists() and file.read_bytes() == data:
        return
    with filled(file, mode=0o600) as write:
        write(data)


def _tidy(root: Path, current: Path) -> None:
    """Remove the copies that were opened longest ago, while all take more than they may.

    Those that this process has opened stay, and those that any process opened a moment ago.
    """
    with suppress(OSError):
        os.utime(current / _FACTS)
    _OPENED.add(current)
    over = _taken(root) - _limit()
    with suppress(OSError):
        places = sorted(root.iterdir(), key=lambda one: (one / _FACTS).stat().st_mtime_ns)
        for place in places:
            age_s = time.time() - (place / _FACTS).stat().st_mtime
            if over <= 0 or age_s < _RECENT_S:
                break
            if place in _OPENED:
                continue
            over -= _taken(place)
            shutil.rmtree(place, ignore_errors=True)


def _taken(folder: Path) -> int:
    total = 0
    for where, _, names in os.walk(folder):
        for name in names:
            with suppress(OSError):
                total += os.stat(os.path.join(where, name)).st_size
    return total


def _limit() -> int:
    text = os.environ.get(LIMIT) or _LIMIT
    try:
        return parse_size(text)
    except ValueError as error:
        raise TraceError(f"{LIMIT}={text}: {error}") from None


def _root() -> Path:
    given = os.environ.get(FOLDER, "")
    return _resolved(given or str(cache_folder() / "copies"))


@lru_cache(8)
def _resolved(folder: str) -> Path:
    return Path(os.path.realpath(folder))


def _copy(folder: Path) -> _Copy | None:
    root = _root()
    if folder == root or not folder.is_relative_to(root):
        return None
    return _copy_at(root / folder.relative_to(root).parts[0])


@lru_cache(64)
def _copy_at(place: Path) -> _Copy | None:
    try:
        return _Copy(place)
    except (OSError, ValueError, KeyError):
        return None


@lru_cache(16)
def _system(url: str) -> tuple[FileSystem, str]:
    """A URL's file system, and the path in it."""
    from pyarrow import fs

    if has_slash_in_key(url):
        raise TraceError(f"{shown(url)}: write a key's / as %2F")
    try:
        return fs.FileSystem.from_uri(impatient(url))
    except _FAULTS as error:
        raise TraceError(f"{shown(url)}: {reason(error)}") from None


def _sizes(system: FileSystem, path: str, url: str) -> dict[str, int]:
    """Bytes of all files in a folder of the store, by their paths in it."""
    from pyarrow import fs

    try:
        found = _asked(lambda: system.get_file_info(fs.FileSelector(path, recursive=True)))
    except FileNotFoundError:
        raise TraceError(f"{shown(url)}: no such folder") from None
    except _FAULTS as error:
        raise TraceError(f"{shown(url)}: {reason(error)}") from None
    files = (one for one in found if one.type == fs.FileType.File)
    return {one.path.removeprefix(f"{path}/"): one.size for one in files}


def _read(system: FileSystem, path: str, url: str, size: int) -> bytes:
    """A small file, whole."""
    what = f"{shown(url)}: {path.rsplit('/', 1)[-1]}"
    if size > _MOST_BYTES:
        raise TraceError(f"{what}: {size} bytes are too many")
    return _tried(what, lambda: _asked(lambda: system.open_input_stream(path).read(_MOST_BYTES)))


def _asked(ask: Callable[[], _Answer]) -> _Answer:
    """What a store answers; one that says nothing for long is an OSError.

    The wait is in a thread that nobody waits for: not all file systems give up by themselves.
    """
    answer: Future[_Answer] = Future()

    def run() -> None:
        try:
            answer.set_result(ask())
        except BaseException as error:
            answer.set_exception(error)

    Thread(target=run, daemon=True).start()
    try:
        return answer.result(_PATIENCE_S)
    except TimeoutError:
        raise Fault(f"no answer in {_PATIENCE_S:g} s") from None
