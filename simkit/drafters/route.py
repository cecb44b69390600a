"""Several drafters in one decoder: which of them drafts in a step.

A choice is written as a spec of the drafters' names, `route(suffix, own, least=3)`. Its last one
follows the policy that is replayed; those before it come first and have a policy of their own.
"""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import ClassVar, cast

import numpy as np

from simkit.drafters.lattice import LatticeLayout
from simkit.drafters.layout import Layout
from simkit.errors import ReplayError
from traces import specs
from traces.registry import suggest


@dataclass(frozen=True)
class Routing(ABC):
    """A rule that says which of several drafters of one recording drafts in a step.

    Attributes:
        drafters: their names, in the order in which they are asked.
        policy: spec of the policy of all but the last; empty means all that they propose.

    Raises:
        ReplayError: fewer than two drafters, one twice, or an argument is out of range.
    """

    drafters: tuple[str, ...]
    policy: str = ""

    name: ClassVar[str]

    def __post_init__(self) -> None:
        if not all(isinstance(name, str) for name in self.drafters):
            raise ReplayError(f"{self.name}: name drafters as they were attached, or own")
        if len(self.drafters) < 2:
            raise ReplayError(f"{self.name} takes two drafters or more, such as (suffix, own)")
        for name in self.drafters:
            if self.drafters.count(name) > 1:
                raise ReplayError(f"{self.name}: {name} is named twice")
        if not isinstance(self.policy, str):
            raise ReplayError(f"{self.name}: policy must be a spec in quotes, not {self.policy!r}")

    @property
    def arguments(self) -> dict[str, specs.Value]:
        """Those beyond the drafters' names that are not the defaults."""
        return {"policy": self.policy} if self.policy else {}

    def __str__(self) -> str:
        """The canonical spec."""
        return specs.render(self.name, self.drafters, self.arguments)

    @abstractmethod
    def by_row(self, layouts: Sequence[Layout]) -> np.ndarray | None:
        """Which drafter drafts from each position, (R,) indices; None if that takes its draft.

        Args:
            layouts: of the drafters, in order.

        Raises:
            ReplayError: one of them lacks what the rule asks.
        """


@dataclass(frozen=True)
class Route(Routing):
    """The first drafter whose proposal is good enough, else the last.

    It is asked what it proposes at the start, whatever its policy would make of that. A drafter
    that was tried in vain has worked for nothing, and is paid for it.
    Source: llama.cpp's lists of `--spec-type`; the hybrid of SuffixDecoding (arXiv 2411.04975).

    Attributes:
        least: fewest tokens of a proposal that is taken.
        score: lowest score of one, the sum over its tokens of the probability of each together with
            those before it, as `suffix` has it; None asks for none.
    """

    least: int = 1
    score: float | None = None

    name = "route"

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.least, bool) or not isinstance(self.least, int) or self.least < 1:
            raise ReplayError(f"route: least must be a whole number >= 1, not {self.least}")
        if self.score is None:
            return
        number = isinstance(self.score, int | float) and not isinstance(self.score, bool)
        if not (number and abs(self.score) <= sys.float_info.max):
            raise ReplayError(f"route: score must be a number, not {self.score}")

    @property
    def arguments(self) -> dict[str, specs.Value]:
        """See `Routing`."""
        found: dict[str, specs.Value] = {} if self.least == 1 else {"least": self.least}
        if self.score is not None:
            found["score"] = self.score
        return found | super().arguments

    def by_row(self, layouts: Sequence[Layout]) -> np.ndarray:
        """See `Routing`."""
        last = len(layouts) - 1
        chosen = np.full(len(layouts[last].ahead), last)
        for k in reversed(range(last)):
            chosen[self._passes(self.drafters[k], layouts[k])] = k
        return chosen

    def _passes(self, name: str, layout: Layout) -> np.ndarray:
        if not (isinstance(layout, LatticeLayout) and layout.trace.manifest.draft_ends):
            raise ReplayError(
                f"route: {name} always drafts as many tokens as it is asked for, so it can"
                " only come last"
            )
        passes = layout.recorded >= self.least
        if self.score is not None:
            if not layout.trace.has("lattice", "draft_prob_raw"):
                raise ReplayError(
                    f"route: {name} has no probabilities to score: give least instead"
                )
            passes &= score(layout) >= self.score
        return passes


@dataclass(frozen=True)
class BestOf(Routing):
    """The drafter of whose draft the most tokens are accepted: an oracle, told beforehand.

    Each drafts under its policy; of equal numbers the drafter that is named first wins, as it would
    be asked first. The others are not asked, and cost nothing.
    Source: SpecDecode-Bench's oracle of n-grams and EAGLE.
    """

    name = "best_of"

    def by_row(self, layouts: Sequence[Layout]) -> None:
        """See `Routing`."""
        if self.policy:
            return
        for name, layout in zip(self.drafters[:-1], layouts, strict=False):
            if not layout.by_start:
                raise ReplayError(
                    f"best_of: {name} drafts as many tokens as it is asked for: name it last,"
                    " or give policy='…', by which all but the last stop"
                )


CHOICES: dict[str, type[Routing]] = {cls.name: cls for cls in (Route, BestOf)}


def is_choice(drafter: str) -> bool:
    """Whether that is no drafter's name but a spec of several."""
    return "(" in drafter


def parse(text: str) -> Routing:
    """The choice of a spec such as `route(suffix, own, least=3)` or `best_of(ngram, own)`.

    Raises:
        ReplayError: the spec cannot be read, or an argument is wrong.
    """
    if any(f"{name}(" in text.partition("(")[2] for name in CHOICES):
        raise ReplayError(
            f"{text.strip()}: route and best_of cannot be nested: name drafters in them"
        )
    try:
        spec = specs.parse(text, ReplayError)
    except ReplayError as error:
        raise ReplayError(f"{error}; name drafters as they were attached, or own") from None
    if spec.name not in CHOICES:
        raise ReplayError(
            f"{text.strip()} is no choice of drafters ({suggest(spec.name, CHOICES)})"
        )
    if spec.ranges():
        raise ReplayError(f"{text.strip()}: {spec.ranges()[0]} is a range; give one value here")
    make = partial(CHOICES[spec.name], cast("tuple[str, ...]", spec.args))
    return specs.build(specs.Spec(spec.name, (), spec.kwargs), make, ReplayError)


def score(layout: LatticeLayout) -> np.ndarray:
    """Sum over each draft's tokens of the probability of it and all before it, (R,) float64."""
    (each,) = layout.columns(("draft_prob_raw",)).starts
    recorded = np.arange(each.shape[1]) < layout.recorded[:, None]
    return np.where(recorded, np.cumprod(each, axis=1, dtype=np.float64), 0.0).sum(axis=1)
