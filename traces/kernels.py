"""Compiling with numba, and where compiled code is kept between processes.

Numba's cache looks only at the file of the function it compiled, not at the files of the functions
that one calls. So the code lies in a folder named after all sources of these packages: whatever a
function calls, and whatever that is called with, is in them. Code of other packages is not kept.

Code that is kept is never needed: what cannot be read, or is not what was written, is compiled and
written again, and what cannot be written is not kept. Both are said once.
"""

from __future__ import annotations

import hashlib
import inspect
import os
import pickle
import shutil
import sys
import tempfile
import uuid
import warnings
from collections.abc import Callable
from contextlib import suppress
from functools import cache, partial
from pathlib import Path
from typing import Any

import llvmlite
import numba
import numpy as np
from numba import njit
from numba.core.caching import (
    CompileResultCacheImpl,
    FunctionCache,
    IndexDataCacheFile,
    _CacheLocator,  # pyright: ignore[reportPrivateUsage]
    _SourceFileBackedLocatorMixin,  # pyright: ignore[reportPrivateUsage]
)
from numba.core.runtime.nrt import rtsys

from traces.errors import SimkitWarning
from traces.own_sources import digest, first_digest, is_inside

_DIGEST_BYTES = 32
_MOST_FOLDERS = 20
_said: set[str] = set()  # so that each complaint is made once a process


def compiled(
    function: Callable,
    keep: bool = True,
    any_order: bool = False,
    made_for: str = "",
) -> Callable:
    """Compile without the GIL (decorator); kept on disk if any folder can be written.

    Args:
        function: what to compile.
        keep: False keeps nothing; nor is a function kept that is not of these packages.
        any_order: let sums be added up in any order, many at once.
        made_for: a word for what it is compiled for, where one function is for several things: what
            is kept for one is then read without what is kept for another, and what that names.
    """
    out: Any = njit(nogil=True, fastmath={"reassoc"} if any_order else False)(function)
    folder = _folder() if keep and is_inside(function.__code__.co_filename) else None
    if folder is not None:
        try:
            out._cache = _Cache(function, folder, made_for)  # as `njit(cache=True)` does
        except OSError as error:  # the folder was taken away meanwhile
            _say("compiled code is not kept", error)
    return out


def compiled_part(function: Callable) -> Callable:
    """Compile as a part of the functions that call it (decorator)."""
    return njit(nogil=True)(function)


class _Damaged(Exception):
    """A file of the cache does not hold what was written."""


class _Locator(_SourceFileBackedLocatorMixin, _CacheLocator):
    """A folder, whatever numba's settings say: in another one nothing tells sources apart."""

    def __init__(self, function: Callable, folder: Path) -> None:
        self._py_file = inspect.getfile(function)
        self._lineno = function.__code__.co_firstlineno
        self._cache_path = str(folder / self.get_suitable_cache_subpath(self._py_file))

    def get_cache_path(self) -> str:
        """See `numba`."""
        return self._cache_path


class _Impl(CompileResultCacheImpl):
    """What numba keeps of a function, in a folder of ours."""

    def __init__(self, function: Callable, folder: Path) -> None:
        self._locator = _Locator(function, folder)
        self._locator.ensure_cache_path()
        self._lineno = function.__code__.co_firstlineno
        module = Path(inspect.getfile(function)).stem
        name = f"{module}.{function.__qualname__}"
        self._filename_base = self.get_filename_base(name, getattr(sys, "abiflags", ""))


class _Cache(FunctionCache):
    """Numba's cache, without which everything goes on."""

    def __init__(self, function: Callable, folder: Path, made_for: str = "") -> None:
        self._impl_class = partial(_Impl, folder=folder)
        super().__init__(function)
        file: Any = self._cache_file
        name = ".".join(filter(None, [file._index_name[:-4], made_for]))
        self._cache_file = _File(file._cache_path, name, file._source_stamp)

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """See `numba`; None if there is no code, or none that is whole.

        Numba would install all of its own declarations first. Code that is compiled needs none of
        them, only the runtime that it calls; before something is compiled, they are installed.
        """
        try:
            rtsys.initialize(target_context)
            with self._guard_against_spurious_io_errors():
                return self._load_overload(sig, target_context)
            return None  # as numba does
        except Exception as error:
            _say(f"compiled code kept in {self.cache_path} is damaged, and made again", error)
        try:
            self.flush()
        except OSError:
            pass  # `save_overload` will say so
        return None

    def save_overload(self, sig: Any, data: Any) -> None:
        """See `numba`; once a source has changed, the folder's name is not that of the code."""
        if digest() != first_digest():
            return
        try:
            super().save_overload(sig, data)
        except Exception as error:
            _say(f"compiled code cannot be kept in {self.cache_path}", error)


