"""Which experts passes of the target read, of a trace that was recorded with `--experts`."""

from __future__ import annotations

import numpy as np

from traces.errors import TraceError
from traces.trace import Trace

_AT_ONCE = 2**26  # bytes of rows that are looked at


class ExpertRows:
    """The experts of each token that a pass may hold; a pair is one expert of one layer.

    The inputs of a pass that starts at position i are the token before it and the draft's. Their
    rows follow one another: those of i, i + 1, … up to the first rejected token, then those of its
    branch.

    Args:
        trace: of rows on a path.

    Attributes:
        row: (R,) which row is that of the last token before each position.
        alone: (R,) pairs that this token reads alone, as in autoregressive decoding.
        prompts: (S,) pairs that a prompt's tokens read together.

    Raises:
        TraceError: the trace does not say; the message names whose drafts they are.
    """

    def __init__(self, trace: Trace) -> None:
        manifest = trace.manifest
        if manifest.experts is None and manifest.attached_to is not None:
            raise TraceError(
                f"{manifest.spec}: which experts its drafts read was not recorded: a trace has"
                " those of the draft model that it was recorded with alone (record --experts)"
            )
        if manifest.experts is None:
            raise TraceError(
                "which experts the target reads was not recorded: record the trace with --experts"
            )
        depth, position = (trace.column("experts", name) for name in ("depth", "position"))
        self._bits = trace.column("experts", "experts")
        on_path = np.flatnonzero(depth == 0)
        places = np.repeat(trace.sequences["n_output"].to_numpy(), _runs(position[on_path]))
        inside = (position[on_path] >= 1) & (position[on_path] <= places)
        self.row = on_path[inside]
        self.alone = self._counts(self.row)
        self.prompts = self._counts(on_path[position[on_path] == 0])

    def union(self, start: np.ndarray, tokens: np.ndarray) -> np.ndarray:
        """Pairs that passes read.

        Args:
            start: (N,) row on the path of each pass's first position.
            tokens: (N,) in each, >= 1.

        Returns:
            (N,) int64.
        """
        begin, ends = self.row[start], np.cumsum(tokens, dtype=np.int64)
        found = np.empty(len(start), np.int64)
        most = max(1, _AT_ONCE // max(1, self._bits.shape[1]))
        cuts = np.searchsorted(ends, np.arange(0, (ends[-1] if len(ends) else 0) + most, most))
        for low, high in zip(cuts[:-1], cuts[1:], strict=True):
            if low == high:
                continue
            size = tokens[low:high].astype(np.int64)
            offsets = np.cumsum(size) - size
            rows = np.repeat(begin[low:high] - offsets, size) + np.arange(size.sum())
            read = np.bitwise_or.reduceat(self._bits[rows], offsets, axis=0)
            found[low:high] = np.bitwise_count(read).sum(1, dtype=np.int64)
        return found

    def _counts(self, rows: np.ndarray) -> np.ndarray:
        parts = np.array_split(rows, max(1, rows.size * self._bits.shape[1] // _AT_ONCE))
        return np.concatenate(
            [np.bitwise_count(self._bits[part]).sum(1, dtype=np.int64) for part in parts]
        )


def _runs(position: np.ndarray) -> np.ndarray:
    """How many rows on the path each sequence has, of which the first has position 0."""
    return np.diff(np.flatnonzero(position == 0), append=len(position))
