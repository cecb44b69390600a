"""What one decision of a rule takes, where a measured cost has not timed it.

No rule is free for want of a measurement. One that was timed in no decoder (a function in a
notebook, a policy of another package) is timed here, on rows of the trace: `limit`, `trips`,
`proposed` and `update`, interpreted as a live decoder runs them. In a decoder a decision takes
longer than that: what the rule reads is computed on the device and copied to the host. So that part
is added from the cost: the measured time of a simple policy that reads the same columns, less what
its own rule takes here. A rule that is written anew as a function so costs
what the policy does.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from threading import RLock
from typing import Any, NamedTuple

import numpy as np

from simkit import policies
from simkit.costs import Times
from simkit.costs.base import RuleTime
from simkit.drafters.layout import Layout
from simkit.policies import FunctionPolicy, Outcome, Policy, Sequential
from simkit.policies.base import Row, State, chain_of
from simkit.policies.function import FUNCTION
from simkit.simulator.kept_times import keep, kept, key_of
from simkit.steps import interpreted
from traces.errors import UserError
from traces.sampler import Sampler

_TOKENS, _STEPS = 400, 2000  # as many of either as are looked at
_RARE = 4  # steps to a decision, beyond which a rule is asked in every step
_BUDGET_S = 0.05  # of all runs over them
_GROUPS, _MOST_RUNS = 5, 25
_DIGITS = 2  # that count: the rest is the machine's mood
HERE = "microbenchmark on this machine, not timed with the passes"
HERE_ONCE = f"{HERE} and timed anew by each process"


class _Script(NamedTuple):
    """What a rule was asked in a replay.

    Attributes:
        calls: the method's name and its arguments without the state, in order.
        decisions: that are paid for.
    """

    calls: list[tuple[str, tuple[Any, ...]]]
    decisions: int

    @property
    def rows(self) -> list[tuple[int, Row]]:
        """Depth and row of each token that it was asked about."""
        return [arguments for name, arguments in self.calls if name == "trips"]  # pyright: ignore


class Timed(NamedTuple):
    """What was found of a rule.

    Attributes:
        seconds: of one decision, what it reads apart.
        names: of the columns that it looks at.
        kept: whether later processes of this machine have the same seconds.
    """

    seconds: float
    names: tuple[str, ...]
    kept: bool


class Microbenchmarks:
    """Seconds of rules on this machine, each timed once and then kept, see `kept_times`.

    Settings of one policy share a time, so that a sweep does not rank them by the machine's mood.
    """

    def __init__(self) -> None:
        self._found: dict[object, Timed] = {}
        self._lock = RLock()

    def forget(self) -> None:
        """Ask the disk anew for all rules; those that are not kept there are timed anew."""
        with self._lock:
            self._found.clear()

    def rule(self, policy: Sequential, layout: Layout) -> Timed:
        """What one decision takes, and what it looks at.

        Args:
            policy: as `bind` gave it.
            layout: of the trace whose rows it is asked about.

        Raises:
            UserError: as a replay does.
        """
        key = (policy.timed_as, getattr(policy, "function", type(policy)))
        with self._lock:
            if key not in self._found:
                self._found[key] = _look_up(policy, layout)
            return self._found[key]


MICROBENCHMARKS = Microbenchmarks()
"""Those of this process."""


def time_rule(policy: Sequential, times: Times, layout: Layout) -> RuleTime:
    """What a decision takes that the cost does not know; see above.

    Args:
        policy: as `bind` gave it.
        times: of the cost.
        layout: of the trace.

    Raises:
        UserError: as a replay does.
    """
    own_s, names, is_kept = MICROBENCHMARKS.rule(policy, layout)
    needed = {name for name in names if not name.startswith("score:")}
    like, reading_s = _reading(needed, times, layout) if needed else ("", 0.0)
    seconds = float(f"{own_s + reading_s:.{_DIGITS}g}")
    how = HERE if is_kept else HERE_ONCE
    if like:
        return RuleTime(seconds, f"{how}, with the reading time of {like}")
    return RuleTime(seconds, f"{how}, without reading its columns" if needed else how)


def said(rules: Iterable[tuple[Policy, RuleTime]]) -> list[str]:
    """How rules were timed, in one line; none if there is no rule.

    Args:
        rules: policies, and what a decision of each takes.
    """
    found: dict[str, list[str]] = {}
    for policy, taken in rules:
        name = policy.timed_as.removeprefix(FUNCTION)
        names = found.setdefault(taken.how, [])
        if name not in names:
            names.append(name)
    parts = [f"{', '.join(names)}: {how}" for how, names in found.items()]
    return [f"time of rules: {'; '.join(parts)}"] if parts else []


def _reading(needed: set[str], times: Times, layout: Layout) -> tuple[str, float]:
    """The policy that reads the columns, and its seconds without its rule; ("", 0) if none does.

    Of several that read all of them and no more than the others do, the one whose own rule takes
    least: the less is taken off, the less it matters that the times are another machine's. Where no
    policy that was timed reads all of them, the dearest one stands in.
    """
    found: list[tuple[tuple[bool, float, float], str, float]] = []
    for name, seconds in times.timed_rules().items():
        try:
            policy = chain_of(policies.get(name)(), "no chain reads so")  # type: ignore[call-arg]
            columns = _statistics(policy, layout.trace.sampler)
            if policy.head is not None or not columns:
                continue
            own_s = MICROBENCHMARKS.rule(policy, layout).seconds
        except (UserError, TypeError):  # another package's, fitted, or not under this sampler
            continue
        covers = columns >= needed
        first, then = (float(len(columns - needed)), own_s) if covers else (-seconds, 0.0)
        found.append(((not covers, first, then), name, max(0.0, seconds - own_s)))
    if not found:
        return "", 0.0
    _, name, seconds = min(found)
    return name, seconds


def _statistics(policy: Policy, sampler: Sampler) -> set[str]:
    return {name for name in policy.columns(sampler) if not name.startswith("score:")}


def _look_up(policy: Sequential, layout: Layout) -> Timed:
    """What `Microbenchmarks.rule` gives, from the disk if it is kept there."""
    names, key = policy.columns(layout.trace.sampler), key_of(policy)
    known = kept(key) if key else None
    if known is not None and not isinstance(policy, FunctionPolicy):
        return Timed(known, names, kept=True)
    script = _script(policy, layout)
    if isinstance(policy, FunctionPolicy):
        names = policy.looks_at(script.rows)
    if known is None:
        measured = _timed(policy, script)
        known = keep(key, str(policy), measured) if key and script.decisions else None
        if known is None:
            return Timed(measured, names, kept=False)
    return Timed(known, names, kept=True)


def _timed(policy: Sequential, script: _Script) -> float:
    """Seconds of a decision: the least of several medians."""
    if not script.decisions:
        return 0.0
    first_s = _run(policy, script)
    runs = int(np.clip(_BUDGET_S / max(first_s, 1e-9), 3, _MOST_RUNS))
    taken = np.array([_run(policy, script) for _ in range(runs)])
    groups = np.array_split(taken, min(_GROUPS, max(1, runs // 3)))
    return min(float(np.median(group)) for group in groups) / script.decisions


def _run(policy: Sequential, script: _Script) -> float:
    """Ask the rule all over again; seconds."""
    begin, limit, trips = policy.begin, policy.limit, policy.trips
    proposed, update = policy.proposed, policy.update
    state: State = ()
    begun = time.perf_counter()
    for name, arguments in script.calls:
        if name == "trips":
            _, state = trips(state, *arguments)
        elif name == "limit":
            limit(state, *arguments)
        elif name == "proposed":
            proposed(state, *arguments)
        elif name == "update":
            state = update(state, *arguments)
        else:
            state = begin(*arguments)
    return time.perf_counter() - begun


def _script(policy: Sequential, layout: Layout) -> _Script:
    """What a plain replay asks the rule about the first tokens of the trace.

    A rule that drafts few of them here may draft more elsewhere, and its steps without a draft are
    no part of a decision: it is asked about one token a step.
    """
    found = _Script([], 0)
    for least in (0, 1):
        asked = _Asked(policy, least)
        try:
            interpreted.walk(asked, layout, 1)
        except _EnoughError:
            pass
        except Exception:  # asked against its limit: a row may be missing, or the rule be lost
            if not least:
                raise
            break
        drafted = [a[0].drafted for name, a in asked.calls if name == "update"]
        found = _Script(asked.calls, int(sum(policy.calls(n) for n in drafted)))
        if found.decisions >= len(drafted) / _RARE:
            break
    return found


class _EnoughError(Exception):
    """The rule has been asked about `_TOKENS` tokens, or at `_STEPS` steps."""


class _Asked(Sequential):
    """A policy that notes what it is asked.

    Args:
        policy: that is asked.
        least: tokens that it drafts at least, unless it stops before.
    """

    name = "asked"

    def __init__(self, policy: Sequential, least: int) -> None:
        self.policy, self.max_draft, self.least = policy, policy.max_draft, least
        self.needs_future = policy.needs_future  # pyright: ignore[reportAttributeAccessIssue]
        self.calls: list[tuple[str, tuple[Any, ...]]] = []  # pyright: ignore
        self.tokens = self.steps = 0

    def __str__(self) -> str:
        return str(self.policy)

    @property
    def carried(self) -> Any:
        return self.policy.carried

    def columns(self, sampler: Sampler) -> tuple[str, ...]:
        return self.policy.columns(sampler)

    def begin(self, sequence: int) -> State:
        self.calls.append(("begin", (sequence,)))
        return self.policy.begin(sequence)

    def limit(self, state: State, ahead: int) -> int:
        self.calls.append(("limit", (ahead,)))
        return max(self.least, self.policy.limit(state, ahead))

    def trips(self, state: State, depth: int, row: Row) -> tuple[bool, State]:
        self.tokens += 1
        self.calls.append(("trips", (depth, row)))
        return self.policy.trips(state, depth, row)

    def proposed(self, state: State, drafted: int) -> int:
        self.calls.append(("proposed", (drafted,)))
        return self.policy.proposed(state, drafted)

    def update(self, state: State, outcome: Outcome) -> State:
        self.calls.append(("update", (outcome,)))
        self.steps += 1
        if self.tokens >= _TOKENS or self.steps >= _STEPS:
            raise _EnoughError
        return self.policy.update(state, outcome)
