"""Estimates with bootstrap intervals over prompts.

Tokens of one prompt are alike, so prompts are what is resampled. Nearly every statistic here is a
function of sums over rows; each prompt's sums are taken once, block by block, and a resample is a
weighted sum of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from analysis.stats.checks import StatsError
from simkit.statistics.enough import few
from simkit.statistics.interval import RESAMPLES, ends, resampled, shared_ends, unsigned

CONFIDENCE = 0.95
ALIKE = "prompts do not differ: no interval"
ROWS = 2**19  # rows worked on at a time
NO_SPREAD = 1e-9  # of a logarithm: below, it is rounding


@dataclass(frozen=True)
class Estimate:
    """A statistic and its interval over prompts; never NaN.

    Attributes:
        value: None where it is not defined.
        lo: lower end; None where there is no interval.
        hi: upper end.
        n_prompts: prompts that have rows.
        note: why something is missing or weak; empty if all is well.

    >>> analysis.stats.Estimate(1.25, 1.2, 1.3, n_prompts=128).text(".2f")
    '1.25 [1.20, 1.30]'
    """

    value: float | None
    lo: float | None
    hi: float | None
    n_prompts: int
    note: str = ""

    def text(self, form: str = ".3f", alone: str = "", missing: str = "–") -> str:
        """Value and interval for people.

        Args:
            form: of the numbers.
            alone: what follows a value that has no interval.
            missing: what stands for a value that is not defined.
        """
        if self.value is None:
            return missing
        if self.lo is None or self.hi is None:
            return f"{self.value:{form}}{alone}"
        return f"{self.value:{form}} [{self.lo:{form}}, {self.hi:{form}}]"


Statistic = Callable[[np.ndarray], np.ndarray]


def bootstrap(
    sums: np.ndarray,
    statistic: Statistic,
    confidence: float = CONFIDENCE,
    seed: int = 0,
    bearing: np.ndarray | None = None,
    positive: bool = False,
    studentised: bool = False,
    factors: Sequence[np.ndarray | None] | None = None,
    capped: bool = True,
) -> tuple[Estimate, ...]:
    """Statistics of prompts' sums, each with its interval over prompts.

    The interval is that of `simkit.statistics.interval.ends`, as of replays.

    Args:
        sums: (S, m), of each prompt; prompts without rows, all of them 0, are left out.
        statistic: from (..., m) sums to (..., k) values, NaN where they are not defined.
        confidence: of the intervals, in (0, 1).
        seed: of the resampling.
        bearing: (k,) how many prompts bear on each value; None stands for all of them.
        positive: whether the statistics are, see there.
        studentised: of positive statistics of a few sums to which a few prompts may bring most, as
            a variance of long-tailed runs: see `pivots` there. Scaling all sums changes none.
        factors: of each value, (D,) by what it changes for reasons that prompts share; see there.
        capped: see there; ratios of seconds are not.

    Returns:
        k estimates. There is no interval over a single prompt; nor where some resample leaves the
        statistic undefined; nor where leaving a prompt out changes nothing.

    Raises:
        StatsError: confidence is not in (0, 1).
    """
    if not 0 < confidence < 1:
        raise StatsError(f"confidence must be in (0, 1): {confidence}")
    sums = sums[sums.any(1)]
    n = len(sums)
    with np.errstate(all="ignore"):
        total = sums.sum(0)
        found = statistic(total)
        prompts = np.full(len(found), n) if bearing is None else np.minimum(bearing, n)
        if n < 2:
            return tuple(lone(value, n) for value in found)
        without = statistic(total - sums)
        drawn, pivots = _resamples(sums, statistic, found, seed, studentised)
    shared = [None] * len(found) if factors is None else factors
    each = zip(found, drawn.T, without.T, prompts.tolist(), pivots, shared, strict=True)
    how = confidence, positive or studentised
    return tuple(interval(v, d, w, n, *how, p, f, capped) for v, d, w, n, p, f in each)


def _resamples(
    sums: np.ndarray, statistic: Statistic, found: np.ndarray, seed: int, studentised: bool
) -> tuple[np.ndarray, Sequence[np.ndarray | None]]:
    """Statistics of resamples, (B, k); and of each its pivots, (B,), if they are studentised."""
    if not studentised:
        drawn = [statistic(part) for part in resampled(sums, seed)]
        return np.concatenate(drawn), [None] * len(found)
    drawn, pivots = _drawn_and_pivots(sums, statistic, found, seed)
    return drawn, list(pivots.T)


def _drawn_and_pivots(
    sums: np.ndarray,
    statistic: Statistic,
    found: np.ndarray,
    seed: int,
    resamples: int = RESAMPLES,
) -> tuple[np.ndarray, np.ndarray]:
    """Statistics of resamples, and how far their logarithms lie from those of all prompts.

    The standard error of a resample's logarithm is the jackknife's, to first order (Efron 1982,
    chapter 6): the root of n / (n - 1) times the summed squares of its prompts' influences, each
    how the logarithm changes with the sums, times what the prompt brings to them. The squares come
    from sums of products. Influences sum to 0, since the sums' scale changes nothing.

    Returns:
        (B, k), and (B, k) in standard errors: NaN where a resample shows no spread or no value,
        -inf where its value is 0.
    """
    n, m = sums.shape
    products = (sums[:, :, None] * sums[:, None, :]).reshape(n, m * m)
    drawn, pivots = [], []
    for part in resampled(np.concatenate([sums, products], 1), seed, resamples):
        own, square = part[:, None, :m], part[:, m:].reshape(-1, m, m)
        values, slopes = statistic(part[:, :m]), _log_slopes(statistic, part[:, :m])
        slopes = np.divide(slopes, own, out=np.zeros_like(slopes), where=own != 0)
        variance = n / (n - 1) * np.einsum("bkj,bjl,bkl->bk", slopes, square, slopes)
        error = np.sqrt(np.where(variance > NO_SPREAD**2, variance, np.nan))
        drawn.append(values)
        pivots.append(np.where(values == 0, -np.inf, np.log(values / found) / error))
    return np.concatenate(drawn), np.concatenate(pivots)


def _log_slopes(statistic: Statistic, sums: np.ndarray) -> np.ndarray:
    """Slopes of the k statistics' logarithms in the logarithms of (B, m) sums: (B, k, m)."""
    step = 1e-5
    changed = sums[:, None, :] * (1 + step * np.eye(sums.shape[1]))
    lowered = sums[:, None, :] * (1 - step * np.eye(sums.shape[1]))
    slopes = np.log(statistic(changed) / statistic(lowered)) / (2 * step)
    return slopes.swapaxes(1, 2)