class _File(IndexDataCacheFile):
    """Its files begin with a sha256 of their name and of the rest: not a bit that changed is run.

    No two processes write code under one name: where both are the first, the later index counts,
    and the worst that comes of it is that something is compiled once more.
    """

    def _save_data(self, name: str, data: Any) -> None:
        with self._open_for_write(self._data_path(name)) as stream:
            stream.write(_sealed(name, self._dump(data)))

    def _load_data(self, name: str) -> Any:
        return _unseal(Path(self._data_path(name)))

    def _save_index(self, overloads: dict) -> None:
        with self._open_for_write(self._index_path) as stream:
            content = self._dump((self._version, self._source_stamp, overloads))
            stream.write(_sealed(self._index_name, content))

    def _load_index(self) -> dict:
        try:
            version, stamp, overloads = _unseal(Path(self._index_path))
        except FileNotFoundError:
            return {}
        return overloads if (version, stamp) == (self._version, self._source_stamp) else {}

    def _data_name(self, number: int) -> str:
        return f"{self._index_name[:-4]}.{uuid.uuid4().hex[:16]}.nbc"


def _sealed(name: str, content: bytes) -> bytes:
    """What a file of this name holds: code under the name of other code is not run either."""
    return hashlib.sha256(name.encode() + content).digest() + content


def _unseal(file: Path) -> Any:
    if file.exists() and not file.is_file():
        raise _Damaged(f"{file.name} is no regular file")
    data = file.read_bytes()
    digest, content = data[:_DIGEST_BYTES], data[_DIGEST_BYTES:]
    if hashlib.sha256(file.name.encode() + content).digest() != digest:
        raise _Damaged(f"{file.name} is not what was written")
    return pickle.loads(content)


def _say(what: str, error: Exception) -> None:
    if what not in _said:
        _said.add(what)
        reason = getattr(error, "strerror", None) or " ".join(str(error).split())
        warnings.warn(f"{what}: {reason}", SimkitWarning, stacklevel=2)


@cache
def _folder() -> Path | None:
    """The first folder that can be written: numba's, the user's, the package's own, or none."""
    name = _fingerprint(first_digest())
    for base in _bases(Path(__file__).parent) if name else []:
        folder = base / f"simkit-{name}"
        try:
            folder.mkdir(parents=True, exist_ok=True)
            tempfile.TemporaryFile(dir=folder).close()
            os.utime(folder)
        except OSError:
            continue
        _tidy(base)
        return folder
    return None


def _tidy(base: Path) -> None:
    """Remove code of sources that have changed since: all but the folders that were used last."""
    with suppress(OSError):
        found = base.glob(f"simkit-{'[0-9a-f]' * 16}")
        for folder in sorted(found, key=os.path.getmtime)[:-_MOST_FOLDERS]:
            shutil.rmtree(folder, ignore_errors=True)


def _bases(package: Path) -> list[Path]:
    bases = [package / "__pycache__"]
    home = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    if os.path.isabs(home):
        bases.insert(0, Path(home))
    if numba.config.CACHE_DIR:  # type: ignore[attr-defined]
        bases.insert(0, Path(numba.config.CACHE_DIR))  # type: ignore[attr-defined]
    return bases


def _fingerprint(sources: str | None) -> str:
    """A name for code that is made from sources of this `digest`; "" where they are not known."""
    versions = numba.__version__, llvmlite.__version__, np.__version__, sys.version
    return hashlib.sha256(f"{versions} {sources}".encode()).hexdigest()[:16] if sources else ""
