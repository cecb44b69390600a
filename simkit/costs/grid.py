"""Seconds of passes between those that were timed."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, eq=False)
class Mixed:
    """Seconds between those of two grids, a share of the way from the first to the second."""

    first: Grid
    second: Grid
    share: float

    @property
    def longest_context(self) -> int:
        """See `Grid`."""
        return min(self.first.longest_context, self.second.longest_context)

    @property
    def most_tokens(self) -> int:
        """See `Grid`."""
        return min(self.first.most_tokens, self.second.most_tokens)

    def __call__(self, tokens: np.ndarray, context: np.ndarray) -> np.ndarray:
        """Seconds of passes; the arguments broadcast."""
        first_s, second_s = self.first(tokens, context), self.second(tokens, context)
        return first_s * (1 - self.share) + second_s * self.share


@dataclass(frozen=True, eq=False)
class Grid:
    """Seconds over (context, tokens), bilinear; see `simkit.costs.Measured` for what lies beyond.

    Attributes:
        contexts: (C,) ascending, C > 1; the last one stands for the slope beyond the samples.
        tokens: (N,) likewise.
        seconds: (C, N), never falling along contexts, nor along tokens unless it was told to.
    """

    contexts: np.ndarray
    tokens: np.ndarray
    seconds: np.ndarray

    @property
    def longest_context(self) -> int:
        """The longest context of the samples."""
        return int(self.contexts[-2])

    @property
    def most_tokens(self) -> int:
        """The most tokens of a pass among the samples."""
        return int(self.tokens[-2])

    @classmethod
    def fit(cls, samples: np.ndarray, dips: bool = False) -> Grid:
        """The grid of samples (tokens, context, seconds, …), shape (4, n), n > 0.

        Args:
            samples: as said.
            dips: let passes over more tokens be faster where they were.
        """
        tokens, contexts = np.unique(samples[0]), np.unique(samples[1])
        cells = _medians(samples)
        count = np.zeros((len(contexts), len(tokens)))
        count[np.searchsorted(contexts, cells[1]), np.searchsorted(tokens, cells[0])] = cells[3]
        rows = np.array([_curve(cells[:, cells[1] == c], tokens, dips) for c in contexts])
        weights = count.sum(1)
        for j in range(1, len(tokens)):  # a context with fewer tokens goes on as others do
            if (gone := np.isnan(rows[:, j])).any():
                steps = rows[~gone, j] - rows[~gone, j - 1]
                rows[gone, j] = rows[gone, j - 1] + np.average(steps, weights=weights[~gone])
        # all columns with the same weights: so what does not fall along tokens still does not
        rows = np.stack([_isotonic(column, weights) for column in rows.T], 1)
        apart = tokens >= min(tokens[-1] / 2, tokens[-2:][0])
        _, slopes, precision = _lines(tokens[apart], rows[:, apart].T, count[:, apart].T)
        more = np.average(slopes, weights=precision) if len(slopes) else 0.0
        longer = _slopes(contexts, rows, count)
        tokens, contexts = _further(tokens), _further(contexts)
        rows = np.column_stack([rows, rows[:, -1] + more * (tokens[-1] - tokens[-2])])
        longer = np.append(longer, longer[-1]) * (contexts[-1] - contexts[-2])
        return cls(contexts, tokens, np.vstack([rows, rows[-1] + longer]))

    def __call__(self, tokens: np.ndarray, context: np.ndarray) -> np.ndarray:
        """Seconds of passes; the arguments broadcast."""
        column, along = _place(self.tokens, tokens)
        row, across = _place(self.contexts, context)
        if np.ndim(column) == 1 and np.shape(row)[1:] == (1,):  # a table: each token count, (T,)
            rows = self.seconds[:, column] * (1 - along) + self.seconds[:, column + 1] * along
            row = row[:, 0]
            return rows[row] * (1 - across) + rows[row + 1] * across
        width = len(self.tokens)
        cell = row * width + column
        near = self.seconds.take(cell) * (1 - along) + self.seconds.take(cell + 1) * along
        cell = cell + width
        far = self.seconds.take(cell) * (1 - along) + self.seconds.take(cell + 1) * along
        return near * (1 - across) + far * across


def median(values: np.ndarray) -> float:
    """The median of at least one number, (n,), finite; `np.median` takes many times as long."""
    ascending, n = np.sort(values), len(values)
    return float((ascending[(n - 1) // 2] + ascending[n // 2]) / 2)


def _medians(samples: np.ndarray) -> np.ndarray:
    """Tokens, context, median and number of the samples of each cell, (4, M); all cells at once."""
    tokens, context, seconds = samples[:3, np.lexsort((samples[2], samples[0], samples[1]))]
    changes = (tokens[1:] != tokens[:-1]) | (context[1:] != context[:-1])
    new = np.concatenate([[0], np.flatnonzero(changes) + 1])
    count = np.diff(new, append=len(seconds))
    medians = (seconds[new + (count - 1) // 2] + seconds[new + count // 2]) / 2
    return np.array([tokens[new], context[new], medians, count])


def _curve(cells: np.ndarray, at: np.ndarray, dips: bool) -> np.ndarray:
    """Seconds at one context: medians, isotonic over tokens unless they may dip, read off `at`.

    NaN beyond the last.
    """
    tokens, _, medians, count = cells
    return np.interp(at, tokens, medians if dips else _isotonic(medians, count), right=np.nan)


def _slopes(x: np.ndarray, seconds: np.ndarray, count: np.ndarray) -> np.ndarray:
    """Slopes of straight lines through all of x, one for each column, none below that before it.

    Least squares of relative errors under the constraint that slopes never fall from column to
    column: that is the isotonic fit of the slopes which each column has by itself,
    weighted by their precision. A column without two values has that of its neighbours.

    Args:
        x: see `_lines`.
        seconds: likewise.
        count: likewise.
    """
    known, slopes, precision = _lines(x, seconds, count)
    if not len(known):
        return np.zeros(seconds.shape[1])
    return np.interp(np.arange(len(count[0])), known, _isotonic(slopes, precision))


def _lines(
    x: np.ndarray, seconds: np.ndarray, count: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The least-squares line of relative errors through all of x, of each column by itself.

    Args:
        x: (X,) ascending.
        seconds: (X, N), never falling along x.
        count: (X, N), of the samples behind each; 0 counts for nothing.

    Returns:
        The columns that have two values, the slopes of their lines, and how precise these are.
    """
    known = np.flatnonzero((count > 0).sum(0) > 1)
    seconds, weights = seconds[:, known], (count / seconds**2)[:, known]
    shares = weights / weights.sum(0)
    away = x[:, None] - (shares * x[:, None]).sum(0)
    precision = (weights * away**2).sum(0)
    slopes = (weights * away * (seconds - (shares * seconds).sum(0))).sum(0) / precision
    return known, np.maximum(slopes, 0), precision  # seconds do not fall, but for rounding


def _isotonic(values: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """The nearest values that never fall."""
    if not (values[1:] < values[:-1]).any():
        return values
    from scipy.optimize import isotonic_regression

    return isotonic_regression(values, weights=weights).x


def _further(values: np.ndarray, alone: float = 1.0) -> np.ndarray:
    """One more value, as far from the last as that is from the one before, or from one `alone`."""
    return np.append(values, values[-1] + (values[-1] - values[-2] if len(values) > 1 else alone))


def _place(knots: np.ndarray, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The segment of each x, and how far along it x lies: 0 before the first knot, > 1 beyond."""
    k = np.searchsorted(knots[1:-1], x, side="right")
    return k, np.maximum((x - knots[k]) / (knots[k + 1] - knots[k]), 0)