def ratio(
    top: np.ndarray,
    bottom: np.ndarray,
    confidence: float = CONFIDENCE,
    seed: int = 0,
    factors: np.ndarray | None = None,
    capped: bool = True,
) -> Estimate:
    """sum(top) / sum(bottom) over prompts.

    Args:
        top: (S,), of each prompt; of any sign, as savings are, see `unsigned` in
            `simkit.statistics.interval`.
        bottom: (S,), >= 0.
        confidence: see `bootstrap`.
        seed: see `bootstrap`.
        factors: (D,), see `bootstrap`.
        capped: see `bootstrap`.
    """
    both = np.stack([top, bottom], 1).astype(np.float64)
    how = {"positive": unsigned(top), "factors": [factors], "capped": capped}
    return bootstrap(both, _quotient, confidence, seed, **how)[0]


def speed(
    other_s: np.ndarray,
    own_s: np.ndarray,
    confidence: float = CONFIDENCE,
    seed: int = 0,
    factors: np.ndarray | None = None,
) -> Estimate:
    """How many times faster something is than another, from both's seconds, see `ratio`.

    The interval is that of replays to the digit: seconds have no range that would cap it.
    """
    return ratio(other_s, own_s, confidence, seed, factors, capped=False)


def ratio_of_ratios(
    top: np.ndarray, bottom: np.ndarray, other_top: np.ndarray, other_bottom: np.ndarray
) -> Estimate:
    """(sum(top) / sum(bottom)) / (sum(other_top) / sum(other_bottom)), (S,) each, paired, >= 0."""
    sums = np.stack([top, bottom, other_top, other_bottom], 1).astype(np.float64)
    return bootstrap(sums, lambda s: _quotient(s[..., :2]) / _quotient(s[..., 2:]), positive=True)[
        0
    ]


def _quotient(s: np.ndarray) -> np.ndarray:
    return s[..., :1] / s[..., 1:]


def blocks(offsets: np.ndarray, rows: int = ROWS) -> Iterator[tuple[slice, slice]]:
    """Whole prompts in turn, about so many rows at a time.

    Yields:
        the prompts, and their rows.
    """
    low, n = 0, len(offsets) - 1
    while low < n:
        high = int(np.searchsorted(offsets, offsets[low] + rows, side="right")) - 1
        high = min(n, max(low + 1, high))
        yield slice(low, high), slice(int(offsets[low]), int(offsets[high]))
        low = high


