"""Seconds of passes between those that were timed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

Seconds = Callable[[np.ndarray, np.ndarray], np.ndarray]
"""Seconds of passes over so many tokens behind so much context; the two broadcast."""


@dataclass(frozen=True, eq=False)
class Mixed:
    """Seconds between those of two functions, a share of the way from the first to the second."""

    first: Seconds
    second: Seconds
    share: float

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
        seconds: (C, N), never falling along tokens.
    """

    contexts: np.ndarray
    tokens: np.ndarray
    seconds: np.ndarray

    @classmethod
    def fit(cls, samples: np.ndarray) -> Grid:
        """The grid of samples (tokens, context, seconds, …), shape (4, n), n > 0."""
        tokens, contexts = _further(np.unique(samples[0])), np.unique(samples[1])
        cells = _medians(samples)
        curves = np.array([_curve(cells[:, cells[1] == c], tokens) for c in contexts])
        rise = np.maximum.accumulate(np.maximum(np.diff(curves[-2:], axis=0).sum(0), 0))
        return cls(_further(contexts), tokens, np.vstack([curves, curves[-1] + rise]))

    def __call__(self, tokens: np.ndarray, context: np.ndarray) -> np.ndarray:
        """Seconds of passes; the arguments broadcast."""
        column, along = _place(self.tokens, tokens)
        row, across = _place(self.contexts, context)
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


def _curve(cells: np.ndarray, at: np.ndarray) -> np.ndarray:
    """Seconds at one context: medians, isotonic over tokens, read off `at`."""
    tokens, _, fit, count = cells
    if (fit[1:] < fit[:-1]).any():
        from scipy.optimize import isotonic_regression

        fit = isotonic_regression(fit, weights=count).x
    fit = _further(fit, 0.0)
    k, t = _place(_further(tokens), at)
    return fit[k] + t * (fit[k + 1] - fit[k])


def _further(values: np.ndarray, alone: float = 1.0) -> np.ndarray:
    """One more value, as far from the last as that is from the one before, or from one `alone`."""
    return np.append(values, values[-1] + (values[-1] - values[-2] if len(values) > 1 else alone))


def _place(knots: np.ndarray, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The segment of each x, and how far along it x lies: 0 before the first knot, > 1 beyond."""
    k = np.searchsorted(knots[1:-1], x, side="right")
    return k, np.maximum((x - knots[k]) / (knots[k + 1] - knots[k]), 0)
