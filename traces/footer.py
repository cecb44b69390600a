"""The end of a Parquet file, read without pyarrow's objects of column chunks.

`RowGroupMetaData.column` ends the process (`terminate called …`) where a damaged chunk has size
statistics that do not fit its column, since pyarrow catches nothing there.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa

_ROW_GROUPS, _COLUMNS, _META_DATA, _NUM_VALUES = 4, 1, 3, 5  # fields of parquet.thrift
_END_BYTES = 8  # the footer's length and PAR1
_TRUE, _FALSE, _BYTE, _DOUBLE, _BINARY, _LIST, _STRUCT = 1, 2, 3, 7, 8, 9, 12
_SIZES = {_TRUE: 1, _FALSE: 1, _BYTE: 1, _DOUBLE: 8}  # in lists; else a field's kind is its truth


def n_values(source: Path | pa.BufferReader) -> int:
    """The number of values of all columns, as the file has it.

    Args:
        source: the file, or its bytes; pyarrow has opened it.

    Raises:
        ValueError: it does not say how many they are.
    """
    stream = pa.OSFile(str(source)) if isinstance(source, Path) else source
    end = stream.size() - _END_BYTES
    size = int.from_bytes(stream.read_at(4, end), "little")
    try:
        groups = _Compact(stream.read_at(size, end - size)).struct()[_ROW_GROUPS]
        chunks = [chunk[_META_DATA] for group in groups for chunk in group[_COLUMNS]]
        return sum(max(0, chunk[_NUM_VALUES]) for chunk in chunks)
    except (LookupError, TypeError, RecursionError):
        raise ValueError("its footer does not have the number of values") from None


class _Compact:
    """Thrift's compact protocol, as far as footers have it.

    Args:
        data: that begins with a struct.
    """

    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0

    def struct(self) -> dict[int, Any]:
        """The fields of a struct by their numbers: whole numbers, lists and structs."""
        found, field = {}, 0
        while head := self._byte():
            field = field + (head >> 4) if head >> 4 else self._signed()
            if head & 15 not in (_TRUE, _FALSE):
                found[field] = self._value(head & 15)
        return found

    def _value(self, kind: int) -> Any:
        if kind == _STRUCT:
            return self.struct()
        if kind == _LIST:
            head = self._byte()
            size = head >> 4 if head >> 4 < 15 else self._unsigned()
            return [self._value(head & 15) for _ in range(size)]
        if kind == _BINARY or kind in _SIZES:
            size = self._unsigned() if kind == _BINARY else _SIZES[kind]
            self._at += size
            return None
        return self._signed()

    def _byte(self) -> int:
        self._at += 1
        return self._data[self._at - 1]

    def _signed(self) -> int:
        value = self._unsigned()
        return value >> 1 ^ -(value & 1)

    def _unsigned(self) -> int:
        value, shift = 0, 0
        while (byte := self._byte()) & 128:
            value, shift = value | (byte & 127) << shift, shift + 7
            if shift > 63:
                raise ValueError("its footer has a number of over 64 bits")
        return value | byte << shift
