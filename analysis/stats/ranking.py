"""Does a score put accepted tokens above rejected ones?"""

from __future__ import annotations

import numpy as np

from analysis.stats.checks import check
from analysis.stats.clusters import CONFIDENCE, Estimate, bootstrap, in_bins
from analysis.stats.correlation import ends_of_bins

BINS = 512


def auc(
    score: np.ndarray,
    accepted: np.ndarray,
    offsets: np.ndarray,
    confidence: float = CONFIDENCE,
    seed: int = 0,
) -> Estimate:
    """The chance that an accepted token scores above a rejected one, ties counted half.

    The area under the ROC curve: 1/2 tells nothing, below 1/2 the score points the wrong way. More
    than 512 different scores are cut into as many bins of about equal counts, which moves the area
    by less than 1e-3.

    Args:
        score: (R,), as a head's prediction, a probability, or minus an entropy.
        accepted: (R,) bool.
        offsets: (S + 1,), where prompts start.
        confidence: of the interval over prompts.
        seed: of the bootstrap.

    Returns:
        The area; not defined where all tokens went one way.

    Raises:
        StatsError: NaN or lengths that differ.
    """
    check(offsets, score=score, accepted=accepted)
    edges = ends_of_bins(score, BINS)

    def columns(rows: slice) -> tuple[np.ndarray, list[np.ndarray]]:
        return np.searchsorted(edges, score[rows]), [accepted[rows]]

    rows, good = in_bins(offsets, len(edges), columns)

    def area(s: np.ndarray) -> np.ndarray:
        bad, good = s[..., : len(edges)], s[..., len(edges) :]
        below = np.cumsum(bad, -1) - bad / 2
        return ((good * below).sum(-1) / (good.sum(-1) * bad.sum(-1)))[..., None]

    return bootstrap(np.concatenate([rows - good, good], 1), area, confidence, seed)[0]
