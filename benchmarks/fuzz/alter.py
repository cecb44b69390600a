"""Ways to break bytes, text, JSON and tables; each draws from a `random.Random` alone."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa

NUMBERS = (-1, 0, 1, 2**31, 2**63, -(2**63) - 1, 10**18, 10**400, 0.5, -0.0, 1e-38, 1e308)
WORDS = ("", "x", "$\\frac{1", "../../x", "/dev/zero", "\ud800", "\u2028", "a" * 9999, "\0", "all")
HOSTILE = (*NUMBERS, *WORDS, float("nan"), float("inf"), None, True, [], {}, [[]], [None], {"a": 1})
_TOKENS = '{}[]",:()=.-+eE019 \n\t\\#\ufeff\u2028é$'


def alter_bytes(rng: random.Random, data: bytes) -> bytes:
    """One to three flips, cuts, doublings, moves and overwritten runs."""
    found = bytearray(data)
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        rng.choice((_flip, _flip, _flip, _overwrite, _cut, _double, _insert, _move))(rng, found)
    return bytes(found)


def _flip(rng: random.Random, data: bytearray) -> None:
    if data:
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)


def _overwrite(rng: random.Random, data: bytearray) -> None:
    at, length = rng.randrange(len(data) + 1), rng.choice((1, 4, 64, 1024))
    length = min(length, len(data) - at)
    data[at : at + length] = rng.choice((bytes(length), b"\xff" * length, rng.randbytes(length)))


def _cut(rng: random.Random, data: bytearray) -> None:
    at = rng.randrange(len(data) + 1)
    del data[at : rng.choice((at + 1, at + 8, len(data)))]


def _double(rng: random.Random, data: bytearray) -> None:
    at = rng.randrange(len(data) + 1)
    data[at:at] = data[at : at + rng.choice((1, 16, 4096))]


def _insert(rng: random.Random, data: bytearray) -> None:
    at = rng.randrange(len(data) + 1)
    data[at:at] = rng.choice((b"\0", b"\xff\xfe", rng.choice(_TOKENS).encode(), rng.randbytes(9)))


def _move(rng: random.Random, data: bytearray) -> None:
    at, to = (rng.randrange(len(data) + 1) for _ in range(2))
    piece = data[at : at + 32]
    del data[at : at + 32]
    data[to:to] = piece


def alter_json(rng: random.Random, value: Any) -> str:
    """A JSON text with one to three values replaced, or fields dropped, added, doubled, nested."""
    value = copy.deepcopy(value)
    for _ in range(rng.choice((1, 1, 2, 3))):
        places = list(_places(value))
        if not places:
            break
        inside, key = rng.choice(places)
        how = rng.choice(("replace", "replace", "replace", "drop", "add", "nest", "near"))
        if how == "drop":
            del inside[key]
        elif how == "add" and isinstance(inside, dict):
            inside[rng.choice(("x", "", "manifest_sha256", "sidecar_sha256", "kind"))] = rng.choice(
                HOSTILE
            )
        elif how == "nest":
            inside[key] = [[inside[key]]]
        elif how == "near" and type(inside[key]) in (int, float):
            inside[key] = rng.choice((inside[key] - 1, inside[key] + 1, -inside[key]))
        else:
            inside[key] = copy.deepcopy(rng.choice(HOSTILE))
    text = json.dumps(value)
    if rng.random() < 0.05:
        depth = rng.choice((100, 100_000))
        text = text.replace("0", "[" * depth + "]" * depth, 1)
    if rng.random() < 0.05 and text.startswith("{") and len(text) > 2:
        text = "{" + text[1:-1] + "," + text[1:]
    return text


def _places(value: Any):
    keys = list(value) if isinstance(value, dict) else range(len(value))
    for key in keys if isinstance(value, dict | list) else ():
        yield value, key
        if isinstance(value[key], dict | list):
            yield from _places(value[key])


def alter_text(rng: random.Random, text: str) -> str:
    """A text with one to four letters, numbers or stretches replaced, dropped or doubled."""
    for _ in range(rng.randint(1, 4)):
        at = rng.randrange(len(text) + 1)
        to = min(len(text), at + rng.choice((0, 1, 1, 2, 8)))
        number = rng.choice(("9" * 400, "-1", "1e999", "nan", "inf", "99999999999999999999", "0"))
        new = rng.choice(("", rng.choice(_TOKENS), text[at:to] * 2, number, rng.choice(_TOKENS)))
        text = text[:at] + new + text[to:]
    return text


def alter_table(rng: random.Random, table: pa.Table) -> pa.Table:
    """A table with a column changed, or rows dropped, doubled or out of order."""
    changes: tuple[Callable[[random.Random, pa.Table], pa.Table], ...]
    changes = (_value, _value, _value, _type, _null, _rows, _rows, _columns)
    return rng.choice(changes)(rng, table)


def _set(table: pa.Table, index: int, column: pa.Array | pa.ChunkedArray) -> pa.Table:
    return table.set_column(index, table.column_names[index], column)


def _value(rng: random.Random, table: pa.Table) -> pa.Table:
    index = rng.randrange(table.num_columns)
    values, kind = table.column(index).to_pylist(), table.schema.field(index).type
    rows = range(len(values)) if rng.random() < 0.2 else [rng.randrange(len(values) or 1)]
    for row in rows if values else ():
        values[row] = rng.choice(HOSTILE)
    fitting = []
    for value in values:
        try:
            fitting.append(pa.scalar(value, kind).as_py())
        except (pa.ArrowException, TypeError, ValueError, OverflowError):
            fitting.append(table.column(index)[len(fitting)].as_py())
    return _set(table, index, pa.array(fitting, kind))


def _type(rng: random.Random, table: pa.Table) -> pa.Table:
    index = rng.randrange(table.num_columns)
    kind = rng.choice((pa.int8(), pa.int64(), pa.float64(), pa.string(), pa.bool_(), pa.binary()))
    try:
        return _set(table, index, table.column(index).cast(kind))
    except pa.ArrowException:
        return _set(table, index, pa.nulls(table.num_rows, kind))


def _null(rng: random.Random, table: pa.Table) -> pa.Table:
    index = rng.randrange(table.num_columns)
    values = table.column(index).to_pylist()
    if values:
        values[rng.randrange(len(values))] = None
    return _set(table, index, pa.array(values, table.schema.field(index).type))


def _rows(rng: random.Random, table: pa.Table) -> pa.Table:
    n = table.num_rows
    at = rng.randrange(n + 1)
    order = rng.choice((list(range(n))[::-1], list(range(at)), [*range(n), *range(at, n)], []))
    return table.take(pa.array(np.array(order, np.int64)))


def _columns(rng: random.Random, table: pa.Table) -> pa.Table:
    index = rng.randrange(table.num_columns)
    name = table.column_names[index]
    other = rng.randrange(table.num_columns)
    how = rng.choice(("drop", "double", "rename", "swap"))
    if how == "drop":
        return table.remove_column(index)
    if how == "double":
        return table.append_column(name, table.column(index))
    if how == "rename":
        return table.rename_columns([f"{c}_" if c == name else c for c in table.column_names])
    return _set(table, index, table.column(other))
