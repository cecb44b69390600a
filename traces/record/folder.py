"""What a model's folder says, looked at before a library opens it."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from pathlib import Path
from typing import Any

from traces import reading
from traces.errors import RecordError
from traces.messages import how_many

_MOST_TEXT_BYTES = 256 * reading.MEBIBYTE  # of a tokenizer; configs are far smaller
_MOST_HEADER_BYTES = 64 * reading.MEBIBYTE
_LAYERS = ("num_hidden_layers", "num_layers", "n_layer", "n_layers")
_LARGEST = 2**31  # no size in a config is above


def check_folder(folder: Path) -> None:
    """Refuse a model's folder that no pass can come out of, in words; reads no weights.

    Raises:
        RecordError: a file is special or too large, there is no config or no safetensors file,
            or the config asks for more layers than there are tensors.
    """
    if not (folder / "config.json").exists():
        reading.refuse_url(folder, RecordError)
        raise RecordError(f"{folder}: not a model folder (no config.json in it)")
    for file in sorted(folder.iterdir()):
        if file.suffix in (".json", ".jinja", ".txt", ".model"):
            if not (file.is_dir() or not file.exists()):
                reading.check_file(file, _MOST_TEXT_BYTES, RecordError)
        elif file.exists() and not (file.is_file() or file.is_dir()):
            raise RecordError(f"{file}: cannot be read: not a regular file")
    config = _config(folder)
    weights = sorted(folder.glob("*.safetensors"))
    if not weights:
        what = "weights as .bin are not read, they can hold code" if _has_bin(folder) else "none"
        raise RecordError(f"{folder}: no weights in safetensors in it ({what})")
    tensors = sum((_tensors(file) for file in weights), [])
    n_layers = max([value for name, value in _numbers(config) if name in _LAYERS], default=0)
    if n_layers > len(tensors):
        raise RecordError(
            f"{folder / 'config.json'}: {how_many(n_layers, 'layer')}, but there are {len(tensors)}"
            " tensors"
        )


def named_tokenizer(folder: Path) -> str | None:
    """The hash by which a folder without a tokenizer says whose tokens its model knows, if it does.

    A draft that is handed on need not bring a copy of its target's tokenizer, which is larger than
    some drafts: its config has the `tokenizer_sha256` of `pair.tokenizer_hash`.

    Raises:
        RecordError: the config cannot be read.
    """
    if not (folder / "config.json").exists() or any(folder.glob("*token*")):
        return None
    known = _config(folder).get("tokenizer_sha256")
    return known if isinstance(known, str) else None


def _config(folder: Path) -> dict[str, Any]:
    file = folder / "config.json"
    text = reading.read_text(file, _MOST_TEXT_BYTES, RecordError)
    config = reading.parse_json(text, file, RecordError)
    if not isinstance(config, dict):
        raise RecordError(f"{file}: not a JSON object")
    for name, value in _numbers(config):
        if abs(value) > _LARGEST:
            raise RecordError(f"{file}: {name} is {value:.4g}, which no model has")
    return config


def _numbers(config: dict[str, Any]) -> Iterator[tuple[str, int | float]]:
    """All numbers of a config with their names, of the configs in it too."""
    for name, value in config.items():
        if isinstance(value, dict):
            yield from _numbers(value)
        elif type(value) in (int, float):
            yield name, value


def _has_bin(folder: Path) -> bool:
    return any(file.suffix in (".bin", ".pt", ".pth", ".ckpt") for file in folder.iterdir())


def _tensors(file: Path) -> list[str]:
    """Names of a safetensors file's tensors; their bytes are all of the file behind its header."""
    size = reading.check_file(file, float("inf"), RecordError).st_size
    with reading.open_file(file, float("inf"), RecordError) as stream:
        n_header = int.from_bytes(stream.read(8), "little")
        if size < 8 or n_header > min(size - 8, _MOST_HEADER_BYTES):
            raise RecordError(f"{file}: truncated, or no safetensors file")
        header = reading.parse_json(stream.read(n_header), file, RecordError)
    if not isinstance(header, dict):
        raise RecordError(f"{file}: no safetensors file")
    header.pop("__metadata__", None)
    for name, tensor in header.items():
        if not _is_tensor(tensor):
            raise RecordError(f"{file}: tensor {name} is described wrong")
    end = 8 + n_header + max((tensor["data_offsets"][1] for tensor in header.values()), default=0)
    if end != size:
        raise RecordError(f"{file}: truncated or too long: {size} bytes, its header says {end}")
    return list(header)


def _is_tensor(tensor: Any) -> bool:
    """Whether a header's entry has a shape and a place; `safetensors` itself checks the rest."""
    if not isinstance(tensor, dict):
        return False
    shape: Any = tensor.get("shape")
    place: Any = tensor.get("data_offsets")
    for numbers in (shape, place):
        if not isinstance(numbers, list) or not all(type(n) is int and n >= 0 for n in numbers):
            return False
    return len(place) == 2 and place[0] <= place[1] and prod(shape) <= 8 * (place[1] - place[0])
