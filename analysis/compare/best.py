"""The best setting on each side, and what is lost where the other side's is used."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from analysis.compare.seconds import SecondsGrid, judged
from analysis.compare.sides import Prompts
from analysis.stats import Estimate, clusters
from analysis.study import MissingError
from simkit.errors import PolicyError
from simkit.statistics.interval import resampled
from traces import specs


class BestChoice(NamedTuple):
    """The fastest setting of a family on one side.

    Attributes:
        setting: on all prompts.
        often: the share of resamples of prompts in which it is; None for fewer than two prompts.
        among: where settings have an order, as fixed lengths have, the two ends between which the
            fastest one lies in most resamples; else, and for fewer than two prompts, None.
    """

    setting: str
    often: float | None
    among: tuple[str, str] | None


@dataclass(frozen=True)
class Best:
    """Best settings of a family on two sides.

    Attributes:
        family: its spec.
        choices: on each side.
        lost: on each side, by what share of its time it is slower with what is best on the other
            side than with what is best on itself; each prompt with what is best on other prompts.
            0 is nothing; less than 0 is a choice that the other side's prompts make better.
    """

    family: str
    choices: tuple[BestChoice, BestChoice]
    lost: tuple[Estimate, Estimate]


def best(
    grids: tuple[SecondsGrid, SecondsGrid], prompts: Prompts, spec: str, confidence: float
) -> Best:
    """Choose on both sides, of the settings that both can replay.

    Raises:
        MissingError: there is none.
    """
    both = [name for name in grids[0].policies if name in grids[1].policies]
    if not both:
        raise MissingError(f"{spec}: no setting of it can be replayed on both")
    one, other = (grid.of(both) for grid in grids)
    seeds = prompts.pairing.seeds
    ordered = len(specs.parse(spec, PolicyError).ranges()) == 1
    return Best(
        spec,
        (
            _choice(one, ordered, seeds[0], confidence),
            _choice(other, ordered, seeds[1], confidence),
        ),
        (
            _lost(other, one, prompts, 0, confidence),
            _lost(one, other, prompts, 1, confidence),
        ),
    )


def _choice(grid: SecondsGrid, ordered: bool, seed: int, confidence: float) -> BestChoice:
    best = int(grid.total_s.sum(1).argmin())
    name = grid.policies[best]
    if grid.total_s.shape[1] < 2:
        return BestChoice(name, None, None)
    drawn = np.concatenate([part.argmin(1) for part in resampled(grid.total_s.T, seed)])
    levels = (1 - confidence) / 2, (1 + confidence) / 2
    lo, hi = np.quantile(drawn, levels, method="nearest")
    among = (grid.policies[lo], grid.policies[hi]) if ordered else None
    return BestChoice(name, float((drawn == best).mean()), among)


def _lost(
    chosen_on: SecondsGrid, on: SecondsGrid, prompts: Prompts, side: int, confidence: float
) -> Estimate:
    """Of the one side's time, where the other's choice is used; `on` is of that side.

    Of paired sides, the other's choice for a prompt is made without that prompt, too.
    """
    dealt_by = prompts.strata[side], prompts.numbers[side]
    own_s = judged(on.total_s, on.total_s, *dealt_by)
    if prompts.pairing.paired:
        other_s = judged(chosen_on.total_s, on.total_s, *dealt_by)
    else:
        other_s = on.total_s[int(chosen_on.total_s.sum(1).argmin())]
    sums = np.stack([other_s, own_s], 1)
    (found,) = clusters.bootstrap(sums, lambda s: s[..., :1] / s[..., 1:] - 1, confidence)
    return found
