"""The uniforms of `traces.record.draws` on the host, compiled: the same numbers, bit by bit."""

from __future__ import annotations

import numpy as np

from traces.kernels import compiled, compiled_part

_MIX_1, _MIX_2 = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)


@compiled
def fill(key: np.ndarray, words: np.ndarray, out: np.ndarray) -> None:
    """Write one uniform for each key and id.

    Args:
        key: (N,) uint64.
        words: (V,) uint64, the ids mixed with the stream.
        out: (N, V) float64.
    """
    for n in range(len(key)):
        for k in range(len(words)):
            x = _mix(key[n] ^ words[k]) >> np.uint64(11)
            out[n, k] = (np.float64(x) + 0.5) * 2.0**-53


@compiled_part
def _mix(x: np.uint64) -> np.uint64:
    x = (x ^ (x >> np.uint64(30))) * _MIX_1
    x = (x ^ (x >> np.uint64(27))) * _MIX_2
    return x ^ (x >> np.uint64(31))
