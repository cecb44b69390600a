"""What a look at a trace has read: it is handed on, so that nothing is decoded twice."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from traces.manifest import Manifest

MOST_BYTES = 2**27  # of columns that wait to be asked for


class Looked:
    """Columns that a look has decoded, until they are asked for, and files whose hash it took.

    Of a trace with more columns than fit, those that stand first in each table are kept: keys,
    tokens and what was accepted, which every layout reads.

    Attributes:
        hashed: names of files.
        sequences: the table, where it was read.

    Args:
        manifest: of the trace.
    """

    def __init__(self, manifest: Manifest) -> None:
        self.hashed: set[str] = set()
        self.sequences: pa.Table | None = None
        self._n_shards = manifest.n_shards
        self._kept: dict[tuple[str, str], dict[int, np.ndarray]] = {}
        tables, left_bytes = manifest.tables.items(), MOST_BYTES
        columns = [(k, name, field) for name, table in tables for k, field in enumerate(table)]
        for _, table, field in sorted(columns, key=lambda column: column[0]):
            left_bytes -= manifest.rows(table) * np.dtype(field.type.to_pandas_dtype()).itemsize
            if left_bytes < 0:
                break
            self._kept[table, field.name] = {}

    def keep(self, table: str, shard: int, columns: Mapping[str, np.ndarray]) -> None:
        """Keep a shard's columns, as far as there is room for them."""
        for name, column in columns.items():
            if (table, name) in self._kept:
                self._kept[table, name][shard] = column

    def take(self, table: str, column: str) -> np.ndarray | None:
        """All of a column, which is no longer kept then; None if it is not."""
        parts = self._kept.pop((table, column), {})
        if not parts or len(parts) < self._n_shards:
            return None
        return np.concatenate([parts[shard] for shard in range(self._n_shards)])
