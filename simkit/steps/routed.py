"""Steps of a decoder with several drafters: who drafts in each, and what all were asked for.

Each drafter has a policy, and a policy sees the steps in which its drafter drafted and no others,
as it would in a decoder that keeps one beside the other. It is asked in plain Python.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from simkit.drafters.layout import DepthError, Layout
from simkit.drafters.route import Routing
from simkit.errors import ReplayError
from simkit.policies import Policy, Sequential, Setting
from simkit.policies.base import State
from simkit.policies.verdicts import decisions
from simkit.steps import interpreted
from simkit.steps.depth import advice
from simkit.steps.steps import COUNTS, Steps, extra_passes, sequential
from simkit.steps.work import Work

if TYPE_CHECKING:
    from simkit.simulator.step_costs import Charge


class RoutedArm(NamedTuple):
    """One of the drafters.

    Attributes:
        name: in the trace.
        policy: that it follows, as it was given.
        bound: the same, as it was fitted to the setting.
        setting: its trace, and what its steps take.
    """

    name: str
    policy: Policy
    bound: Sequential
    setting: Setting

    @property
    def layout(self) -> Layout:
        """What its drafts see."""
        return self.setting.layout

    @property
    def charge(self) -> Charge:
        """What its drafts take; there are times."""
        assert self.setting.charge is not None
        return self.setting.charge


@dataclass(frozen=True, eq=False)
class RoutedSteps(Steps):
    """Steps of several drafters; counts of tokens are those of the drafter that drafted.

    Attributes:
        by: (N,) which one did, its index.
        worked: (N, K) tokens that each drafter was asked for, in vain or not; -1: it was not asked.
    """

    by: np.ndarray = field(kw_only=True)
    worked: np.ndarray = field(kw_only=True)


def walk(choice: Routing, arms: Sequence[RoutedArm]) -> RoutedSteps:
    """Every step; see `simkit.simulator.routed.run`."""
    layouts = [arm.layout for arm in arms]
    chosen = choice.by_row(layouts)
    walker = _Walker(arms, chosen)
    made: list[interpreted.DraftCounts] = []
    by: list[int] = []
    ends = [0]
    for index in range(len(layouts[-1].n_output)):
        for which, step in walker.sequence(index):
            by.append(which)
            made.append(step)
        ends.append(len(made))
    columns = np.array(made, np.int32).reshape(-1, 4).T
    first, drafter = arms[-1].setting.first, np.array(by, np.int64)
    steps = sequential(np.array(ends), columns, layouts[-1], first)
    tried = [chosen is not None and arm is not arms[-1] for arm in arms]
    asked = [_worked(arm, k, steps, drafter, columns[3], tried[k]) for k, arm in enumerate(arms)]
    worked = np.stack(asked, axis=1)
    passes = sum(passes_of(arm, k, worked, drafter) for k, arm in enumerate(arms))
    known = {name: getattr(steps, name) for name in ("offsets", "first", *COUNTS[1:], "emitted")}
    known |= {"draft_passes": np.asarray(passes), "asked": columns[3]}
    return RoutedSteps(**known, by=drafter, worked=worked)


class _Walker:
    """The drafters' policies with their states, sequence after sequence.

    Args:
        arms: the drafters.
        chosen: which of them drafts from each position; None takes that with the most accepted.
    """

    def __init__(self, arms: Sequence[RoutedArm], chosen: np.ndarray | None) -> None:
        self._arms = arms
        self._chosen = chosen
        self._read = [a.layout.columns(a.bound.columns(a.layout.trace.sampler)) for a in arms]
        self._states: list[State] = [arm.bound.begin(0) for arm in arms]

    def sequence(self, index: int) -> list[tuple[int, interpreted.DraftCounts]]:
        """The steps of one sequence, and which drafter made each."""
        arms, layout = self._arms, self._arms[-1].layout
        self._rows = [
            arm.layout.sequence(read, index) for arm, read in zip(arms, self._read, strict=True)
        ]
        for k, arm in enumerate(arms):
            if arm.bound.carried == "sequence":
                self._states[k] = arm.bound.begin(index)
        origin, n_output = int(layout.offsets[index]), int(layout.n_output[index])
        i = arms[-1].setting.first
        found = []
        while i <= n_output:
            if self._chosen is None:
                which, made, state = self._best(i)
            else:
                which = int(self._chosen[origin + i - 1])
                made, state = self._draft(which, i, self._states[which])
            self._states[which] = arms[which].bound.update(state, made.outcome(i, n_output))
            found.append((which, made))
            i += made.accepted + 1
        return found

    def _best(self, start: int) -> tuple[int, interpreted.DraftCounts, State]:
        """The draft of which the most is accepted; the others leave no trace in their states."""
        found = [(k, *self._draft(k, start, self._copy(k))) for k in range(len(self._arms))]
        return max(found, key=lambda one: one[1].accepted)

    def _copy(self, k: int) -> State:
        """The state of a drafter's policy, of which nothing is changed with the copy."""
        try:
            return deepcopy(self._states[k])
        except Exception as error:  # a generator, or an object that does not want to be copied
            raise ReplayError(
                f"{self._arms[k].policy}: best_of tries each drafter's draft in every step, and"
                f" this policy's state cannot be copied ({error}): write it as a class"
            ) from None

    def _draft(self, which: int, start: int, state: State) -> tuple[interpreted.DraftCounts, State]:
        arm = self._arms[which]
        trace, deepest = arm.layout.trace, arm.layout.deepest
        left, rows = trace.max_new_tokens - start, self._rows[which]
        try:
            return interpreted.draft(arm.bound, state, rows, start, left, deepest)
        except DepthError as error:
            raise advice(arm.policy, error) from None


