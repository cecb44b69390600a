"""Columns as a writer is given them, made into tables without a silent change of kind."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from traces import schema
from traces.arrays import dtype_of

Columns = Mapping[str, "np.ndarray | Sequence[Any]"]


def to_table(columns: Columns, wanted: pa.Schema) -> pa.Table:
    """Columns as a table; nullable ones may be absent."""
    unknown = set(columns) - set(wanted.names)
    if unknown:
        raise ValueError(f"unknown column {min(unknown)}")
    arrays, rows = [], len(next(iter(columns.values())))
    for field in wanted:
        if field.name not in columns and not field.nullable:
            raise ValueError(f"column {field.name} is missing")
        values = columns.get(field.name)
        array = pa.nulls(rows, field.type) if values is None else _array(values, field)
        if not field.nullable and array.null_count:
            raise ValueError(f"column {field.name} has a null")
        arrays.append(array)
    return pa.Table.from_arrays(arrays, schema=wanted)


def _array(values: Any, field: pa.Field) -> pa.Array:
    """No silent change of kind: floats may lose digits, nothing else may."""
    if isinstance(values, np.ndarray):
        kind = dtype_of(field.type)
        if values.size and not np.can_cast(values.dtype, kind, "same_kind"):
            raise ValueError(f"column {field.name}: {values.dtype}, not {kind}")
        if kind.kind == "f" or not values.size:
            values = values.astype(kind, copy=False)
    try:
        return pa.array(values, field.type)
    except (pa.ArrowException, OverflowError, ValueError) as error:
        raise ValueError(f"column {field.name}: {error}") from None


def state_table(name: str, columns: Columns) -> pa.Table:
    """Columns as a table whose last one is wide, an array (rows, width); see `with_state`."""
    if name == "experts":
        return _experts_table(columns)
    state = np.ascontiguousarray(columns["state"], np.float16)
    field = schema.with_state(name, state.shape[1]).field("state")
    values = pa.FixedSizeListArray.from_arrays(pa.array(state.reshape(-1)), type=field.type)
    others = {key: column for key, column in columns.items() if key != "state"}
    return to_table(others, schema.WITH_STATE[name]).append_column(field, values)


def _experts_table(columns: Columns) -> pa.Table:
    bits = np.ascontiguousarray(columns["experts"], np.uint8)
    field = schema.with_state("experts", bits.shape[1]).field("experts")
    values = pa.Array.from_buffers(field.type, len(bits), [None, pa.py_buffer(bits)])
    others = {key: column for key, column in columns.items() if key != "experts"}
    return to_table(others, schema.WITH_STATE["experts"]).append_column(field, values)
