"""The draws of `traces.record.draws` on the host, compiled: the same numbers, bit by bit."""

from __future__ import annotations

import numpy as np

from traces.kernels import compiled, compiled_part

_ALMOST = 1.0 + 2.0**-40  # no rounding of the bound may decide
_BLOCK = 256  # columns
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


@compiled
def win(key: np.ndarray, words: np.ndarray, weights: np.ndarray, out: np.ndarray) -> None:
    """Write the winner of each race: the first column with the largest w / -log(u).

    As 1 - u <= -log(u), most columns are seen to lose before their logarithm is taken, and most
    blocks of them at once.

    Args:
        key: (N,) uint64.
        words: (V,) uint64, the ids mixed with the stream.
        weights: (N, V) float, >= 0.
        out: (N,) int64; 0 where no weight is above 0.
    """
    u = np.empty(_BLOCK)
    for n in range(len(key)):
        best, out[n] = 0.0, 0
        for first in range(0, len(words), _BLOCK):
            some, w = words[first : first + _BLOCK], weights[n, first : first + _BLOCK]
            may_win = 0
            for j in range(len(some)):
                u[j] = (np.float64(_mix(key[n] ^ some[j]) >> np.uint64(11)) + 0.5) * 2.0**-53
                may_win += np.float64(w[j]) * _ALMOST > best * (1.0 - u[j])
            if not may_win:
                continue
            for j in range(len(some)):
                if np.float64(w[j]) * _ALMOST > best * (1.0 - u[j]):
                    e = -np.log(u[j])
                    score = np.float64(w[j]) / e if e > 0.0 else np.inf
                    if score > best:
                        best, out[n] = score, first + j


@compiled_part
def _mix(x: np.uint64) -> np.uint64:
    x = (x ^ (x >> np.uint64(30))) * _MIX_1
    x = (x ^ (x >> np.uint64(27))) * _MIX_2
    return x ^ (x >> np.uint64(31))
