"""Seconds of policies on two sides: of single settings, and of families tuned on other prompts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

import numpy as np

from analysis.compare.sides import Prompts, Side
from analysis.replays import FAMILIES, folds_of
from analysis.study import MissingError
from simkit.policies import Policy, parse, shortened
from simkit.simulator.beyond import Beyond
from simkit.simulator.run import Spread
from simkit.sweeps.engine import replays
from simkit.sweeps.folds import chosen, mean_of, outside
from simkit.sweeps.grid import settings
from traces.errors import UserError
from traces.messages import how_many

T = TypeVar("T")

DEFAULTS = tuple(spec.split("(")[0] for spec in FAMILIES.values())
"""Each family's policy, with its default arguments."""


@dataclass(frozen=True, eq=False)
class Seconds:
    """Seconds of one policy on one side's prompts.

    Attributes:
        setting: what was replayed; of a family, the fastest on all prompts.
        total_s: (S,).
        baseline_s: (S,) of the target alone.
        spread: by what they change under other samples of the times; None: not known.
    """

    setting: str
    total_s: np.ndarray
    baseline_s: np.ndarray
    spread: Spread | None

    @property
    def sums(self) -> np.ndarray:
        """Baseline and total, (S, 2)."""
        return np.stack([self.baseline_s, self.total_s], 1)

    @property
    def factors(self) -> np.ndarray | None:
        """By what its speedup changes under other samples of the times, (D,)."""
        return None if self.spread is None else self.spread.baseline / self.spread.total


@dataclass(frozen=True, eq=False)
class SecondsGrid:
    """Every setting of a family on one side's prompts.

    Attributes:
        policies: as they were given, which is how the two sides' are told apart.
        run: as they were replayed: none drafts deeper than the lesser Γ of both sides.
        total_s: (K, S).
    """

    policies: list[str]
    run: list[Policy]
    total_s: np.ndarray

    def of(self, names: list[str]) -> SecondsGrid:
        """Those of these names."""
        rows = [self.policies.index(name) for name in names]
        return SecondsGrid(names, [self.run[k] for k in rows], self.total_s[rows])


class On(NamedTuple):
    """On what a side is replayed, to be compared with the other.

    Attributes:
        rows: (S,) its prompts.
        strata: (S,) by which folds of them are dealt.
        number: (S,) of each prompt, see `Trace.prompt_numbers`.
        deepest: the lesser Γ of the two sides, so that policies are the same on both.
    """

    rows: np.ndarray
    strata: np.ndarray
    number: np.ndarray
    deepest: int


class Replayer:
    """Replays of one side, each made once.

    Attributes:
        beyond: what of all of them lies beyond what was timed.
    """

    def __init__(self, side: Side) -> None:
        self.side = side
        self._grids: dict[tuple[str, int], SecondsGrid] = {}
        self.beyond: list[Beyond] = []

    def single(self, spec: str, on: On) -> Seconds:
        """One policy; raises as `Replays.run` does."""
        policy = shortened(parse(spec), on.deepest)
        one = self.side.at.replay(spec if policy is None else str(policy))
        self.beyond += one.beyond
        total_s, baseline_s = one.total_s[on.rows], one.seconds["baseline_s"][on.rows]
        return Seconds(one.spec, total_s, baseline_s, one.timing())

    def grid(self, spec: str, on: On) -> SecondsGrid:
        """Every setting of a family; raises as `Replays.run` does."""
        key = spec, on.deepest
        if key not in self._grids:
            at = self.side.at
            _ = at.charge, at.within(spec)
            at.study.make_room()
            both = [(str(one), shortened(one, on.deepest)) for one in settings(spec)]
            kept = {name: one for name, one in both if one is not None}
            if not kept:
                raise MissingError(
                    f"none of its settings drafts at most {how_many(on.deepest, 'token')}"
                )
            found = []
            for run in replays([*kept.values()], at.where):
                found.append(run.total_s)
                self.beyond += run.beyond
            self._grids[key] = SecondsGrid([*kept], [*kept.values()], np.array(found))
        found = self._grids[key]
        return SecondsGrid(found.policies, found.run, found.total_s[:, on.rows])

    def tuned(self, spec: str, on: On) -> Seconds:
        """A family, each prompt with what is fastest on other prompts; raises as `grid` does."""
        grid = self.grid(spec, on)
        best = int(grid.total_s.sum(1).argmin())
        held_s = judged(grid.total_s, grid.total_s, on.strata, on.number)
        one = self.single(str(grid.run[best]), on)
        return Seconds(grid.policies[best], held_s, one.baseline_s, one.spread)


def judged(
    chosen_on: np.ndarray, on: np.ndarray, strata: np.ndarray, number: np.ndarray
) -> np.ndarray:
    """Seconds of each prompt with the setting that is fastest on other prompts, (S,).

    Prompts are dealt into folds as `simkit.tune` deals them, and each has the mean over the deals;
    fewer prompts than folds have what is fastest on all of them.

    Args:
        chosen_on: (K, S) seconds of each setting by which it is chosen.
        on: (K, S) of the same prompts, by which it is judged.
        strata: (S,) tasks.
        number: (S,) of each prompt, see `Trace.prompt_numbers`.
    """
    deals = folds_of(strata, number)
    outside_s = np.stack([outside(one, deals) for one in chosen_on])
    _, shares = chosen(outside_s, deals, len(strata))
    return mean_of([on[k] for k in shares], [*shares.values()])


def on_both(
    replayers: tuple[Replayer, Replayer],
    prompts: Prompts,
    spec: str,
    what: Callable[[Replayer, str, On], T],
    why: dict[str, dict[str, str]],
) -> tuple[T, T] | None:
    """What a spec gives on both sides; None if one of them cannot replay it.

    Args:
        replayers: of the sides.
        prompts: on which they are compared.
        spec: of a policy or a family.
        what: called with the side's replayer, the spec and what it is replayed on.
        why: takes the reason, by the side's name and by spec.
    """
    deepest = min(replayer.side.trace.max_draft for replayer in replayers)
    made = []
    each = zip(replayers, prompts.each, prompts.strata, prompts.numbers, strict=True)
    for replayer, rows, strata, number in each:
        try:
            made.append(what(replayer, spec, On(rows, strata, number, deepest)))
        except UserError as error:
            why.setdefault(replayer.side.name, {})[spec] = str(error)
    return (made[0], made[1]) if len(made) == 2 else None
