"""Cost models by name, spec or file."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from simkit.costs.base import CostModel
from simkit.costs.presets import PRESETS
from simkit.costs.timed_models import read
from simkit.errors import CostError
from traces import reading, specs
from traces.registry import Registry, of_class, suggest

_MOST_BYTES = reading.MEBIBYTE

C = TypeVar("C", bound=type[CostModel])


_CLASSES = {"atlas": "Atlas", "linear": "Linear", "measured": "Measured", "roofline": "Roofline"}
BUILT_IN = {name: f"simkit.costs.{name}:{cls}" for name, cls in _CLASSES.items()}
"""Where this package's cost models are; a replay imports the one that it names."""

COSTS: Registry[type[CostModel]] = Registry(
    "cost model", CostError, "simkit.costs", of_class(CostModel), BUILT_IN
)
"""Cost models by the name of their specs."""


def register(cls: C) -> C:
    """Make a cost model known by its `name` (decorator).

    Raises:
        CostError: another one has that name.

    >>> @simkit.costs.register
    ... class Mine(simkit.costs.Linear):
    ...     name = "mine"
    >>> simkit.costs.parse("mine(draft_s=1, target_s=10)").target_s
    10
    """
    COSTS.add(cls.name, cls)
    return cls


def names() -> list[str]:
    """All registered names, those of installed packages too, sorted.

    >>> "linear" in simkit.costs.names()
    True
    """
    return sorted(COSTS)


class Entry(NamedTuple):
    """A line of the list of costs."""

    name: str
    kind: str
    what: str
    source: str


def catalogue() -> list[Entry]:
    """Every cost that a name stands for: the kinds, then `roofline` devices, then presets.

    >>> [entry.name for entry in simkit.costs.catalogue() if entry.kind == "roofline"][:2]
    ['roofline', 'roofline(device=a100)']
    """
    from simkit.costs.shapes import DEVICES

    kinds = [Entry(name, name, COSTS[name].what, COSTS[name].source) for name in names()]
    devices = [
        Entry(
            f"roofline(device={name})",
            "roofline",
            f"{device.bandwidth_bytes_per_s / 1e12:g} TB/s, "
            f"{device.rate_flops_per_s['bfloat16'] / 1e12:g} TFLOP/s in bfloat16",
            device.source,
        )
        for name, device in DEVICES.items()
    ]
    presets = [Entry(name, "linear", p.what, p.source) for name, p in sorted(PRESETS.items())]
    return kinds + devices + presets


def parse(text: str) -> CostModel:
    """The cost model of a spec such as `measured` or `linear(draft_s=0.002, target_s=0.03)`.

    A preset's name (`pacer:deepseek-1.3b-33b`) stands for a `linear` with its arguments; others may
    follow in parentheses. The name of a JSON or TOML file stands for what is in it: a `kind` (or a
    preset's name), and its arguments; that of a Parquet file for `measured` with those samples.

    Raises:
        CostError: the spec or the file cannot be read, or names no cost model or argument.

    >>> simkit.costs.parse("pearl:llama2-7b-70b").preset
    'pearl:llama2-7b-70b'
    """
    text = text.strip()
    if text.endswith((".json", ".toml")):
        return _read(Path(text))
    if text.endswith(".parquet"):
        return _build("measured", {"file": text})
    name, bracket, rest = text.partition("(")
    name = name.strip()
    if name not in PRESETS and ("/" in name or "." in name) and ":" not in name:
        raise CostError(f"{text}: a cost is a name, or a .json, .toml or .parquet file")
    if ":" in name and name not in PRESETS:
        raise _unknown(name)
    try:  # a preset's name is no word of a spec; what is in parentheses is read like any other
        spec = specs.parse(f"preset{bracket}{rest}" if name in PRESETS else text, CostError)
    except CostError as error:
        raise CostError(str(error).replace("preset(", f"{name}(", 1)) from None
    if spec.ranges():
        raise CostError(f"{text}: {spec.ranges()[0]} is a range; give one value here")
    if spec.args:
        raise CostError(f"{text}: give a cost's arguments by name, as in linear(draft_s=0.001, …)")
    return _build(name, spec.kwargs)


def _read(file: Path) -> CostModel:
    text = reading.read_text(file, _MOST_BYTES, CostError)
    parse = reading.parse_toml if file.suffix == ".toml" else reading.parse_json
    values = parse(text, file, CostError)
    if not isinstance(values, dict) or not isinstance(values.get("kind"), str):
        raise CostError(f"{file}: needs a kind ({', '.join(names())}, or a preset)")
    try:
        if values["kind"] == "linear" and "models" in values:
            values["timed"] = read(values.pop("models"), str(file))
        return _build(values.pop("kind"), values)
    except CostError as error:
        raise CostError(f"{file}: {error}") from None


def _unknown(name: str) -> CostError:
    known = suggest(name, (*COSTS.known(), *PRESETS))
    return CostError(f"unknown cost model {name!r} ({known})")


def _build(name: str, given: Mapping[str, Any]) -> CostModel:
    if name in PRESETS:
        return _build("linear", {**PRESETS[name].arguments, "preset": name, **given})
    if name not in COSTS:
        raise _unknown(name)
    parameters = inspect.signature(COSTS[name]).parameters
    for key in given:
        if key not in parameters:
            raise CostError(f"{name} has no argument {key!r} ({suggest(key, parameters)})")
    for key, parameter in parameters.items():
        if parameter.default is parameter.empty and key not in given:
            raise CostError(f"{name} needs {key}")
    return COSTS[name](**given)
