"""What a command writes may not take the place of what it reads, nor of what else it writes."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path


def check_apart(
    outputs: Iterable[tuple[str, Path | None]], inputs: Iterable[str | Path | None]
) -> None:
    """Refuse an output in the place of an input, or of another output.

    Files are told apart by the system: links are followed, and names of whatever case or form that
    stand for one file are one.

    Args:
        outputs: options, each with a file to be written; None is none.
        inputs: what the command reads: files; folders of models and traces, with all that is in
            them; names of bundled traces; costs, of which only files count. None is nothing. An
            attached drafter's folder stands for its recording, whose outputs are read too.

    Raises:
        UserError: as said, or an output would be one more file of a trace that is read; the message
            names the option and the file.
    """
    from traces.errors import UserError

    read = [path for given in inputs if given is not None for path in _paths(Path(given))]
    taken = {_identity(path): f"is {path}, which is read" for path in read}
    traces = {_identity(path): path for path in read if (path / "manifest.json").is_file()}
    for option, file in outputs:
        if file is None:
            continue
        identity = _identity(file)
        if (why := taken.get(identity) or _inside(file, traces)) is not None:
            raise UserError(f"{option} {file}: {why}: name another")
        taken[identity] = f"is what {option} names"


def files_of(heads: Iterable[str] | None) -> list[str]:
    """The files that --head names."""
    return [given.rpartition("=")[2] for given in heads or []]


def _paths(given: Path) -> Iterator[Path]:
    """The files and folders of an input."""
    from traces.trace import DATA

    for path in dict.fromkeys((given, DATA / given)):
        try:
            path = _whole(path)
            if path.exists():
                yield path
                yield from path.rglob("*") if path.is_dir() else ()
            if path.suffix == ".safetensors":
                yield path.with_suffix(".json")  # the sidecar of a head
        except (OSError, ValueError):  # a spec, which is no path
            continue


def _whole(path: Path) -> Path:
    """The recording's folder in the place of that of a drafter which is attached to it."""
    from traces.finding import DRAFTERS

    real = Path(os.path.realpath(path))
    recording = real.parent.parent
    inside = real.parent.name == DRAFTERS and (recording / "manifest.json").is_file()
    return recording if inside else path


def _identity(path: Path) -> tuple:
    """Equal for all names of a file; of one that is not there yet, its folder's and its name."""
    real = Path(os.path.realpath(path))
    for place, name in ((real, ""), (real.parent, real.name)):
        try:
            found = place.stat()
        except OSError:
            continue
        return found.st_dev, found.st_ino, name
    return (str(real),)


def _inside(file: Path, traces: Mapping[tuple, Path]) -> str | None:
    """Why a file would be taken for a part of a trace; None if it would not."""
    real = Path(os.path.realpath(file))
    for folder in real.parents:
        trace = traces.get(_identity(folder))
        if trace is not None and (folder != real.parent or real.suffix == ".parquet"):
            return f"would be in the trace {trace}, which is read"
    return None
