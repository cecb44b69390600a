"""Converted models, kept in the user's cache under their hash: written whole, and used again."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from simkit.engines.base import EngineError
from simkit.engines.run.gguf import write_gguf
from simkit.engines.run.openvino_model import write_openvino
from simkit.engines.run.safetensors_file import ModelFolder
from traces.cache import cache_folder
from traces.outputs import make_folder, whole_folder

DTYPES = ("float32", "float16")
_VERSION = 1  # of what is written here; a change makes all anew
_ABOUT = "source.json"
_WRITERS: dict[str, tuple[str, Callable[[ModelFolder, Path, str], list[str]]]] = {
    "gguf": ("model.gguf", write_gguf),
    "openvino": ("", write_openvino),
}
FORMATS = tuple(_WRITERS)


class Converted(NamedTuple):
    """A model as an engine loads it.

    Attributes:
        path: the file, or the folder.
        notes: what a user should know of it, one line each.
    """

    path: Path
    notes: list[str]


def convert(model: ModelFolder, to: str, dtype: str = "float32") -> Converted:
    """Write a model in an engine's format, or find it where it was kept.

    It is kept in the user's cache, under a hash of the weights, the config, the tokenizer, the
    format and the dtype, so it is there for every trace of the model.

    Raises:
        EngineError: there is no such format or dtype, or the model cannot be written in it.
        TraceError: the cache cannot be written to, or another process is writing this very model.
    """
    if to not in FORMATS:
        raise EngineError(f"--to must be {' or '.join(FORMATS)}, not {to!r}")
    if dtype not in DTYPES:
        raise EngineError(f"--dtype must be {' or '.join(DTYPES)}, not {dtype!r}")
    base = cache_folder() / "engines"
    folder = base / f"{to}-{dtype}-v{_VERSION}-{model.sha256()[:32]}"
    name, write = _WRITERS[to]
    if (folder / _ABOUT).is_file():
        about = json.loads((folder / _ABOUT).read_text(encoding="utf-8"))
        return Converted(folder / name, list(about["notes"]))
    make_folder(base)
    with whole_folder(folder) as passing:
        notes = write(model, passing / name, dtype)
        about = {"model": str(model.path.resolve()), "notes": notes}
        (passing / _ABOUT).write_text(json.dumps(about, indent=1), encoding="utf-8")
    return Converted(folder / name, notes)
