"""Where a trace is that somebody names: its folder, a URL in a store, or a bundled one."""

from __future__ import annotations

import difflib
import os
from pathlib import Path

from traces import stores
from traces.bundle import ABSENT, DATA, absent, present
from traces.errors import TraceError
from traces.manifest import MANIFEST, Manifest, read_manifest
from traces.registry import suggest
from traces.urls import is_url, refuse_half

DRAFTERS = "drafters"  # the folder of those that were attached to a recording


def find(path_or_name: str | Path, drafter: str | None = None) -> tuple[Path, Manifest]:
    """The folder and the manifest of a finished trace, its files unseen.

    Args:
        path_or_name: see `load`.
        drafter: see `load`; then the folder and the manifest are the drafter's.

    Raises:
        TraceError: there is none or it is unfinished.
    """
    folder = _folder(path_or_name)
    manifest = present(folder, read_manifest(folder))
    what, again = "recording", "resume it with --resume"
    if drafter is not None and manifest.attached_to is not None:
        raise TraceError(f"{folder}: is an attached drafter: name {drafter} at its recording")
    if drafter is not None:
        folder = _drafter_folder(folder, drafter)
        manifest = read_manifest(folder)
        what, again = "attached drafter", "attach it again with --resume"
    if not manifest.complete:
        done = len(manifest.shards)
        raise TraceError(
            f"{folder}: the {what} is incomplete ({done} of {manifest.n_shards} shards): {again}"
        )
    return folder, manifest


def attached(folder: Path) -> list[str]:
    """Names of the drafters that were attached to the recording in a folder."""
    try:
        names = os.listdir(folder / DRAFTERS)
    except (FileNotFoundError, NotADirectoryError):  # it may go while it is looked at
        return []
    shown = (name for name in names if not name.startswith("."))  # those are being removed
    return sorted(name for name in shown if (folder / DRAFTERS / name / MANIFEST).exists())


def _drafter_folder(folder: Path, name: str) -> Path:
    names = attached(folder)
    if "(" in str(name):
        raise TraceError(
            f"{name}: name one drafter here, as it was attached; several in one decoder (route,"
            " best_of) are for replay"
        )
    if not isinstance(name, str) or name not in names:
        name = str(name)
        if name not in names and (said := absent(folder, f"{DRAFTERS}/{name}")) is not None:
            raise TraceError(said)
        known = suggest(name, names) if names else "none is: attach one with simkit attach"
        raise TraceError(f"{folder}: no drafter {name!r} is attached ({known})")
    return folder / DRAFTERS / name


def bundled() -> list[str]:
    """Names of the bundled traces that are installed."""
    return sorted(file.parent.name for file in DATA.glob("*/sequences.parquet"))


def _folder(path_or_name: str | Path) -> Path:
    if is_url(path_or_name):
        return stores.open_url(str(path_or_name))
    if not isinstance(path_or_name, str | Path):
        raise TraceError(f"{path_or_name!r} is no trace: give its folder or a bundled trace's name")
    refuse_half(path_or_name)
    folder = Path(path_or_name)
    if (folder / MANIFEST).exists():
        return folder
    names = bundled()
    name = str(path_or_name)
    inside = len(folder.parts) == 3 and folder.parts[0] in names and folder.parts[1] == DRAFTERS
    if name in names or (inside and (DATA / folder / MANIFEST).exists()):
        return DATA / folder
    if not folder.exists() and (said := absent(name)) is not None:
        raise TraceError(said)
    if folder.exists() or len(folder.parts) != 1:
        return folder  # read_manifest says what is wrong with it
    close = difflib.get_close_matches(name, [*names, *sorted(ABSENT)], n=1)
    hint = f"did you mean {close[0]}?" if close else f"bundled: {', '.join(names) or 'none'}"
    raise TraceError(f"{name}: no such folder and no bundled trace of that name ({hint})")
