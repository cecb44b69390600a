"""What every statistic asks of its arrays."""

from __future__ import annotations

import numpy as np

from traces.errors import UserError

_BLOCK = 2**22  # values looked at in a go


class StatsError(UserError):
    """Arrays that a statistic cannot be computed from."""


def check(offsets: np.ndarray, **columns: np.ndarray) -> None:
    """Refuse columns that do not fit the offsets, and values that are not numbers.

    Args:
        offsets: (S + 1,) whole numbers; rows offsets[s] to offsets[s + 1] are those of prompt s.
        columns: (R,) each, by the name to complain about.

    Raises:
        StatsError: naming the column and the first row that is wrong.
    """
    if offsets.ndim != 1 or not len(offsets) or offsets[0] or np.any(np.diff(offsets) < 0):
        raise StatsError("offsets must be one row of whole numbers that ascend from 0")
    for name, values in columns.items():
        if values.shape != (offsets[-1],):
            raise StatsError(f"{name} has shape {values.shape}, the offsets ask ({offsets[-1]},)")
        finite(name, values)


def shares(**columns: np.ndarray) -> None:
    """Refuse values outside of [0, 1].

    Raises:
        StatsError: naming the column.
    """
    for name, values in columns.items():
        if len(values) and (values.min() < 0 or values.max() > 1):
            raise StatsError(f"{name} must be in [0, 1]")


def finite(name: str, values: np.ndarray) -> None:
    """Refuse NaN and infinity.

    Raises:
        StatsError: naming the column and the first such row.
    """
    if not np.issubdtype(values.dtype, np.floating):
        return
    for low in range(0, len(values), _BLOCK):
        wrong = ~np.isfinite(values[low : low + _BLOCK])
        if wrong.any():
            row = low + int(wrong.argmax())
            raise StatsError(f"{name}: row {row} is {values[row]}, not a finite number")
