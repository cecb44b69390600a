"""Read a drafter's folder: `config.json`, `drafter.json`, and its tensors."""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn
from transformers import LlamaConfig

from traces import reading
from traces.errors import RecordError, first_line
from traces.record.folder import check_folder

SETTINGS = "drafter.json"
_MOST_BYTES = reading.MEBIBYTE
_MOST_CONFIG_BYTES = 16 * reading.MEBIBYTE


@dataclass(frozen=True)
class DrafterSettings:
    """A drafter's settings; each is checked where it is asked for.

    Every method raises `RecordError`, which names the file and the setting.
    """

    file: Path
    values: dict[str, Any]

    def whole(self, name: str, least: int) -> int:
        """A whole number of at least `least`."""
        value = self._get(name)
        if type(value) is not int or value < least:
            raise self._wrong(name, f"a whole number of at least {least}")
        return value

    def wholes(self, name: str) -> list[int]:
        """A list of whole numbers, not empty."""
        value = self._get(name)
        if not isinstance(value, list) or not value or any(type(v) is not int for v in value):
            raise self._wrong(name, "a list of whole numbers")
        return value

    def number(self, name: str) -> float:
        """A finite number."""
        value = self._get(name)
        if type(value) not in (int, float) or not math.isfinite(value):
            raise self._wrong(name, "a number")
        return float(value)

    def word(self, name: str, choices: Collection[str]) -> str:
        """One of some words."""
        value = self._get(name)
        if value not in choices:
            raise self._wrong(name, f"one of {', '.join(choices)}")
        return value

    def _get(self, name: str) -> Any:
        if name not in self.values:
            raise RecordError(f"{self.file}: {name} is missing")
        return self.values[name]

    def _wrong(self, name: str, wanted: str) -> RecordError:
        return RecordError(f"{self.file}: {name} must be {wanted}, not {str(self._get(name))[:40]}")


def settings(folder: Path, kind: str) -> DrafterSettings:
    """The settings of a drafter of this kind.

    Raises:
        RecordError: there are none, or they are of another kind.
    """
    file = folder / SETTINGS
    if not file.exists():
        reading.refuse_url(folder, RecordError)
        raise RecordError(f"{folder}: not a drafter's folder (no {SETTINGS} in it)")
    text = reading.read_text(file, _MOST_BYTES, RecordError)
    values = reading.parse_json(text, file, RecordError)
    if not isinstance(values, dict):
        raise RecordError(f"{file}: not a JSON object")
    found = DrafterSettings(file, values)
    found.word("kind", (kind,))
    return found


def tensors(file: Path, names: Collection[str]) -> dict[str, Tensor]:
    """Tensors of a safetensors file, on the host.

    Raises:
        RecordError: the file cannot be read, or lacks one of the names.
    """
    reading.check_file(file, math.inf, RecordError)
    try:
        found = load_file(str(file))
    except (OSError, SafetensorError) as e:
        raise RecordError(f"{file}: cannot be read: {first_line(e)}") from None
    missing = sorted(set(names) - found.keys())
    if missing:
        raise RecordError(f"{file}: {', '.join(missing[:3])} is missing")
    return found


def llama_config(folder: Path) -> tuple[dict[str, Any], LlamaConfig]:
    """The config of a checkpoint of the Llama family, as it is written and as it is read.

    Raises:
        RecordError: the folder is no model's, or one of another family.
    """
    check_folder(folder)
    file = folder / "config.json"
    values = reading.parse_json(
        reading.read_text(file, _MOST_CONFIG_BYTES, RecordError), file, RecordError
    )
    if values.get("model_type", "llama") != "llama":
        raise RecordError(f"{file}: model_type {values['model_type']!r}: only llama is read")
    try:
        config = LlamaConfig.from_dict(values | {"attn_implementation": "sdpa"})
    except Exception as e:  # a library's checks raise what they like
        raise RecordError(f"{file}: {first_line(e)}") from None
    config._attn_implementation = "sdpa"
    return values, config


def fill(folder: Path, net: nn.Module, found: dict[str, Tensor], whose: str) -> None:
    """Load a network's tensors; all must be there, and no others.

    Args:
        folder: named in the error.
        net: takes them up.
        found: tensors by name.
        whose: what kind of drafter it is, in the error.

    Raises:
        RecordError: they are not the network's.
    """
    wanted = net.state_dict()
    for what, names in (
        ("is missing", wanted.keys() - found.keys()),
        ("has no place in it", found.keys() - wanted.keys()),
        (
            "is of another shape than its config says",
            {n for n in wanted.keys() & found.keys() if wanted[n].shape != found[n].shape},
        ),
    ):
        if names:
            shown = ", ".join(sorted(names)[:3])
            raise RecordError(f"{folder}: the weights are no {whose} drafter's: {shown} {what}")
    net.load_state_dict(found)
