"""Cost models by name, spec or file."""

from __future__ import annotations

import inspect
import json
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

from simkit import specs
from simkit.costs.base import CostModel
from simkit.errors import CostError

_COSTS: dict[str, type[CostModel]] = {}

C = TypeVar("C", bound=type[CostModel])


def register(cls: C) -> C:
    """Make a cost model known by its `name` (decorator).

    Raises:
        CostError: another one has that name.
    """
    if cls.name in _COSTS:
        raise CostError(f"a cost model named {cls.name} exists: {_COSTS[cls.name].__qualname__}")
    _COSTS[cls.name] = cls
    return cls


def names() -> list[str]:
    """All registered names, sorted."""
    return sorted(_COSTS)


def parse(text: str) -> CostModel:
    """The cost model of a spec such as `measured` or `linear(draft_s=0.002, target_s=0.03)`.

    The name of a JSON or TOML file stands for what is in it: a `kind`, and its arguments.

    Raises:
        CostError: the spec or the file cannot be read, or names no cost model or argument.
    """
    if text.endswith((".json", ".toml")):
        return _read(Path(text))
    spec = specs.parse(text, CostError)
    if spec.ranges():
        raise CostError(f"{text.strip()}: {spec.ranges()[0]} is a range; give one value here")
    if spec.args:
        raise CostError(f"{text.strip()}: a cost model's arguments need their names")
    return _build(spec.name, spec.kwargs)


def _read(file: Path) -> CostModel:
    try:
        text = file.read_text(encoding="utf-8")
        values = tomllib.loads(text) if file.suffix == ".toml" else json.loads(text)
    except OSError as error:
        raise CostError(f"{file}: {error.strerror}") from None
    except ValueError as error:
        raise CostError(f"{file}: {' '.join(str(error).split())}") from None
    if not isinstance(values, dict) or not isinstance(values.get("kind"), str):
        raise CostError(f"{file}: needs a kind ({', '.join(names())})")
    try:
        return _build(values.pop("kind"), values)
    except CostError as error:
        raise CostError(f"{file}: {error}") from None


def _build(name: str, given: Mapping[str, Any]) -> CostModel:
    if name not in _COSTS:
        raise CostError(f"unknown cost model {name!r} ({specs.suggest(name, _COSTS)})")
    parameters = inspect.signature(_COSTS[name]).parameters
    for key in given:
        if key not in parameters:
            raise CostError(f"{name} has no argument {key!r} ({specs.suggest(key, parameters)})")
    for key, parameter in parameters.items():
        if parameter.default is parameter.empty and key not in given:
            raise CostError(f"{name} needs {key}")
    return _COSTS[name](**given)
