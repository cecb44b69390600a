"""Read what others wrote: regular files of a size that is looked at first, plain JSON and TOML.

Each function takes the class of error to raise, a `UserError`, so that each room complains as
itself; a message starts with the file and is one line.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import stat
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

from traces.errors import UserError
from traces.urls import looks_like_url, shown

MEBIBYTE = 2**20
LONGEST_LINE_BYTES = 8 * MEBIBYTE
_DEEPEST = 64  # objects and lists inside each other
_LARGEST = 10**300  # of numbers: a float holds no more
# Without one of these no text, nor number of a flat JSON text, can be wrong.
_RISKY = re.compile(r"\d{300}|[eE]\+?\d{3}|\\u[dD][89a-fA-F]")
_CROWDED = 64  # dots or brackets in a line of TOML: its reader keeps all their beginnings


def check_file(file: str | Path, most_bytes: float, error: type[UserError]) -> os.stat_result:
    """Refuse what is no regular file (a pipe or a device would never end), or is too large.

    Raises:
        error: as said, or there is no such file.
    """
    try:
        found = os.stat(file)
    except (OSError, ValueError) as problem:  # ValueError: a name with a null byte
        refuse_url(file, error)
        raise error(f"{file}: cannot be read: {_reason(problem)}") from None
    return _checked(file, found, most_bytes, error)


def refuse_url(file: str | Path, error: type[UserError]) -> None:
    """Refuse a URL where a file or folder of this machine is read.

    Raises:
        error: it is one, or was one before it was made a path.
    """
    if looks_like_url(file):
        url = re.sub(":/+", "://", shown(file), count=1)
        raise error(f"{url}: URLs are not read here: fetch the file first")


def open_file(file: str | Path, most_bytes: float, error: type[UserError]) -> BinaryIO:
    """Open a regular file; see `check_file`."""
    check_file(file, most_bytes, error)
    try:
        # Not to wait for the other end of a pipe that has taken the file's place.
        handle = os.open(file, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        stream = os.fdopen(handle, "rb")
    except OSError as problem:
        raise error(f"{file}: cannot be read: {_reason(problem)}") from None
    try:
        _checked(file, os.fstat(handle), most_bytes, error)
    except UserError:
        stream.close()
        raise
    return stream


def read_bytes(file: str | Path, most_bytes: int, error: type[UserError]) -> bytes:
    """All of a regular file; see `check_file`."""
    with open_file(file, most_bytes, error) as stream:
        try:
            data = stream.read(most_bytes + 1)
        except OSError as problem:
            raise error(f"{file}: cannot be read: {_reason(problem)}") from None
    if len(data) > most_bytes:
        raise error(f"{file}: is larger than {_size(most_bytes)}")
    return data


def read_text(file: str | Path, most_bytes: int, error: type[UserError]) -> str:
    """All of a text in UTF-8; a byte order mark at its begin is no part of it."""
    try:
        return read_bytes(file, most_bytes, error).decode("utf-8-sig")
    except UnicodeDecodeError:
        raise error(f"{file}: not UTF-8 text") from None


def lines(file: str | Path, most_bytes: float, error: type[UserError]) -> Iterator[tuple[int, str]]:
    r"""The lines of a text in UTF-8 that are not blank, counted from 1; they end in \n alone.

    Raises:
        error: as in `check_file`, a line is longer than `LONGEST_LINE_BYTES`, or is no UTF-8.
    """
    with open_file(file, most_bytes, error) as stream:
        number = 0
        while True:
            try:
                line = stream.readline(LONGEST_LINE_BYTES + 1)
            except OSError as problem:
                raise error(f"{file}: cannot be read: {_reason(problem)}") from None
            if not line:
                return
            number += 1
            if len(line) > LONGEST_LINE_BYTES:
                size = _size(LONGEST_LINE_BYTES)
                raise error(f"{file}, line {number}: the line is longer than {size}")
            try:
                text = line.decode("utf-8-sig" if number == 1 else "utf-8")
            except UnicodeDecodeError:
                raise error(f"{file}, line {number}: not UTF-8 text") from None
            if text.strip():
                yield number, text


def file_hash(file: str | Path, error: type[UserError]) -> str:
    """sha256 of a file's bytes, in hex.

    Raises:
        error: the file cannot be read.
    """
    try:
        with open(file, "rb") as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest()
    except OSError as problem:
        raise error(f"{file}: cannot be read: {problem.strerror}") from None


def parse_json(
    text: str | bytes, where: str | Path, error: type[UserError], any_number: bool = False
) -> Any:
    """What a JSON text says, if it says it once.

    With `any_number` the caller looks at the numbers: they may be infinite, NaN or very large.

    Raises:
        error: not JSON, an object has two fields of one name, lists and objects stand too deep
            inside each other, a number is no finite float, or a text holds half of a surrogate
            pair.
    """
    if isinstance(text, bytes):
        try:
            text = text.decode("utf-8-sig")
        except UnicodeDecodeError:
            raise error(f"{where}: not UTF-8 text") from None
    try:
        constant = None if any_number else _no_constant
        value = json.loads(text, object_pairs_hook=_once, parse_constant=constant)
    except RecursionError:
        raise error(f"{where}: not JSON: nested too deep") from None
    except ValueError as problem:
        raise error(f"{where}: not JSON: {_line(problem)}") from None
    if text.count("[") + text.count("{") > _DEEPEST or _RISKY.search(text):
        try:
            _check_value(value, 0, any_number)
        except ValueError as problem:
            raise error(f"{where}: {problem}") from None
    return value


def parse_toml(text: str, where: str | Path, error: type[UserError]) -> dict[str, Any]:
    """What a TOML text says; it is refused as JSON is, see `parse_json`."""
    if any(sum(map(line.count, ".[{")) > _CROWDED for line in text.splitlines()):
        raise error(f"{where}: not TOML: nested too deep")
    try:
        value = tomllib.loads(text)
        _check_value(value, 0)
    except RecursionError:
        raise error(f"{where}: not TOML: nested too deep") from None
    except ValueError as problem:
        raise error(f"{where}: not TOML: {_line(problem)}") from None
    return value


def is_text(text: str) -> bool:
    """Whether a text can be written in UTF-8: it holds no half of a surrogate pair."""
    return not any("\ud800" <= letter <= "\udfff" for letter in text)


def _checked(
    file: str | Path, found: os.stat_result, most_bytes: float, error: type[UserError]
) -> os.stat_result:
    if stat.S_ISDIR(found.st_mode):
        raise error(f"{file}: cannot be read: Is a directory")
    if not stat.S_ISREG(found.st_mode):
        raise error(f"{file}: cannot be read: not a regular file")
    if found.st_size > most_bytes:
        raise error(f"{file}: is larger than {_size(most_bytes)}")
    return found


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"field {ascii(twice)[1:-1]} is there twice")
    return found


def _no_constant(word: str) -> float:
    raise ValueError(f"{word} is no number")


def _check_value(value: Any, depth: int, any_number: bool = False, name: str = "a text") -> None:
    if depth > _DEEPEST:
        raise ValueError("nested too deep")
    if isinstance(value, str) and not is_text(value):
        raise ValueError(f"{name} holds half of a surrogate pair")
    if isinstance(value, dict):
        for key, item in value.items():
            _check_value(key, depth, any_number, "the name of a field")
            _check_value(item, depth + 1, any_number, key)
    elif isinstance(value, list):
        for item in value:
            _check_value(item, depth + 1, any_number, name)
    elif isinstance(value, int | float) and not any_number and not abs(value) < _LARGEST:
        raise ValueError(f"{name} is no finite number")


def _reason(problem: Exception) -> str:
    return getattr(problem, "strerror", None) or _line(problem)


def _size(n_bytes: float) -> str:
    if n_bytes < MEBIBYTE:
        return f"{n_bytes / 1024:g} KiB"
    return f"{n_bytes / MEBIBYTE:g} MiB"


def _line(problem: Exception) -> str:
    return ascii(" ".join(str(problem).split())[:160])[1:-1]
