"""What a writer that was killed has left in a trace's folder, and how the next one tidies it."""

from __future__ import annotations

import os
import re
from contextlib import suppress
from pathlib import Path

from traces import files, schema
from traces.errors import TraceError
from traces.manifest import MANIFEST, FileInfo, Manifest, read_manifest
from traces.outputs import sync_folder, waiting_name, write_error

PARTS = "parts"
_SHARD = re.compile(r"(\w+)/\d{5}\.parquet")
_PASSING = re.compile(r"(^|/)\.[^/]+(\.tmp|\.parquet\.[0-9a-f]{16})$")  # see `outputs`


def is_only_begun(folder: Path) -> bool:
    """Whether it holds a recording that was stopped before its first shard, and nothing else."""
    manifest = None
    with suppress(TraceError):
        manifest = read_manifest(folder)
    if manifest is None or manifest.complete or manifest.files:
        return False
    names = (file.relative_to(folder).as_posix() for file in folder.rglob("*") if file.is_file())
    return all(name == MANIFEST or _is_ours(name, manifest) for name in names)


def _is_ours(name: str, manifest: Manifest) -> bool:
    """Whether a file in a trace is one that only a writer makes."""
    shard = _SHARD.fullmatch(name)
    if shard is not None:
        return shard[1] in {*manifest.tables, *schema.WITH_STATE, PARTS}
    return bool(_PASSING.search(name)) or name == "sequences.parquet"


def remove_leftovers(folder: Path, manifest: Manifest) -> None:
    """Remove what a killed writer left: passing files and unlisted ones. Others are not touched."""
    for name, info in manifest.files.items():
        settle(folder, name, info)
    waits = {waiting_name(folder / name, info.sha256) for name, info in manifest.files.items()}
    try:
        for file in [*folder.glob("*"), *folder.glob("*/*")]:
            name = file.relative_to(folder).as_posix()
            if _is_ours(name, manifest) and name not in manifest.files and file not in waits:
                file.unlink()
        if manifest.complete and (folder / PARTS).exists():
            (folder / PARTS).rmdir()
    except OSError as error:
        raise write_error(Path(error.filename or folder), error) from None


def settle(folder: Path, name: str, info: FileInfo) -> None:
    """Give a listed file that waits for its place that place; where it waits it is read as well.

    Raises:
        TraceError: the system refuses; nothing is lost, and the next writer tries again.
    """
    waits = files.place(folder, name, info)
    if waits != folder / name:
        try:
            os.rename(waits, folder / name)
            sync_folder(waits.parent)
        except OSError as error:
            raise write_error(folder / name, error) from None
