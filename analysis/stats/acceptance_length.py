"""Expected acceptance length, and PARD-2's weights that stand in for it.

Of a draft of K tokens with acceptance probabilities a_1 … a_K, Σ_k Π_{j≤k} a_j are expected to be
accepted (PARD-2 Eq. 3; its k counts from 0, our depth j from 1). PARD-2 weighs the k-th token by
the probability that it is reached, and takes the target's confidence in the output for a_j (Eqs. 9
and 10).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from analysis.stats.checks import StatsError, check, shares
from analysis.stats.clusters import CONFIDENCE, Estimate, bootstrap, by_prompt

_CELLS = 2**21  # of windows held at a time


def expected_length(accept_prob: np.ndarray) -> np.ndarray:
    """Σ_k Π_{j≤k} a_j, tokens; PARD-2 Eq. 3. The bonus token is not counted.

    Args:
        accept_prob: (..., K), a_j along the last axis; 0 behind a draft's end.
    """
    return np.cumprod(accept_prob, -1, dtype=np.float64).sum(-1)


def cat_weights(confidence: np.ndarray) -> np.ndarray:
    """ŝ_k = Π_{j<k} ĉ_j, and 1 for the first token: PARD-2's CAT weights, Eqs. 7 and 10.

    Args:
        confidence: (..., K), ĉ_j = p(y_j), the target's probability of the output's own token.

    Returns:
        (..., K) float64, that of a token is the chance that it is reached.
    """
    reached = np.ones(confidence.shape)
    np.cumprod(confidence[..., :-1], -1, out=reached[..., 1:])
    return reached


def windows(values: np.ndarray, starts: np.ndarray, k: int) -> np.ndarray:
    """The values of the k rows from each start on, (N, k) float64."""
    return values[starts[:, None] + np.arange(k)].astype(np.float64)


@dataclass(frozen=True)
class Prediction:
    """How well a confidence predicts the accepted length of drafts of K tokens.

    Attributes:
        predicted: mean Σ_k Π_{j≤k} ĉ_j, tokens.
        accepted: mean tokens accepted.
        bias: predicted - accepted.
        absolute: mean |predicted - accepted|.
        rmse: root mean square of the difference.
        correlation: Pearson's, between the two.
        weight: (K,) mean ŝ_k of the tokens at depth k.
        reached: (K,) share of drafts in which all tokens before depth k were accepted.
        brier: (K,) mean (ŝ_k - reached)².
    """

    predicted: Estimate
    accepted: Estimate
    bias: Estimate
    absolute: Estimate
    rmse: Estimate
    correlation: Estimate
    weight: tuple[Estimate, ...]
    reached: tuple[Estimate, ...]
    brier: tuple[Estimate, ...]


def prediction(
    confidence: np.ndarray,
    ahead: np.ndarray,
    offsets: np.ndarray,
    draft_length: int,
    level: float = CONFIDENCE,
    seed: int = 0,
    by: Callable[[np.ndarray], np.ndarray] | None = None,
) -> Prediction:
    """Compare predicted and accepted lengths over drafts of K tokens from every position.

    Positions with fewer than K tokens behind them are left out, so every draft has K. The
    confidence is read along the output, also behind a rejection, as PARD-2 does in training: with
    `target_token_prob_raw` this judges CAT; with `accept_prob` or `overlap`, how far tokens behind
    the first rejection resemble those of the output.

    Args:
        confidence: (R,) ĉ in [0, 1], of each on-path row.
        ahead: (R,) tokens accepted in a row from each position on: `PathLayout.ahead`.
        offsets: (S + 1,), where prompts start.
        draft_length: K >= 1.
        level: of the intervals over prompts.
        seed: of the bootstrap.
        by: sums over prompts from those over texts, where `offsets` are of shorter texts than
            prompts (`loops.Outside.summed`).

    Raises:
        StatsError: NaN, lengths that differ, confidences outside of [0, 1], or K < 1.
    """
    check(offsets, confidence=confidence, ahead=ahead)
    shares(confidence=confidence)
    if draft_length < 1:
        raise StatsError(f"draft_length must be >= 1: {draft_length}")
    k = draft_length
    whole = np.maximum(np.diff(offsets) - k, 0)  # starts of each prompt
    number = np.concatenate([[0], np.cumsum(whole)]).astype(np.int64)
    shift = offsets[:-1] - number[:-1]

    def columns(starts: slice) -> np.ndarray:
        index = np.arange(starts.start, starts.stop)
        row = index + shift[np.searchsorted(number, index, side="right") - 1]
        return _moments(windows(confidence, row, k), np.minimum(ahead[row], k).astype(np.float64))

    sums = by_prompt(number, columns, max(1, _CELLS // k))
    found = bootstrap(sums if by is None else by(sums), _figures, level, seed)
    guess, accepted, bias, absolute, rmse, joint = found[:6]
    by_depth = (found[6 + i * k : 6 + (i + 1) * k] for i in range(3))
    return Prediction(guess, accepted, bias, absolute, rmse, joint, *by_depth)


def _moments(confidence: np.ndarray, accepted: np.ndarray) -> np.ndarray:
    """What `_figures` takes the sums of: (8 + 3 K, N).

    Args:
        confidence: (N, K), of each draft.
        accepted: (N,) tokens.
    """
    guess, weight = expected_length(confidence), cat_weights(confidence)
    reached = np.arange(confidence.shape[1]) <= accepted[:, None]
    gap = guess - accepted
    each = [np.ones(len(guess)), guess, accepted, np.abs(gap), gap**2]
    each += [guess**2, accepted**2, guess * accepted]
    return np.concatenate([np.stack(each, 1), weight, reached, (weight - reached) ** 2], 1).T


def _figures(s: np.ndarray) -> np.ndarray:
    """The fields of `Prediction` from sums over drafts."""
    means = s[..., 1:] / s[..., :1]
    guess, accepted, absolute, square, guess2, accepted2, product = (
        means[..., i : i + 1] for i in range(7)
    )
    spread = np.sqrt((guess2 - guess**2) * (accepted2 - accepted**2))
    joint = (product - guess * accepted) / np.where(spread > 1e-9, spread, np.nan)
    figures = [guess, accepted, guess - accepted, absolute, np.sqrt(square), joint]
    return np.concatenate([*figures, means[..., 7:]], -1)
