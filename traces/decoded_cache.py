"""Columns that a look at a trace has decoded, so that nothing is decoded twice."""

from __future__ import annotations

from threading import Lock

import numpy as np

MOST_BYTES = 2**27  # of columns that wait to be asked for


class Kept:
    """Columns, shard by shard, until they are asked for; as far as there is room for them.

    Args:
        n_shards: of the trace.
    """

    def __init__(self, n_shards: int) -> None:
        self._n_shards = n_shards
        self._parts: dict[tuple[str, str], dict[int, np.ndarray]] = {}
        self._left_bytes = MOST_BYTES
        self._lock = Lock()

    def keep(self, table: str, shard: int, column: str, values: np.ndarray) -> None:
        """Keep a shard's part of a column, if there is room."""
        with self._lock:
            parts = self._parts.setdefault((table, column), {})
            if shard not in parts and values.nbytes <= self._left_bytes:
                parts[shard] = values
                self._left_bytes -= values.nbytes

    def find(self, table: str, shard: int, column: str) -> np.ndarray | None:
        """A shard's part of a column; None if it is not kept."""
        return self._parts.get((table, column), {}).get(shard)

    def take(self, table: str, column: str) -> np.ndarray | None:
        """All of a column, which is no longer kept then; None if it is not."""
        with self._lock:
            parts = self._parts.pop((table, column), {})
            self._left_bytes += sum(part.nbytes for part in parts.values())
        if not parts or len(parts) < self._n_shards:
            return None
        return np.concatenate([parts[shard] for shard in sorted(parts)])
