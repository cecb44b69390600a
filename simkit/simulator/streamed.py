"""Replays of a trace that is larger than memory: window by window, all policies on each.

A replay keeps the sums of each prompt, and a prompt lies in one window, so a policy's windows side
by side are its whole replay, to the bit. That does not hold of a policy that learns from prompt to
prompt or is fitted to all of them; such a one is refused.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from simkit.drafters import layout_of
from simkit.drafters.layout import Span
from simkit.drafters.streamed import windowed
from simkit.errors import ReplayError
from simkit.policies import NumericPolicy, Policy, Sequential, Setting
from simkit.simulator.binding import fitted
from simkit.simulator.run import Run, Spread, Wide, opening, spread_of
from simkit.simulator.step_costs import Charge
from simkit.simulator.total import Seconds
from simkit.steps.steps import Steps
from traces.own_sources import is_own
from traces.streamed import Streamed
from traces.trace import Trace

_SHARE = 0.55  # of the memory that the sums of prompts may take
_SUMS_BYTES = 8 * 13  # of a prompt under a policy

Replays = Callable[[Sequence[Policy], Setting], Iterable[Run]]
Progress = Callable[[int, int], object]


def in_windows(
    policies: Sequence[Policy],
    setting: Setting,
    replays: Replays,
    progress: Progress | None = None,
) -> Iterator[Run]:
    """The replay of each policy, in order, of a trace whose rows are read in windows.

    Args:
        policies: not bound yet.
        setting: of all prompts.
        replays: of policies in the setting of one window.
        progress: called as windows are done, with the settings done, and all of them.

    Raises:
        ReplayError: a policy's replay does not fall into prompts.
        UserError: as a replay does.
    """
    trace = windowed(setting.layout)
    assert trace is not None
    for policy in policies:
        check_prompts_apart(policy)
    sums_bytes = _SUMS_BYTES * max(1, trace.n_sequences)
    most = max(1, int(_SHARE * trace.memory) // sums_bytes)
    for begin in range(0, len(policies), most):
        some = policies[begin : begin + most]

        def done(share: float, begin: int = begin, some: Sequence[Policy] = some) -> None:
            if progress:
                progress(begin + int(share * len(some)), len(policies))

        yield from _together(some, setting, replays, done)


def check_prompts_apart(policy: Policy) -> None:
    """Refuse a policy whose replay of a prompt hangs on other prompts.

    Raises:
        ReplayError: as said.
    """
    why = None
    if policy.head is not None:
        why = "reads a head's scores, which are one file"
    elif policy.carried == "run":
        why = "carries what it has learned from prompt to prompt"
    elif type(policy).bind is not Policy.bind and not policy.binds_prompts_apart:
        why = "is fitted to all prompts at once"
    if why:
        raise ReplayError(f"{policy} {why}: leave --memory out")


def check_begin(policy: Policy, low: int, n: int) -> None:
    """Refuse a user's rule whose first state depends on the prompt's number.

    A window numbers its prompts from 0, so such a rule would begin them otherwise than in the whole
    trace. Built-in rules do not look at the number, or are fitted to each window.

    Args:
        policy: of any kind.
        low: the number of the window's first prompt in the trace.
        n: prompts of the window.

    Raises:
        ReplayError: a first state differs, or cannot be compared.
    """
    if not isinstance(policy, Sequential) or not low:
        return
    kind = next(one for one in type(policy).__mro__ if "begin" in vars(one))
    if is_own(policy.slots.begin if kind is NumericPolicy else kind):  # pyright: ignore
        return
    try:
        same = all(
            pickle.dumps(policy.begin(k)) == pickle.dumps(policy.begin(low + k)) for k in range(n)
        )
    except Exception as error:  # a state that is not pickled, or what the rule itself raises
        raise ReplayError(
            f"{policy}: the states that it begins with cannot be compared ({error}): leave --memory"
            " out"
        ) from None
    if not same:
        raise ReplayError(f"{policy} begins prompts by their numbers: leave --memory out")


def _together(
    policies: Sequence[Policy],
    setting: Setting,
    replays: Replays,
    done: Callable[[float], object],
) -> Iterator[Run]:
    trace = windowed(setting.layout)
    assert trace is not None
    start = _Opening(trace, setting)
    given = [one if one.takes_turns else one.bind(setting) for one in policies]
    bound: list[Policy] = []
    parts: list[list[Run]] = [[] for _ in policies]
    wide: list[list[list[Wide]]] = [[] for _ in policies]
    n, low = len(trace.ranges), 0
    for k, window in enumerate(trace.windows()):
        for policy in policies:
            check_begin(policy, low, window.n_sequences)
        low += window.n_sequences
        for number, part in enumerate(replays(given, at(window, setting))):
            bound += [] if k else [part.bound]
            parts[number].append(_sums_alone(part, setting))
            wide[number].append(part.wide)
        done((k + 1) / n)
    for policy, mine, first, each in zip(policies, parts, bound, wide, strict=True):
        counts = {name: _joined([part.counts for part in mine], name) for name in mine[0].counts}
        times = [part.seconds for part in mine if part.seconds]
        seconds = {name: _joined(times, name) for name in times[0]} if times else None
        yield WindowedRun(policy, first, setting, counts, seconds, start, each)


def at(window: Trace, setting: Setting) -> Setting:
    """The setting of one window."""
    layout, charge = layout_of(window), setting.charge
    times = charge and Charge(charge.times, layout, setting.first)
    return Setting(layout, times, setting.first)


def _sums_alone(run: Run, setting: Setting) -> Run:
    """A window's run without the window."""
    return Run(run.policy, run.policy, setting, run.counts, run.seconds)


def _joined(parts: Sequence[dict[str, np.ndarray]], name: str) -> np.ndarray:
    return np.concatenate([part[name] for part in parts])


@dataclass(frozen=True, eq=False)
class WindowedRun(Run):
    """A run whose steps are not at hand.

    Attributes:
        start: the first window.
        each: each window's own `wide`.
    """

    start: _Opening
    each: Sequence[Sequence[Wide]]

    @cached_property
    def spread(self) -> Spread | None:
        """See `Run`: that is taken over the first prompts alone, which the first window has."""
        if self.charge is None or self.seconds is None or not self.total_s.any():
            return None
        there = self.start.setting
        given = self.policy if self.policy.takes_turns else self.bound
        here = min(self.start.span[1], len(there.layout.n_output))  # windows are longer
        return spread_of(fitted(given, there), there, (0, here))

    @cached_property
    def wide(self) -> list[Wide]:
        """See `Run`."""
        models = {one.model: one for wide in self.each for one in wide}
        return [
            one._replace(steps=sum(o.steps for wide in self.each for o in wide if o.model == name))
            for name, one in models.items()
        ]

    def steps(self, span: Span | None = None) -> tuple[Steps, Seconds | None]:
        """Refused.

        Raises:
            ReplayError: always.
        """
        raise ReplayError("steps one by one need all rows at once: leave out --memory")


class _Opening:
    """The first window of a trace, opened again once it is asked for."""

    def __init__(self, trace: Streamed, whole: Setting) -> None:
        self._trace = trace
        self._whole = whole
        self.span = opening(whole.layout)

    @cached_property
    def setting(self) -> Setting:
        """Of that window."""
        return at(self._trace.window(self._trace.ranges[0]), self._whole)
