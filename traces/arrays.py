"""Small functions of arrays that several files need."""

from __future__ import annotations

import numpy as np


def count_up(lengths: np.ndarray) -> np.ndarray:
    """1..n for each n in lengths, end to end, int32."""
    lengths = lengths[lengths > 0]
    steps = np.ones(int(lengths.sum()), np.int32)
    steps[np.cumsum(lengths[:-1])] = 1 - lengths[:-1]
    return np.cumsum(steps, dtype=np.int32)


def read_only(array: np.ndarray) -> np.ndarray:
    """The same array, which can no longer be written to."""
    array.flags.writeable = False
    return array
