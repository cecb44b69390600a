"""From a score to a probability of acceptance: isotonic fits over folds of prompts."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from traces.same_prompts import to_deal

if TYPE_CHECKING:
    from simkit.drafters.layout import Layout

STARTS = 2**18  # draft starts, evenly spread, that a fit looks at; of a larger trace not all
SAMPLE = 2**14  # scores that the bins are laid out by
BINS = 256  # of a score, each about as likely as the others; a power of two


class AcceptanceFit(NamedTuple):
    """Acceptance probabilities; those of a fold are fitted to the prompts outside of it.

    Attributes:
        fold: (S,) int64, of each sequence.
        edges: (B - 1,) float64, ascending, infinite where there are fewer bins. A score
            is in bin `searchsorted(edges, score)`.
        first: (F,) P(the first token of a draft is accepted).
        accept: (F, B) P(a token is accepted | all before it in the draft were, its score).
        following: (F, B) P(the token after it is accepted | it and all before it were, its score).
    """

    fold: np.ndarray
    edges: np.ndarray
    first: np.ndarray
    accept: np.ndarray
    following: np.ndarray


def fit_acceptance(layout: Layout, column: str, folds: int, seed: int) -> AcceptanceFit:
    """Fit a score to what was accepted.

    A fit is the isotonic regression of the accept flag on the score, in the direction in which
    they go together. It is made on the score's bins, which hold about equally many rows, so it is
    that on the rows but for ties within 1/256 of them. Where there is nothing to fit it is 1/2.

    Args:
        layout: of the trace.
        column: a column of the trace, or a head's scores by row or by (start, depth).
        folds: into which the prompts are dealt; no more than there are prompts.
        seed: of the dealing.
    """
    fold, folds = dealt_once(layout.trace.prompt_numbers, folds, seed)
    rows = _rows(layout)
    group = np.repeat(fold, layout.n_output)[rows]
    left = layout.left[rows, None]
    ahead = layout.ahead[rows, None]
    read = layout.columns((column,))
    values = read.starts[0][rows] if read.starts else read.path[0][rows, None]

    before = np.arange(values.shape[1])  # tokens of the draft before this one
    seen = (before <= ahead) & (before < left) & ~np.isnan(values)
    edges = edges_of(values[seen])
    bins = np.searchsorted(edges, values[seen])
    bins += BINS * np.broadcast_to(group[:, None], seen.shape)[seen]

    def fit(which: np.ndarray, hit: np.ndarray) -> np.ndarray:
        cells, chosen = bins[which[seen]], hit[which & seen]
        count = np.bincount(cells, minlength=folds * BINS).reshape(folds, BINS)
        hits = np.bincount(cells, chosen, folds * BINS).reshape(folds, BINS)
        return np.array([isotonic(*pair) for pair in zip(*others(count, hits), strict=True)])

    count = np.bincount(group, minlength=folds)
    hits = np.bincount(group, ahead[:, 0] > 0, folds)
    return AcceptanceFit(
        fold,
        edges.astype(np.float64),
        _ratio(*others(count, hits)),
        fit(seen, before < ahead),
        fit((before < ahead) & (before + 1 < left), before + 1 < ahead),
    )


def dealt_once(prompt: np.ndarray, folds: int, seed: int) -> tuple[np.ndarray, int]:
    """The fold of each sequence, (S,) int64, and how many folds there are.

    Prompts are dealt at random, copies of one into one fold.

    Args:
        prompt: (S,) `Trace.prompt_numbers`.
        folds: how many, or as many as there are prompts, but at least two.
        seed: of the dealing.
    """
    number = to_deal(prompt)
    n = int(number.max(initial=-1)) + 1
    folds = min(folds, max(2, n))
    return np.random.default_rng(seed).permutation(n)[number] % folds, folds


def accepted_of(layout: Layout, fold: np.ndarray, longest: int) -> np.ndarray:
    """Mean tokens accepted of drafts of 1, 2, … `longest` tokens, outside each fold.

    Args:
        layout: of the trace.
        fold: (S,) of each sequence.
        longest: draft.

    Returns:
        (F, longest) float64.
    """
    rows = _rows(layout)
    group, n = np.repeat(fold, layout.n_output)[rows], int(fold.max(initial=0)) + 1
    count = np.bincount(group, minlength=n)
    found = np.empty((n, longest))
    for k in range(longest):
        hits = np.bincount(group, np.minimum(layout.ahead[rows], k + 1), n)
        found[:, k] = _ratio(*others(count, hits))
    return found


def _rows(layout: Layout) -> np.ndarray:
    return np.arange(0, len(layout.ahead), max(1, len(layout.ahead) // STARTS))


def edges_of(score: np.ndarray) -> np.ndarray:
    """Bounds of bins that hold about equally many scores, (BINS - 1,).

    Each lies in the middle of the widest gap near its place: a live run's scores differ from the
    recorded ones in the last bits, and must not fall into another bin for that.
    """
    edges = np.full(BINS - 1, np.inf)
    some = np.sort(score[:: max(1, len(score) // SAMPLE)]).astype(np.float64)
    n, near = len(some), len(some) // (4 * BINS) + 1
    distinct = np.unique(some)
    if len(distinct) <= BINS:
        inner = set((distinct[1:] + distinct[:-1]) / 2)
    else:
        places = (slice(max(0, k * n // BINS - near), k * n // BINS + near) for k in range(1, BINS))
        inner = {_widest(some[place]) for place in places} - {np.inf}
    edges[: len(inner)] = sorted(inner)
    return edges


def _widest(ascending: np.ndarray) -> float:
    """The middle of the widest gap; infinite if there is none."""
    gaps = np.diff(ascending)
    k = int(gaps.argmax()) if gaps.any() else -1
    return float(ascending[k] + ascending[k + 1]) / 2 if k >= 0 else np.inf


def others(count: np.ndarray, hits: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The sums over the folds other than each one."""
    return count.sum(0) - count, hits.sum(0) - hits


def _ratio(count: np.ndarray, hits: np.ndarray) -> np.ndarray:
    return np.divide(hits, count, out=np.full(count.shape, 0.5), where=count > 0)


def isotonic(count: np.ndarray, hits: np.ndarray) -> np.ndarray:
    """The fit at each bin; that of an empty bin is that of the bin below, or of the lowest."""
    from scipy.optimize import isotonic_regression

    filled = np.flatnonzero(count)
    if len(filled) == 0:
        return np.full(len(count), 0.5)
    weight, rate = count[filled], hits[filled] / count[filled]
    rank = filled - np.average(filled, weights=weight)
    rising = bool(weight @ (rank * rate) >= 0)
    fit = isotonic_regression(rate, weights=weight, increasing=rising).x
    below = np.searchsorted(filled, np.arange(len(count)), side="right") - 1
    return fit[np.maximum(below, 0)]