def _worked(
    arm: RoutedArm, k: int, steps: Steps, by: np.ndarray, asked: np.ndarray, tried: bool
) -> np.ndarray:
    """Tokens that drafter k was asked for in each step; -1 if it was not asked.

    A route looks at whole proposals: that of the one who drafts too, unless it is the last.

    Args:
        arm: drafter k.
        k: its index.
        steps: with what was drafted.
        by: who drafted.
        asked: tokens that the one who did was asked for by its policy.
        tried: whether a route asks it, before others or in vain.
    """
    if not tried:
        return np.where(by == k, asked, -1)
    layout = arm.layout
    row = layout.offsets[steps.sequence] + steps.start - 1
    proposed = np.diff(layout.branch)[row]  # whole: a drafter that is tried ends its drafts itself
    if layout.deepest is not None:
        left = layout.trace.max_new_tokens - steps.start
        proposed = np.where(proposed > 0, np.minimum(left, layout.deepest), 0)
    return np.where(by >= k, proposed, -1)


def passes_of(arm: RoutedArm, k: int, worked: np.ndarray, by: np.ndarray) -> np.ndarray:
    """Passes of drafter k in each step, (N,)."""
    passes = arm.layout.passes(np.maximum(worked[:, k], 0))
    return passes + np.where(by == k, extra_passes(arm.bound, arm.layout), 0)


def works(arms: Sequence[RoutedArm], steps: RoutedSteps) -> list[Work]:
    """What each drafter did in each step; the target did the same whoever drafts.

    One that drafts token by token takes in with its first pass what was kept since its last one
    while others drafted; one that drafts in one pass reads all known tokens that it has not read.
    """
    return [_work(arm, k, steps) for k, arm in enumerate(arms)]


def _work(arm: RoutedArm, k: int, steps: RoutedSteps) -> Work:
    start, mine = steps.start, steps.by == k
    tokens = np.maximum(steps.worked[:, k], 0)
    again = mine & bool(extra_passes(arm.bound, arm.layout))
    missed = _missed(steps, k, (tokens > 0) | again)
    unread = 1 + missed
    if not again.any():
        unread = start - steps.read_before(np.where(tokens > 0, start, -1))
    return Work(
        steps.known(arm.layout),
        steps.proposed + 1,
        tokens,
        unread,
        np.where(mine, decisions(arm.bound, steps.drafted), 0),
        again=again,
        missed=missed if arm.layout.paid == "token" else None,
    )


def _missed(steps: RoutedSteps, k: int, reads: np.ndarray) -> np.ndarray:
    """Output tokens of others' steps that drafter k has not read before each step, (N,).

    Args:
        steps: of all drafters.
        k: the drafter.
        reads: the steps in which it reads all that is known.
    """
    others = np.where(steps.by == k, 0, steps.emitted).astype(np.int64)
    before = np.cumsum(others) - others
    last = np.maximum.accumulate(np.where(reads, np.arange(len(reads)), -1))
    last = np.concatenate([[-1], last[:-1]]) if len(last) else last
    begin = np.repeat(steps.offsets[:-1], steps.counts)
    return before - before[np.maximum(last, begin)]
