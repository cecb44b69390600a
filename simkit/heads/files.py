"""A head in two files: its weights in safetensors, and what it is in a JSON beside them."""

from __future__ import annotations

import copy
import hashlib
import json
import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from safetensors import SafetensorError
from torch import nn

from simkit.errors import HeadError
from simkit.heads import registry
from simkit.simulator.display import grid
from traces import outputs, reading, signature
from traces.errors import TraceError
from traces.manifest import Manifest

FORMAT = 1
SIGNATURE = "sidecar_sha256"  # of all other fields
_MOST_SIDECAR_BYTES = reading.MEBIBYTE
_MOST_WEIGHT_BYTES = 2048 * reading.MEBIBYTE
_LARGEST = 2**16  # of a width
SUFFIX = ".safetensors"
_TRIES = 3  # of reading what another process is replacing


@dataclass(frozen=True)
class Head:
    """A trained head.

    Attributes:
        kind: one of `registry.names()`.
        width: H, numbers in a state of its draft model.
        options: of its kind.
        module: the network, float32, in eval mode.
        facts: of its training: trace, models, sampler, seed, metrics, library versions.
    """

    kind: str
    width: int
    options: Mapping[str, Any]
    module: nn.Module
    facts: Mapping[str, Any] = field(default_factory=dict)

    @property
    def by_start(self) -> bool:
        """Whether it scores each (start, depth), not each row."""
        return registry.get(self.kind).by_start

    @property
    def lag(self) -> int:
        """How many tokens after the one that it judges its state is there: 0 or 1."""
        return int(self.options.get("lag", 0))

    def network(self, device: str | torch.device = "cpu") -> nn.Module:
        """A copy of the network to score with.

        Heads that score rows run in float64, which costs little, so that the shape of a batch does
        not show in a score; PACER's runs in float32.
        """
        dtype = torch.float32 if self.by_start else torch.float64
        return copy.deepcopy(self.module).to(device, dtype)

    @property
    def hash(self) -> str:
        """A sha256 of what decides its scores: kind, options and weights."""
        what = json.dumps([self.kind, self.width, dict(self.options)], sort_keys=True)
        return hashlib.sha256(what.encode() + self.weights).hexdigest()

    def cells(self) -> tuple[list[str], list[list[str]]]:
        """How well it foretells acceptance, beside other signals: column heads and rows."""
        signals = self.facts.get("metrics", {}).get("signals", {})
        figures = list(next(iter(signals.values()), {}))
        rows = [
            [name, *("–" if found[key] is None else f"{found[key]:.4f}" for key in figures)]
            for name, found in signals.items()
        ]
        return ["signal", *(name.replace("_", " ") for name in figures)], rows

    def _repr_html_(self) -> str:
        return grid(*self.cells())

    @property
    def weights(self) -> bytes:
        """The bytes of its safetensors file."""
        state = {k: v.detach().float().cpu() for k, v in self.module.state_dict().items()}
        return safetensors.torch.save(state)


def build(kind: str, width: int, options: Mapping[str, Any]) -> nn.Module:
    """A network with fresh weights; all options of its kind are given.

    Raises:
        HeadError: an unknown kind, or an option is out of range.
    """
    found = registry.get(kind)
    found.check(options)
    return found.build(width, options)


def save(head: Head, path: Path) -> None:
    """Write the weights to `path` and the sidecar beside it; equal heads give equal bytes.

    Whoever reads them meets the old pair or the new one, never one file of each.

    Raises:
        HeadError: the name does not end in .safetensors, or the file cannot be written.
    """
    check_suffix(path)
    weights = head.weights
    about = {
        "format": FORMAT,
        "kind": head.kind,
        "width": head.width,
        "options": dict(head.options),
        "weights_sha256": hashlib.sha256(weights).hexdigest(),
        **head.facts,
    }
    text = sidecar_text(about)
    sidecar = path.with_suffix(".json")
    waits = outputs.waiting_name(sidecar, about["weights_sha256"])
    made: list[Path] = []
    try:
        outputs.make_folder(path.parent, made)
        with outputs.locked(path):
            _settle(path)
            try:
                outputs.write_atomic(waits, text.encode())
                outputs.write_atomic(path, weights)  # from here on the new sidecar counts
            except BaseException:
                with suppress(OSError):  # what the disk says has been said
                    _settle(path)
                raise
            _settle(path)
    except OSError as error:
        raise HeadError(str(outputs.write_error(path, error))) from None
    except TraceError as error:
        raise HeadError(str(error)) from None
    finally:
        outputs.remove_empty(made)


def sidecar_text(about: Mapping[str, Any]) -> str:
    """What a sidecar says, signed."""
    data = json.loads(json.dumps(about, allow_nan=False))  # as it will be read: keys are texts
    data.pop(SIGNATURE, None)
    data[SIGNATURE] = signature.digest(data)
    return json.dumps(data, indent=1, ensure_ascii=False) + "\n"


def pair(path: Path) -> tuple[Path, Path]:
    """The two files of a head: weights and sidecar."""
    return path, path.with_suffix(".json")


