"""Parsed JSON as the dataclass that its file is described by, or an error that names the field."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from types import NoneType, UnionType
from typing import Any, get_args, get_origin, get_type_hints

from traces.errors import TraceError


def decode(kind: Any, value: Any, name: str = "") -> Any:
    """Turn parsed JSON into `kind`, a dataclass or a type that its fields use.

    Args:
        kind: what is wanted; no union but with None.
        value: of the JSON.
        name: of the value in its file, for the error.

    Raises:
        TraceError: it is none, and why.
    """
    origin, args = get_origin(kind), get_args(kind)
    if origin is UnionType:
        inner = next(arg for arg in args if arg is not NoneType)
        return None if value is None else decode(inner, value, name)
    if is_dataclass(kind):
        return _fields(kind, value, name)
    if origin is tuple and isinstance(value, list):
        return tuple(decode(args[0], item, f"{name}[{i}]") for i, item in enumerate(value))
    if origin is Mapping and isinstance(value, dict):
        return {key: decode(args[1], item, f"{name}.{key}") for key, item in value.items()}
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if (
        isinstance(kind, type)
        and isinstance(value, kind)
        and (kind is bool) == (isinstance(value, bool))
    ):
        return value
    words = {int: "a whole number", str: "text", bool: "true or false", float: "a number"}
    expected = words.get(kind, "a list" if origin is tuple else "an object")
    raise TraceError(f"{name} must be {expected}, not {in_json(value)[:60]}")


def _fields(kind: Any, value: Any, name: str) -> Any:
    if not isinstance(value, dict):
        raise TraceError(f"{name} must be an object, not {in_json(value)[:60]}")
    prefix = f"{name}." if name else ""
    known = {item.name: item for item in fields(kind)}
    for key in value:
        if key not in known:
            raise TraceError(f"unknown field {prefix}{key}")
    types = get_type_hints(kind)
    given = {}
    for key, item in known.items():
        if key in value:
            given[key] = decode(types[key], value[key], prefix + key)
        elif item.default is MISSING and item.default_factory is MISSING:
            raise TraceError(f"field {prefix}{key} is missing")
    return kind(**given)


def in_json(value: Any) -> str:
    """A value as an error shows it: text as it is."""
    return value if isinstance(value, str) else json.dumps(value)
