"""Cross-validation over prompts: folds, dealt out many times, and what is chosen by them.

One deal of the folds decides what is chosen where settings are close, and with it verdicts. So
prompts are dealt out `DEALS` times, and each has the mean over the deals of what was chosen without
its fold. Settings are replayed once: only the choices differ from deal to deal.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from simkit.errors import ReplayError
from simkit.simulator.arguments import check_seed
from traces.messages import how_many
from traces.same_prompts import to_deal

DEALS = 20
MOST_DEALS = 10_000


@dataclass(frozen=True, eq=False)
class Deals:
    """Prompts dealt into folds, several times.

    Attributes:
        fold: (D, S) each prompt's fold in each deal, in [0, folds); -1 is in none.
        folds: how many.
    """

    fold: np.ndarray
    folds: int

    def outside(self, values: np.ndarray) -> np.ndarray:
        """Sums over the prompts outside each fold of each deal, (D * folds,).

        Args:
            values: (S,), of each prompt.
        """
        found = np.empty((len(self.fold), self.folds))
        others = 1.0 - np.eye(
            self.folds
        )  # not all less the fold: what is equal outside stays equal
        for k, fold in enumerate(self.fold):
            inside = fold >= 0
            found[k] = others @ np.bincount(fold[inside], values[inside], self.folds)
        return found.ravel()

    def shares(self, best: np.ndarray) -> dict[int, np.ndarray]:
        """In which share of the deals each prompt has each setting, (S,) by setting.

        Args:
            best: (D * folds,) the setting that was chosen without each fold of each deal. Those
                that were chosen for most folds come first, of equals the lower.
        """
        by_deal = best.reshape(self.fold.shape[0], self.folds)
        mine = np.take_along_axis(by_deal, np.maximum(self.fold, 0), 1)
        mine = np.where(self.fold >= 0, mine, -1)
        settings, times = np.unique(best, return_counts=True)
        order = np.lexsort((settings, -times))
        return {int(k): (mine == k).mean(0) for k in settings[order]}


def outside(seconds: np.ndarray, deals: Deals | None) -> np.ndarray:
    """A setting's seconds on the prompts by which it is chosen, (F,): see `Deals.outside`.

    Prompts too few for folds, of which there are no deals, are one fold that is judged by itself.
    """
    return np.array([seconds.sum()]) if deals is None else deals.outside(seconds)


def chosen(
    outside_s: np.ndarray, deals: Deals | None, n: int
) -> tuple[np.ndarray, dict[int, np.ndarray]]:
    """The fastest setting outside each fold, (F,), and `Deals.shares` of these.

    Args:
        outside_s: (K, F), `outside` of K settings.
        deals: of n prompts.
        n: prompts.
    """
    best = outside_s.argmin(0)
    return best, {int(best[0]): np.ones(n)} if deals is None else deals.shares(best)


def mean_of(values: Sequence[np.ndarray], shares: Sequence[np.ndarray]) -> np.ndarray:
    """Each prompt's mean over the deals, (S,).

    Args:
        values: of the settings that were chosen, (S,) each.
        shares: of the deals, (S,) each; see `Deals.shares`.
    """
    found = np.zeros(len(shares[0]))
    for value, share in zip(values, shares, strict=True):
        found += np.where(share > 0, share * value, 0.0)
    return found


def dealt(
    strata: np.ndarray,
    folds: int,
    seed: int,
    deals: int = DEALS,
    prompt: np.ndarray | None = None,
) -> Deals:
    """Deal prompts into folds several times, at random, of every stratum about as many in each.

    A prompt that was recorded several times is dealt once, as its first copy is: copies in the fold
    by which a setting is judged, and among the prompts by which it is chosen, would flatter it.
    Each stratum is shuffled and dealt out in turn, from where the stratum before it left off, so
    that folds as a whole differ by no more than one prompt. Strata come in the order in which they
    first appear, so that what they are called does not matter.

    Args:
        strata: (S,), each prompt's stratum: its task, or a number for it.
        folds: of each deal, at least 2.
        seed: of all of them, at least 0.
        deals: how many, at least 1.
        prompt: (S,) the number of each one's prompt, see `Trace.prompt_numbers`; None: all differ.

    Raises:
        ReplayError: the seed is negative, or there are fewer than two folds, or fewer prompts than
            folds, or no deal, or one of the numbers is not whole.
    """
    whole = isinstance(deals, int | np.integer) and not isinstance(deals, bool)
    if not whole or not 1 <= deals <= MOST_DEALS:
        raise ReplayError(f"deals must be a whole number from 1 to {MOST_DEALS}, not {deals!r:.40}")
    number = np.arange(len(strata)) if prompt is None else to_deal(prompt)
    first = np.unique(number, return_index=True)[1]
    _check(len(first), len(strata), folds, seed)
    rng = np.random.default_rng(seed)
    made = [_deal(strata[first], folds, rng)[number] for _ in range(deals)]
    return Deals(np.stack(made), folds)


def _check(n: int, sequences: int, folds: int, seed: int) -> None:
    check_seed(seed)
    if isinstance(folds, bool) or not isinstance(folds, int | np.integer):
        raise ReplayError(f"folds must be a whole number, not {folds!r}")
    if folds < 2:
        raise ReplayError(f"folds must be at least 2, not {folds}")
    if n < folds:
        prompts = how_many(n, "different prompt" if n < sequences else "prompt")
        raise ReplayError(f"{prompts} cannot be cut into {how_many(folds, 'fold')}")


def _deal(strata: np.ndarray, folds: int, rng: np.random.Generator) -> np.ndarray:
    """One deal."""
    named = dict.fromkeys(strata.tolist())
    dealt = np.concatenate([rng.permutation(np.flatnonzero(strata == s)) for s in named])
    fold = np.empty(len(strata), np.int64)
    fold[dealt] = np.arange(len(strata)) % folds
    return fold