def _settle(path: Path) -> None:
    """Give the sidecar of the weights that are there its place; others were for no weights."""
    sidecar = path.with_suffix(".json")
    waiting = outputs.waiting(sidecar)
    if not waiting:
        return
    sha256 = hashlib.sha256(path.read_bytes()).hexdigest() if path.exists() else ""
    for file in waiting:
        if sha256 and file == outputs.waiting_name(sidecar, sha256):
            os.rename(file, sidecar)
        else:
            file.unlink()
    outputs.sync_folder(path.parent)


def load(path: str | Path) -> Head:
    """Read a head. A sidecar without a signature is of before there were any: with a warning.

    Raises:
        HeadError: a file is missing, is no safetensors file (a pickle is never read), the sidecar
            was altered, or the two do not belong together; the message names the file.
    """
    path = Path(path)
    check_suffix(path)
    data, about = _read_pair(path)
    try:
        weights = safetensors.torch.load(data)
    except (SafetensorError, ValueError, KeyError) as error:
        raise HeadError(f"{path}: not a safetensors file: {_line(error)}") from None
    kind, width, options = (about.pop(name) for name in ("kind", "width", "options"))
    try:
        with torch.device("meta"):  # nothing is allocated for sizes that a sidecar makes up
            module = build(kind, width, options)
        module.load_state_dict(weights, assign=True)
        module = module.float()
    except (RuntimeError, TypeError, KeyError, ValueError, ArithmeticError) as error:
        raise HeadError(f"{path}: does not fit its sidecar: {_line(error)}") from None
    if not all(bool(torch.isfinite(tensor).all()) for tensor in weights.values()):
        raise HeadError(f"{path}: a weight is NaN or infinite")
    return Head(kind, width, options, module.eval(), about)


def _read_pair(path: Path) -> tuple[bytes, dict[str, Any]]:
    """Weights and what their sidecar says; read again if they change while they are read."""
    sidecar = path.with_suffix(".json")
    for _ in range(_TRIES):
        data = reading.read_bytes(path, _MOST_WEIGHT_BYTES, HeadError)
        sha256 = hashlib.sha256(data).hexdigest()
        waits = outputs.waiting_name(sidecar, sha256)  # where its writer was stopped in between
        about = _read_sidecar(waits if waits.exists() else sidecar)
        if sha256 == about.pop("weights_sha256"):
            return data, about
    raise HeadError(f"{path}: its weights are not those that {path.stem}.json describes")


def check_fits(head: Head, manifest: Manifest, where: str) -> None:
    """Refuse a head that was trained for another pair of models.

    Raises:
        HeadError: the message says which model differs.
    """
    for model in ("draft", "target"):
        info = getattr(manifest, model)
        here = None if info is None else info.weights_sha256
        there = head.facts.get("trained_on", {}).get(f"{model}_sha256")
        if here != there:
            raise HeadError(
                f"the head was trained for another {model} model (weights {_short(there)}) than"
                f" that of {where} ({_short(here)})"
            )


def check_width(head: Head, width: int, where: str) -> None:
    """Refuse states of another width.

    Raises:
        HeadError: as said.
    """
    if head.width != width:
        raise HeadError(
            f"the head takes states of {head.width} numbers, the draft model of {where} has"
            f" {width}: it is another draft"
        )


def _read_sidecar(path: Path) -> dict[str, Any]:
    data = reading.read_bytes(path, _MOST_SIDECAR_BYTES, HeadError)
    about = reading.parse_json(data, path, HeadError)
    signed = about.pop(SIGNATURE, None) if isinstance(about, dict) else None
    is_altered = signed is not None and signed != signature.digest(about)
    wanted = {"kind": str, "width": int, "options": dict, "weights_sha256": str}
    if not isinstance(about, dict) or about.pop("format", None) != FORMAT:
        raise HeadError(f"{path}: not a head's sidecar of format {FORMAT}")
    for name, kind in wanted.items():
        if not isinstance(about.get(name), kind):
            raise HeadError(f"{path}: field {name} is missing or not {kind.__name__}")
    try:
        registry.get(about["kind"]).check(about["options"])
    except HeadError as error:
        raise HeadError(f"{path}: {error}") from None
    for name in ("trained_on", "metrics"):
        if not isinstance(about.get(name, {}), dict):
            raise HeadError(f"{path}: {name} must be an object")
    for name, value in about.get("trained_on", {}).items():
        if name.endswith("_sha256") and not isinstance(value, str | None):
            raise HeadError(f"{path}: trained_on.{name} must be text")
    if type(about["width"]) is not int or not 1 <= about["width"] <= _LARGEST:
        raise HeadError(f"{path}: width is {about['width']!r}, which no head has")
    if is_altered:
        raise HeadError(f"{path}: corrupt: its {SIGNATURE} is not that of its content")
    if signed is None:
        signature.warn_unsigned(path, SIGNATURE)
    return about


def check_suffix(path: Path) -> None:
    """Refuse a name that is not that of a safetensors file.

    Raises:
        HeadError: as said.
    """
    if path.suffix != SUFFIX:
        raise HeadError(f"{path}: a head is a {SUFFIX} file; a pickle is never read")


def _short(sha256: str | None) -> str:
    return "unknown" if sha256 is None else sha256[:8]


def _line(error: Exception) -> str:
    return " ".join(str(error).split())[:160]
