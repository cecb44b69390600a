"""A model's folder in plain numpy: its config, its tokenizer's text, its weights, its hash."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from simkit.engines.base import EngineError
from traces import reading

_DTYPES = {"F64": np.float64, "F32": np.float32, "F16": np.float16, "BF16": np.uint16}
_MOST_HEADER_BYTES = 64 * reading.MEBIBYTE
_MOST_TEXT_BYTES = 256 * reading.MEBIBYTE
_TEXTS = ("config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json")


@dataclass(frozen=True)
class ModelFolder:
    """A Hugging Face folder of which no library reads the weights.

    Attributes:
        path: the folder.
        config: its config.json.
        tokenizer: the folder that has the tokenizer's files; a draft may have its target's.
    """

    path: Path
    config: dict[str, Any]
    tokenizer: Path

    @classmethod
    def open(cls, folder: str | Path, tokenizer: str | Path | None = None) -> ModelFolder:
        """Look at a folder.

        Args:
            folder: of the model.
            tokenizer: folder of the tokenizer, where the model's has none.

        Raises:
            EngineError: there is no config, no safetensors file or no tokenizer in it.
        """
        path = Path(folder)
        if not (path / "config.json").is_file():
            reading.refuse_url(path, EngineError)
            raise EngineError(f"{path}: not a model folder (no config.json in it)")
        if not any(path.glob("*.safetensors")):
            raise EngineError(f"{path}: no weights in safetensors in it")
        own = path if (path / "tokenizer.json").is_file() else Path(tokenizer or path)
        if not (own / "tokenizer.json").is_file():
            raise EngineError(f"{path}: no tokenizer.json in it: name its folder with --tokenizer")
        return cls(path, _json(path / "config.json"), own)

    @property
    def vocab_size(self) -> int:
        """Token ids that the model has rows for."""
        return self.number("vocab_size")

    def number(self, name: str, default: float | None = None) -> Any:
        """A number of the config.

        Raises:
            EngineError: it is missing or no number.
        """
        value = self.config.get(name)
        value = default if value is None else value
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise EngineError(f"{self.path / 'config.json'}: {name} must be a number: {value!r}")
        return value

    @property
    def head_dim(self) -> int:
        """Elements of an attention head."""
        return self.number(
            "head_dim", self.number("hidden_size") // self.number("num_attention_heads")
        )

    @property
    def rope_theta(self) -> float:
        """Base of the rotary frequencies."""
        rope = self.config.get("rope_parameters") or {}
        return float(rope.get("rope_theta") or self.number("rope_theta", 10000.0))

    def rope_frequencies(self) -> np.ndarray:
        """Rotary frequencies of the pairs of a head, (head_dim / 2,) float32."""
        exponents = np.arange(0, self.head_dim, 2, dtype=np.float32) / np.float32(self.head_dim)
        return (1.0 / np.float32(self.rope_theta) ** exponents).astype(np.float32)

    def text(self, name: str) -> dict[str, Any]:
        """A JSON file of the tokenizer; empty where there is none.

        Raises:
            EngineError: it cannot be read.
        """
        file = self.tokenizer / name
        return _json(file) if file.is_file() else {}

    def sha256(self) -> str:
        """A hash over all that a conversion reads."""
        digest = hashlib.sha256()
        weights = sorted(self.path.glob("*.safetensors"))
        texts = [self.path / _TEXTS[0], self.path / _TEXTS[1]]
        texts += [self.tokenizer / name for name in _TEXTS[2:]]
        for file in (*texts, *weights):
            if file.is_file():
                digest.update(f"{file.name} {reading.file_hash(file, EngineError)}\n".encode())
        return digest.hexdigest()

    def weights_sha256(self) -> str:
        """The hash that a manifest has of the model in float32, see `traces.record.pair`."""
        names, digest = {}, hashlib.sha256()
        for name, values in self.tensors():
            names[name] = np.ascontiguousarray(values, np.float32)
        if self.config.get("tie_word_embeddings") and "lm_head.weight" not in names:
            names["lm_head.weight"] = names["model.embed_tokens.weight"]
        for name, values in sorted(names.items()):
            digest.update(f"{name} {values.shape} torch.float32\n".encode())
            digest.update(values.data)
        return digest.hexdigest()

    def tensors(self) -> Iterator[tuple[str, np.ndarray]]:
        """All weights by name, in float32 (float64 where they are).

        Raises:
            EngineError: a file is cut short, or has a dtype that is not read.
        """
        for file in sorted(self.path.glob("*.safetensors")):
            yield from _tensors(file)


def _json(file: Path) -> dict[str, Any]:
    text = reading.read_text(file, _MOST_TEXT_BYTES, EngineError)
    try:
        found = json.loads(text)
    except ValueError as error:
        raise EngineError(f"{file}: is no JSON: {error}") from None
    if not isinstance(found, dict):
        raise EngineError(f"{file}: must be a JSON object")
    return found


def _tensors(file: Path) -> Iterator[tuple[str, np.ndarray]]:
    """Each tensor of a safetensors file: eight bytes of length, a JSON header, then the values."""
    with file.open("rb") as opened:
        size = int.from_bytes(opened.read(8), "little")
        if not 2 <= size <= _MOST_HEADER_BYTES:
            raise EngineError(f"{file}: is no safetensors file")
        try:
            header = json.loads(opened.read(size))
            entries = {name: e for name, e in header.items() if name != "__metadata__"}
            places = {
                name: (e["dtype"], e["shape"], *e["data_offsets"]) for name, e in entries.items()
            }
        except (ValueError, KeyError, TypeError, AttributeError):
            raise EngineError(f"{file}: its header is damaged") from None
        for name, (dtype, shape, begin, end) in places.items():
            if dtype not in _DTYPES:
                raise EngineError(f"{file}: {name} is of {dtype}, which is not read")
            kind, n = np.dtype(_DTYPES[dtype]), prod(shape)
            opened.seek(8 + size + begin)
            raw = np.fromfile(opened, kind, n)
            if end - begin != n * kind.itemsize or len(raw) != n:
                raise EngineError(f"{file}: {name} is cut short")
            yield name, _widened(raw.reshape(shape), dtype)


def _widened(raw: np.ndarray, dtype: str) -> np.ndarray:
    if dtype == "BF16":
        return (raw.astype(np.uint32) << 16).view(np.float32)
    return raw.astype(np.float64 if dtype == "F64" else np.float32)