def by_prompt(
    offsets: np.ndarray,
    columns: Callable[[slice], Sequence[np.ndarray] | np.ndarray],
    rows_at_once: int = ROWS,
) -> np.ndarray:
    """Sums of columns over each prompt's rows, (S, m) float64.

    Args:
        offsets: (S + 1,), where prompts' rows start and end.
        columns: the m columns of a block of rows; only one block is held at a time.
        rows_at_once: about how long a block is.
    """
    parts = []
    for prompts, rows in blocks(offsets, rows_at_once):
        starts = offsets[prompts] - rows.start
        some = offsets[prompts.start + 1 : prompts.stop + 1] - rows.start > starts
        found = columns(rows)
        part = np.zeros((len(starts), len(found)))
        if some.any():
            for i, column in enumerate(found):
                part[some, i] = np.add.reduceat(column, starts[some], dtype=np.float64)
        parts.append(part)
    return np.concatenate(parts) if parts else np.zeros((0, len(columns(slice(0, 0)))))


def in_bins(
    offsets: np.ndarray,
    n_bins: int,
    columns: Callable[[slice], tuple[np.ndarray, Sequence[np.ndarray]]],
) -> np.ndarray:
    """Sums of columns over each prompt's rows of each bin, (m + 1, S, n_bins) float64.

    Args:
        offsets: (S + 1,), where prompts' rows start and end.
        n_bins: B.
        columns: of a block of rows, the bin of each in 0 … B - 1, and the m columns. The first of
            the sums counts rows.
    """
    parts = []
    for prompts, rows in blocks(offsets):
        size = np.diff(offsets[prompts.start : prompts.stop + 1])
        which, found = columns(rows)
        cell = np.repeat(np.arange(len(size)) * n_bins, size) + which
        sums = [np.bincount(cell, column, len(size) * n_bins) for column in (None, *found)]
        parts.append(np.stack(sums).reshape(len(sums), len(size), n_bins))
    empty = np.zeros((1 + len(columns(slice(0, 0))[1]), 0, n_bins))
    return np.concatenate([*parts, empty], 1)


def of_prompts(offsets: np.ndarray, wanted: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Pick prompts, as those of a task.

    Args:
        offsets: (S + 1,).
        wanted: (S,) bool.

    Returns:
        which rows are theirs, (R,) bool, and the offsets among these.
    """
    lengths = np.diff(offsets)
    kept = np.concatenate([[0], np.cumsum(lengths[wanted])]).astype(np.int64)
    return np.repeat(wanted, lengths), kept


def interval(
    value: float,
    drawn: np.ndarray,
    without: np.ndarray,
    n: int,
    confidence: float,
    positive: bool = False,
    pivots: np.ndarray | None = None,
    factors: np.ndarray | None = None,
    capped: bool = True,
    freedom: int | None = None,
) -> Estimate:
    """One value with its interval, or why it has none; see `bootstrap`.

    Args:
        value: on all prompts; NaN where it is not defined.
        drawn: (B,), on each resample.
        without: (n,), without each prompt in turn.
        n: prompts that bear on it.
        confidence: of the interval.
        positive: see `bootstrap`.
        pivots: see `simkit.statistics.interval.ends`.
        factors: (D,), see `bootstrap`.
        capped: see `bootstrap`.
        freedom: degrees of freedom of its spread; None means n - 1.
    """
    if not np.isfinite(value):
        return Estimate(None, None, None, n, "not defined on these rows")
    value = float(value)
    if n < 2:
        return lone(value, n)
    if not np.isfinite(drawn).all() or not np.isfinite(without).all():
        return Estimate(value, None, None, n, "too few prompts bear on it: no interval")
    scale = max(abs(value), float(np.abs(without).max()))
    if np.ptp(without) <= 1e-12 * scale or np.ptp(drawn) <= 1e-9 * scale:
        if factors is None:
            return Estimate(value, None, None, n, ALIKE)
        return Estimate(value, *shared_ends(value, factors, confidence), n, few(n))
    bearing = n if freedom is None else freedom + 1
    lo, hi = ends(
        value, drawn, without, confidence, bearing, positive, capped, pivots=pivots, factors=factors
    )
    return Estimate(value, lo, hi, n, few(n))


def lone(value: float, n: int) -> Estimate:
    """A value without an interval, over one prompt or none."""
    if n == 0:
        return Estimate(None, None, None, 0, "no rows")
    known = float(value) if np.isfinite(value) else None
    return Estimate(known, None, None, n, few(n))
