"""Rank correlation with intervals over prompts, at any number of rows.

Both columns are cut into bins of about equal counts (exactly their values if these are fewer), and
ρ or τ is read off the table of the two: within 1e-4 (ρ, 256 bins) and 1e-3 (τ, 1024) of that of the
rows. To first order, resampling prompts moves a rank correlation by the mean of its influence over
the rows drawn; that also is a table, of what one more row in a cell adds.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np

from analysis.stats.checks import check
from analysis.stats.clusters import (
    CONFIDENCE,
    ROWS,
    Estimate,
    Statistic,
    blocks,
    bootstrap,
    by_prompt,
)

BINS = {"spearman": 256, "kendall": 1024}


class Association(NamedTuple):
    """A coefficient of a table of two ordered columns, and its influence.

    Attributes:
        value: the coefficient; NaN if a column is constant.
        influence: of one row in each cell, shape of the table; its mean over rows is 0.
    """

    value: float
    influence: np.ndarray


def correlation(
    x: np.ndarray,
    y: np.ndarray,
    offsets: np.ndarray,
    kind: Literal["spearman", "kendall"] = "spearman",
    confidence: float = CONFIDENCE,
    seed: int = 0,
) -> Estimate:
    """Spearman's ρ (of mid-ranks) or Kendall's τ-b between two columns.

    As of entropy with overlap (SVIP Fig. 2, left), with acceptance, or with the accepted length of
    a draft that starts there (SVIP Figs. 2, right, and 8).

    Args:
        x: (R,), as the draft's entropy.
        y: (R,).
        offsets: (S + 1,), where prompts start.
        kind: which coefficient.
        confidence: of the interval over prompts.
        seed: of the bootstrap.

    Raises:
        StatsError: NaN or lengths that differ.
    """
    check(offsets, x=x, y=y)
    lines, columns = _codes(x, BINS[kind]), _codes(y, BINS[kind])
    shape = int(lines.max(initial=0)) + 1, int(columns.max(initial=0)) + 1

    def cells(rows: slice) -> np.ndarray:
        return lines[rows].astype(np.int64) * shape[1] + columns[rows]

    table = np.zeros(shape)
    for _, rows in blocks(offsets):
        table += np.bincount(cells(rows), minlength=table.size).reshape(shape)
    found = (spearman if kind == "spearman" else kendall)(table)
    flat = found.influence.ravel()
    sums = by_prompt(offsets, lambda rows: (flat[cells(rows)], np.ones(rows.stop - rows.start)))
    return bootstrap(sums, _shifted(found.value), confidence, seed)[0]


def spearman(table: np.ndarray) -> Association:
    """Spearman's ρ of a table of counts: Pearson's correlation of mid-ranks."""
    p, r, c = _shares(table)
    u, v = np.cumsum(r) - r / 2 - 0.5, np.cumsum(c) - c / 2 - 0.5  # mid-ranks about their mean
    product, both = float(u @ p @ v), (float(r @ u**2), float(c @ v**2))
    of_product = np.outer(u, v) + _moved(p @ v)[:, None] + _moved(u @ p)[None, :] - 3 * product
    of_u = u**2 + 2 * _moved(r * u) - 3 * both[0]
    of_v = v**2 + 2 * _moved(c * v) - 3 * both[1]
    return _normed(product, of_product, both, (of_u, of_v))


def kendall(table: np.ndarray) -> Association:
    """Kendall's τ-b of a table of counts."""
    p, r, c = _shares(table)
    signs = [np.sign(np.subtract.outer(np.arange(n), np.arange(n))) for n in p.shape]
    concord = signs[0] @ p @ signs[1].T  # of one more row with all others
    product, both = float((p * concord).sum()), (1 - float(r @ r), 1 - float(c @ c))
    of_r, of_c = 2 * (r @ r - r), 2 * (c @ c - c)
    return _normed(product, 2 * (concord - product), both, (of_r, of_c))


def _normed(
    product: float,
    of_product: np.ndarray,
    both: tuple[float, float],
    of_both: tuple[np.ndarray, np.ndarray],
) -> Association:
    """A product over the root of two variances, and its influence by the chain rule."""
    if min(both) < 1e-12:  # one value, but for rounding
        return Association(np.nan, np.zeros_like(of_product))
    root = np.sqrt(both[0] * both[1])
    value = product / root
    sides = of_both[0][:, None] / both[0] + of_both[1][None, :] / both[1]
    return Association(value, of_product / root - value / 2 * sides)


def _moved(weights: np.ndarray) -> np.ndarray:
    """What a row more in a bin adds to the mid-ranks of the bins above it, and half in its own."""
    return np.cumsum(weights[::-1])[::-1] - weights / 2


def _shares(table: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    p = table / max(1, table.sum())
    return p, p.sum(1), p.sum(0)


def _shifted(value: float) -> Statistic:
    """The coefficient moved by a mean influence, on Fisher's scale so that it stays inside ±1."""
    if not abs(value) < 1 - 1e-12:
        return lambda s: np.full(s[..., :1].shape, value)
    return lambda s: np.tanh(np.arctanh(value) + s[..., :1] / s[..., 1:] / (1 - value**2))


def ends_of_bins(values: np.ndarray, bins: int) -> np.ndarray:
    """The highest value of each of so many bins of about equal counts, or all that there are.

    Args:
        values: (R,) numbers.
        bins: at most.
    """
    ordered = np.sort(values)
    fresh = np.ones(len(ordered), bool)
    np.not_equal(ordered[1:], ordered[:-1], out=fresh[1:])
    if np.count_nonzero(fresh) <= bins:
        return ordered[fresh]
    return np.unique(ordered[np.arange(1, bins + 1) * len(ordered) // bins - 1])


def _codes(values: np.ndarray, bins: int) -> np.ndarray:
    """The bin of each value, (R,) uint16."""
    edges = ends_of_bins(values, bins)
    out = np.empty(len(values), np.uint16)
    for low in range(0, len(values), ROWS):
        part = slice(low, low + ROWS)
        out[part] = np.searchsorted(edges, values[part])
    return out
