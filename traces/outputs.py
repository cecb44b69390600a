"""Files that are written whole or not at all, and never by two at once.

Everything that a command leaves behind goes through here: a file is written under a passing name
beside its own, made durable, and renamed. A process that is stopped at any moment leaves what was
there before, or what comes after it; its passing files are taken over by the next writer.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
import shutil
import stat
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from traces.errors import TraceError
from traces.urls import refuse_url

_NO_LOCKS = (errno.ENOTSUP, errno.EBADF, errno.ENOLCK, errno.EINVAL, errno.ENOSYS)
_WAITING = re.compile(r"\.(.+)\.[0-9a-f]{16}")
_CHUNK_BYTES = 2**24


def write_atomic(file: Path, data: bytes) -> None:
    """Write a file under a passing name beside it, make it durable, then rename it.

    Links are followed. What is there already and is no regular file (a pipe, `/dev/stdout`) is
    written into instead.

    Raises:
        TraceError: the system refuses (disk full, no permission); nothing is left behind.
    """
    write_together({file: data})


def write_together(contents: Mapping[Path, bytes]) -> None:
    """Write several files; none takes its place before all of them are durable.

    So a disk that runs full replaces none of them. A process that is killed may replace some, each
    of which is whole.

    Raises:
        TraceError: as `write_atomic`; the message names the file.
    """
    passing: dict[Path, tuple[Path, int]] = {}
    made: list[Path] = []
    file = Path()
    try:
        for file in sorted(contents):  # in one order: two writers of the same files do not block
            if _is_special(file):
                file.write_bytes(contents[file])
                continue
            real = followed(file)
            make_folder(real.parent, made)
            passing[file] = real, _hold(passing_name(real))
            _fill(passing[file][1], contents[file], real)
        folders = {real.parent for real, _ in passing.values()}
        for file in list(passing):
            real, handle = passing[file]
            os.rename(passing_name(real), real)
            del passing[file]  # the name may be another writer's now
            os.close(handle)
        for folder in folders:
            sync_folder(folder)
    except OSError as error:
        raise write_error(file, error) from None
    finally:
        for real, handle in passing.values():
            with suppress(OSError):
                passing_name(real).unlink(missing_ok=True)
            os.close(handle)
        remove_empty(made)


@contextmanager
def filled(file: Path, mode: int = 0o666) -> Iterator[Callable[[bytes], None]]:
    """Fill a file under its passing name; it takes its place when the block ends well.

    It is not made durable: this is for copies, which can be made again.

    Args:
        file: its place, no link; its folder exists.
        mode: rights of a new file.

    Yields:
        a function that writes more of it.

    Raises:
        OSError: the system refuses.
    """
    name = passing_name(file)
    handle = _hold(name, mode=mode)
    try:
        os.ftruncate(handle, 0)
        yield lambda data: _write(handle, data)
        os.rename(name, file)
    except BaseException:
        with suppress(OSError):
            name.unlink()
        raise
    finally:
        os.close(handle)


@contextmanager
def locked(file: Path, what: str | None = None) -> Iterator[None]:
    """Keep other processes from what belongs to a file while the block runs.

    Args:
        file: to be written, later or in several steps; its folder exists.
        what: what another process is doing if it has the lock, for the message; None waits for it.

    Raises:
        TraceError: another process has it, or the system refuses to write there.
    """
    name = followed(file)
    name = name.with_name(f".{name.name}.lock")
    try:
        handle = _hold(name, wait=what is None)
    except BlockingIOError:
        raise TraceError(f"{file}: another process is {what}") from None
    except OSError as error:
        raise write_error(file, error) from None
    try:
        yield
    finally:
        with suppress(OSError):  # while it is held: whoever waits for it sees that it has gone
            name.unlink()
        os.close(handle)


@contextmanager
def whole_folder(folder: Path) -> Iterator[Path]:
    """A folder to fill, which takes its place when the block ends well, and goes if it does not.

    Args:
        folder: its place: nothing is there, or an empty folder.

    Raises:
        TraceError: something is there, another process is about to fill it, or the system refuses.
    """
    place = Path(os.path.abspath(followed(folder)))
    passing = passing_name(place)
    made: list[Path] = []
    handle, is_ours = None, False
    try:
        handle, is_ours = _hold_new(passing, made), True
        check_free(folder)
        for left in passing.iterdir():  # by a process that was killed
            shutil.rmtree(left) if left.is_dir() else left.unlink()
        yield passing
        os.rename(passing, place)
        is_ours = False  # the name may be another writer's now
        made.clear()
        sync_folder(place.parent)
    except BlockingIOError:
        raise TraceError(f"{folder}: another process is writing it") from None
    except TraceError as error:
        raise TraceError(str(error).replace(str(passing), str(folder))) from None
    except OSError as error:
        raise write_error(folder, error) from None
    finally:
        if is_ours:
            shutil.rmtree(passing, ignore_errors=True)
        remove_empty(made)
        if handle is not None:
            os.close(handle)


def _hold_new(folder: Path, made: list[Path]) -> int | None:
    """Make a folder and those above it and hold it, see `hold_folder` and `make_folder`."""
    while True:
        try:
            make_folder(folder, made)
            return hold_folder(folder)
        except FileNotFoundError:  # who held it has given it another name this moment
            continue


def check_free(folder: Path) -> None:
    """Refuse a place for a new folder where something is, or where this process is, or a URL.

    Raises:
        TraceError: as said, or it cannot be looked at.
    """
    refuse_url(folder)
    try:
        if folder.is_dir() and not any(folder.iterdir()):
            if os.path.samefile(folder, os.curdir):  # it is replaced: nobody should stand in it
                raise TraceError(f"{folder}: is the folder that the command runs in: name another")
            return
        there = os.path.lexists(folder)
    except OSError as error:
        raise write_error(folder, error) from None
    if there:
        raise TraceError(f"{folder}: exists and is not an empty folder: name another")


def waiting_name(file: Path, sha256: str) -> Path:
    """Where a file of two that belong together waits until the other one has changed.

    The other one (a manifest, a head's weights) decides by the hash which of the two counts: what
    waits under this name, or what is in the place itself. So the change of the other one changes
    both at once.
    """
    return file.with_name(f".{file.name}.{sha256[:16]}")


def waiting(file: Path) -> list[Path]:
    """All that waits for a file's place, of whatever hash."""
    digits = "[0-9a-f]" * 16
    name = "".join(f"[{char}]" if char in "*?[" else char for char in file.name)
    return sorted(file.parent.glob(f".{name}.{digits}"))


def passing_name(file: Path) -> Path:
    """What a file is called until it is whole."""
    return file.with_name(f".{file.name}.tmp")


def followed(file: Path) -> Path:
    """The file that a link leads to; what is no link as it is."""
    return Path(os.path.realpath(file)) if file.is_symlink() else file


def check_room(file: Path) -> None:
    """Find out, before work is put into it, that a file can be written; what is there stays.

    Raises:
        TraceError: its folder is missing, it is a folder itself, or the system refuses.
    """
    refuse_url(file)
    if file.is_dir():
        raise TraceError(f"{file}: is a folder")
    if _is_special(file):
        return
    real = followed(file)
    if not real.parent.is_dir():
        raise TraceError(f"{file}: no such folder: {real.parent}")
    probe = passing_name(real)
    try:
        handle = _hold(probe, wait=False)
    except BlockingIOError:  # somebody is writing it this moment
        return
    except OSError as error:
        raise write_error(file, error) from None
    probe.unlink(missing_ok=True)
    os.close(handle)


def make_folder(folder: Path, made: list[Path] | None = None) -> None:
    """Make a folder and those above it, durably; the ones that were made are added to `made`.

    Raises:
        OSError: the system refuses.
    """
    if folder.is_dir():
        return
    make_folder(folder.parent, made)
    try:
        folder.mkdir()
        if made is not None:
            made.append(folder)
    except FileExistsError:
        if not folder.is_dir():
            raise
    sync_folder(folder.parent)


def remove_empty(made: list[Path]) -> None:
    """Remove folders that were made for nothing, but those in which somebody has put a file."""
    for folder in reversed(made):
        with suppress(OSError):
            folder.rmdir()


def sync_folder(folder: Path) -> None:
    """Make renames and removals in a folder durable."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def hold_folder(folder: Path) -> int | None:
    """Hold a folder against other writers until the handle is closed or the process dies.

    Returns:
        the handle; None on file systems that have no locks.

    Raises:
        BlockingIOError: another process holds it.
        FileNotFoundError: there is none, or whoever held it has removed it.
        OSError: it cannot be opened.
    """
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        if _lock(handle, wait=False):
            if not os.path.samestat(os.stat(folder), os.fstat(handle)):
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
            return handle
    except BaseException:
        os.close(handle)
        raise
    os.close(handle)
    return None


def write_error(file: Path, error: OSError) -> TraceError:
    """What to tell the user when the system refuses to write; what waits is named by its place."""
    if found := _WAITING.fullmatch(file.name):
        file = file.with_name(found[1])
    return TraceError(f"{file}: cannot be written: {error.strerror or error}")


def _is_special(file: Path) -> bool:
    return file.exists() and not file.is_file() and not file.is_dir()


def _hold(name: Path, wait: bool = True, mode: int = 0o666) -> int:
    """Open a passing file that nobody else has open; what a killed process left is taken over."""
    while True:
        handle = os.open(name, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, mode)
        try:
            _lock(handle, wait)
            here = os.stat(name)
            if os.path.samestat(here, os.fstat(handle)):
                return handle
        except FileNotFoundError:  # renamed or removed by whoever had it: there is a new one
            pass
        except BaseException:
            os.close(handle)
            raise
        os.close(handle)


def _lock(handle: int, wait: bool) -> bool:
    """Whether it is locked now: some network file systems have no locks."""
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except OSError as error:
        if error.errno in _NO_LOCKS:
            return False
        raise
    return True


def _fill(handle: int, data: bytes, place: Path) -> None:
    """Put data into a passing file and make it durable; it gets the rights of what it replaces."""
    os.ftruncate(handle, 0)
    _write(handle, data)
    with suppress(OSError):
        os.fchmod(handle, stat.S_IMODE(place.stat().st_mode))
    os.fsync(handle)


def _write(handle: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(handle, rest[:_CHUNK_BYTES]) :]
