"""Small functions of arrays that several files need."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

FLOAT_BITS = 24  # significant bits of a float32


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


def rounded(values: np.ndarray, bits: int) -> np.ndarray:
    """Float32 numbers rounded to the nearest of ``bits`` significant bits; NaN stays NaN."""
    drop = FLOAT_BITS - bits
    words = np.ascontiguousarray(values, np.float32).view(np.uint32).astype(np.uint64)
    even = (words >> np.uint64(drop)) & np.uint64(1)  # ties go to the even neighbour
    words += np.uint64((1 << (drop - 1)) - 1) + even
    words &= np.uint64(~((1 << drop) - 1) & (2**64 - 1))
    found = words.astype(np.uint32).view(np.float32)
    return np.where(np.isfinite(values), found, values)


def unrounded(values: np.ndarray, bits: int, rng: np.random.Generator) -> np.ndarray:
    """Numbers that `rounded` may have come from, float64: each drawn evenly from all that do.

    Rounded numbers are multiples of a step, and a histogram of their ratios or differences shows
    the steps. Zero stays zero.
    """
    mantissa, exponent = np.frexp(np.asarray(values, np.float64))
    above = np.ldexp(0.5, exponent - bits)
    below = np.where(np.abs(mantissa) == 0.5, above / 2, above)  # steps halve below a power of two
    below, above = (np.where(mantissa == 0, 0.0, half) for half in (below, above))
    drawn = np.abs(values) - below + rng.random(len(values)) * (below + above)
    return np.copysign(drawn, values)


def dtype_of(kind: pa.DataType) -> np.dtype:
    """NumPy's type for values of an Arrow type; Arrow's own answer asks for pandas before 19."""
    return pa.array([], kind).to_numpy(zero_copy_only=False).dtype
