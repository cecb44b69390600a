"""What a command leaves for the machine that asked: few files of limited size, and its time."""

from __future__ import annotations

import io
import json
import tarfile
import time
from collections.abc import Sequence
from pathlib import Path

from traces.outputs import write_atomic

MAX_FILE_BYTES = 13_500_000
MAX_BYTES = 64_000_000
MAX_FILES = 8


class Budget:
    """Seconds that a command may take, from its making on."""

    def __init__(self, seconds: float) -> None:
        self.began = time.perf_counter()
        self.deadline = self.began + seconds

    @property
    def spent_s(self) -> float:
        """Seconds since the beginning."""
        return time.perf_counter() - self.began

    @property
    def left_s(self) -> float:
        """Seconds that are left; below 0 when it is spent."""
        return self.deadline - time.perf_counter()

    def check(self) -> None:
        """Raise TimeoutError if it is spent."""
        if self.left_s < 0:
            raise TimeoutError


def write_json(file: Path, value: object) -> None:
    """Write a JSON file, whole or not at all."""
    write_atomic(file, (json.dumps(value, indent=1) + "\n").encode())


def parts(folder: Path) -> list[bytes]:
    """A folder as a tar archive, cut into parts of at most `MAX_FILE_BYTES`."""
    sink = io.BytesIO()
    with tarfile.open(fileobj=sink, mode="w") as tar:
        tar.add(folder, arcname=folder.name)
    data = sink.getvalue()
    return [data[at : at + MAX_FILE_BYTES] for at in range(0, len(data), MAX_FILE_BYTES)]


def deliver(folders: Sequence[Path], out: Path, delivered: Path, n_others: int) -> list[str]:
    """Archive folders into `out` as NAME.tar.0, NAME.tar.1, …, as far as the limits go.

    Args:
        folders: in the order of their importance; those delivered before are passed over.
        out: the folder that goes back.
        delivered: a folder of marks, one for each folder delivered.
        n_others: small files that go to `out` too.

    Returns:
        names of folders that did not fit, for another call with an empty `out`.
    """
    files, size, waiting = n_others, 0, []
    for folder in folders:
        if (delivered / folder.name).exists():
            continue
        pieces = parts(folder)
        files, size = files + len(pieces), size + sum(map(len, pieces))
        if waiting or files > MAX_FILES or size > MAX_BYTES:
            waiting.append(folder.name)
            continue
        for k, piece in enumerate(pieces):
            write_atomic(out / f"{folder.name}.tar.{k}", piece)
        delivered.mkdir(parents=True, exist_ok=True)
        (delivered / folder.name).touch()
    return waiting


def unpack(source: Path, into: Path) -> list[str]:
    """Put together the archives of one or more calls that lie in `source`; returns their names."""
    names = sorted({file.name.rpartition(".tar.")[0] for file in source.rglob("*.tar.*")})
    for name in names:
        pieces = sorted(source.rglob(f"{name}.tar.*"), key=lambda f: int(f.suffix[1:]))
        data = b"".join(piece.read_bytes() for piece in pieces)
        with tarfile.open(fileobj=io.BytesIO(data)) as tar:
            tar.extractall(into, filter="data")
    return names
