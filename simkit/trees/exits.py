"""Beams that stop growing: after each level, or every other one, a rule looks at the tree."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from simkit.drafters.tree import TreeLayout
from simkit.errors import PolicyError
from simkit.policies.arguments import check_whole, real_number, whole_number
from simkit.policies.base import Setting
from simkit.policies.registry import register
from simkit.policies.svip import SVIP, largest_square
from simkit.policies.verdicts import not_boolean, verdict
from simkit.trees.base import Outcomes
from simkit.trees.beams import Grown, beam_outcomes, beams_of
from simkit.trees.calibrated import Calibrated, attained, calibrated
from simkit.trees.eagle2 import Eagle2
from simkit.trees.growing import Growing, GrowingTree
from traces.trees.shapes import Beams


class Exit(Growing):
    """EAGLE-2's beams, `top_k`, `depth` and `total` as there, until a rule stops them.

    Of the nodes that there are then the best are verified.
    """

    looks = True
    top_k: int
    depth: int
    total: int

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, least in (("top_k", 1), ("depth", 0), ("total", 2)):
            check_whole(self, name, least)
        try:
            _ = self.beams
        except PolicyError as error:
            raise PolicyError(str(error).replace("eagle2", self.name, 1)) from None

    @property
    def levels(self) -> int:
        """See `TreePolicy`."""
        return self.depth + 1

    @property
    def width(self) -> int:
        """See `Growing`."""
        return self.top_k

    @property
    def like(self) -> SVIP:
        """See `Branching`."""
        return SVIP(max_draft=self.levels)

    @abstractmethod
    def stops(self, layout: TreeLayout, found: Grown) -> np.ndarray:
        """Whether the rule stops behind each level, (R, L) bool; asked of all but the deepest."""

    @abstractmethod
    def stops_live(self, tree: GrowingTree, level: int) -> bool:
        """The same of one tree whose nodes of a level are there, behind which it `asks`."""

    def outcomes(self, layout: TreeLayout) -> Outcomes:
        """See `TreePolicy`."""
        layout.check_held(self, Beams(self.top_k, self.depth))
        found = beams_of(layout, self.top_k)
        stops = self._stops(layout, found)
        stops[:, self.levels - 1 :] = True
        level = np.minimum(stops.argmax(1) + 1, layout.trees.room)
        asks = [0 < level < self.levels and self.asks(level) for level in range(self.levels + 1)]
        asked = np.cumsum(asks, dtype=np.int32)
        return beam_outcomes(found, level, self.total - 1, asked, layout.trees.room)

    def _stops(self, layout: TreeLayout, found: Grown) -> np.ndarray:
        """Whether the rule stops behind each level that there may be, (R, L) bool; a copy."""
        said = self.stops(layout, found)
        if not isinstance(said, np.ndarray) or said.dtype != np.bool_:
            kind = f"an array of {said.dtype}" if isinstance(said, np.ndarray) else repr(said)
            raise PolicyError(f"{self}: {not_boolean(kind)}")
        if said.ndim != 2 or len(said) != len(found.made) or said.shape[1] < self.levels:
            wanted = len(found.made), self.levels
            raise PolicyError(f"{self}: stops must have the shape {wanted}, not {said.shape}")
        return said[:, : self.levels].copy()

    def grows(self, tree: GrowingTree, level: int) -> np.ndarray:
        """See `Growing`."""
        if level and self.asks(level) and verdict(self.stops_live(tree, level), self):
            return np.zeros(0, np.int64)
        return self.beams.grows(tree, level)

    def chosen(self, tree: GrowingTree) -> np.ndarray:
        """See `Growing`."""
        return self.beams.chosen(tree)

    @cached_property
    def beams(self) -> Eagle2:
        """Its trees, were they not stopped."""
        return Eagle2(self.top_k, self.depth, self.total)


@register
@dataclass(frozen=True)
class TreeSVIP(Exit):
    """SVIP on EAGLE-2's tree: stop if sqrt(H) > h, checked after every second level.

    H is the draft's entropy, at temperature 1, behind the best node of the beam that proposed the
    newest level; the paper does not say which node it takes. Behind an EOS token there is no
    entropy, and the beams continue.

    Tripping token: kept, like all nodes of its level. Score: of the level that has just been
    proposed, no lag. State: none. Feedback: none.
    Source: SVIP, section 3.3 and Table 4, with one layer of EAGLE-2's settings as they are there.

    Attributes:
        h: threshold, >= 0.
        every: the rule is asked after each level whose number this divides.
        top_k: see `Eagle2`.
        depth: see `Eagle2`.
        total: see `Eagle2`.

    Raises:
        PolicyError: an argument is out of range.
    """

    h: float = real_number(0.4, 0)
    every: int = whole_number(2, 1)
    top_k: int = 10
    depth: int = 7
    total: int = 60

    name = "tree_svip"

    @property
    def timed_as(self) -> str:
        """See `Policy`: as the rule of chains."""
        return "svip"

    def asks(self, level: int) -> bool:
        """See `Growing`."""
        return level % self.every == 0

    def stops(self, layout: TreeLayout, found: Grown) -> np.ndarray:
        """See `Exit`."""
        asked = (np.arange(found.entropy.shape[1]) + 1) % self.every == 0
        return (found.entropy.astype(np.float64) > largest_square(self.h)) & asked

    def stops_live(self, tree: GrowingTree, level: int) -> bool:
        """See `Exit`."""
        (best,) = tree.likeliest(tree.of_level(level - 1), 1)
        return float(tree.entropy[best]) > largest_square(self.h)


@register
@dataclass(frozen=True)
class BestRate(Exit):
    """Grow EAGLE-2's tree while P(the next level holds an output token) >= λ * (its seconds).

    The probability is fitted to the probability that the draft gives the beam: an isotonic fit to
    the prompts outside the sequence's fold. The seconds are those of the next pass over the beam,
    of verifying more nodes as long as they are fewer than `total`, and of the rule's decision. λ is
    the rate, in tokens a second of steps, that this very rule attains. It is a fixed point as in
    `rate_optimal`; this is its form for trees.

    Tripping token: kept, like all nodes of its level. Score: of the newest level, no lag. State:
    none. Feedback: none.
    Source: ours; the sum of a level's probabilities is the indicator of Zhang et al. 2024
    ("Learning harmonized representations"), which SVIP's section 5 names.

    Attributes:
        folds: number of folds of the prompts, >= 2.
        top_k: see `Eagle2`.
        depth: see `Eagle2`.
        total: see `Eagle2`.

    Raises:
        PolicyError: an argument is out of range; or there is no cost.
    """

    folds: int = whole_number(5, 2)
    top_k: int = 10
    depth: int = 7
    total: int = 60

    name = "best_rate"
    live = False

    @property
    def timed_as(self) -> str:
        """See `Policy`: as the rule of chains."""
        return "rate_optimal"

    def bind(self, setting: Setting) -> BestRate:
        """See `Policy`."""
        setting.costs(self.name)
        layout = setting.layout
        assert isinstance(layout, TreeLayout)
        layout.check_held(self, Beams(self.top_k, self.depth))
        found = beams_of(layout, self.top_k).down_to(self.levels)
        fit = calibrated(layout, found, self.folds)
        worth = fit.chance(found.mass, layout)
        price = self._price(setting, found)
        return attained(lambda rate: self._with(worth < rate * price, fit), setting)

    def remark(self, setting: Setting) -> str:
        """See `Policy`."""
        return f"{self} is fitted to the prompts that it is replayed on, scores out of fold"

    def stops(self, layout: TreeLayout, found: Grown) -> np.ndarray:
        """See `Exit`."""
        bound = vars(self).get("_fitted")
        if bound is None:
            raise PolicyError(f"{self.name} must be fitted to a trace and a cost: replay it")
        return bound

    def stops_live(self, tree: GrowingTree, level: int) -> bool:
        """See `Exit`.

        Raises:
            PolicyError: always: its prices are those of a replay.
        """
        raise PolicyError(f"{self.name} is fitted to a trace and its cost: it cannot run live")

    def _with(self, stops: np.ndarray, fit: Calibrated) -> BestRate:
        bound = replace(self)
        vars(bound)["_fitted"] = stops
        return bound

    def _price(self, setting: Setting, found: Grown) -> np.ndarray:
        """Seconds that one more level behind each one takes, (R, L); 0 behind the last."""
        charge, layout = setting.costs(self.name), setting.layout
        levels = found.made.shape[1]
        context = (np.repeat(layout.n_prompt - 1, layout.n_output) + layout.position)[:, None]
        price = np.zeros(found.made.shape)
        wide = np.maximum(found.passed[:, 1:], 1)
        depth = np.arange(1, levels)
        reached = np.minimum(context + depth, len(charge.contexts) - 1)
        if layout.paid in ("token", "chain"):
            price[:, :-1] = charge.drafting.block(wide, reached)
        nodes = np.minimum(found.made.cumsum(1), self.total - 1)
        verify_s = charge.verify(nodes + 1, context)
        price[:, :-1] += np.diff(verify_s, axis=1) + charge.weighed_s(self)
        return price
