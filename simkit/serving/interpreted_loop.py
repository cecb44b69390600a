"""The loop for controllers that do not compile: one's own, and rules that a batch shares."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from simkit.drafters.layout import Layout, Read, SequenceDrafts
from simkit.errors import PolicyError
from simkit.policies import Outcome
from simkit.policies.base import chain_of
from simkit.policies.verdicts import asked, longest, sent
from simkit.serving import loop
from simkit.serving.controllers.base import ByRule, View
from simkit.serving.controllers.function import Plain
from simkit.serving.iteration import judge, plan
from simkit.serving.loop import Buffers, buffers
from simkit.serving.plans import Plan
from simkit.serving.state import (
    ARRIVED,
    BEFORE,
    ITERATIONS,
    RETURNED,
    STARTED,
    Logs,
    Server,
)
from traces.kernels import compiled
from traces.messages import how_many


class _Parts:
    """The parts of an iteration, each compiled by itself and kept."""

    def __init__(self) -> None:
        self.begin, self.settle, self.close = loop.begin, loop.settle, loop.close
        self.plan, self.judge = (compiled(part.py_func) for part in (plan, judge))


@cache
def _parts() -> _Parts:
    return _Parts()


def drive(planned: Plan, server: Server, rng: np.random.Generator) -> tuple[Logs, Buffers, int]:
    """Simulate to the end; see `simkit.serving.loop.drive`."""
    bound = planned.bound
    assert isinstance(bound, Plain | ByRule)
    asks = _Shared(bound, planned.layout) if isinstance(bound, ByRule) else _Own(bound)
    parts, prices = _parts(), planned.prices
    outcomes, rules = planned.outcomes, planned.rules
    room, logs = buffers(rules, outcomes), Logs()
    asks.begin(rules.max_batch)
    while True:
        n, prefilling = parts.begin(server, outcomes, rules, room)
        if n < 0:
            logs.empty(server)
            if n == -1:
                return logs, room, -1
            continue
        made = room.made
        if n > 0:
            view = _view(server, room, room.unknown, n, prefilling)
            made[0, :n] = asks.lengths(view, server, room.seen[9, :n])
            beyond = parts.plan(server, outcomes, rules, n, room.seen, made)
            if beyond >= 0:
                return logs, room, beyond
            made[4, :n] = asks.calls
        n, held, m = parts.settle(server, outcomes, rules, room, n)
        if n > 0:
            view = _view(server, room, room.confidence, n, m)
            made[1, :n] = asks.chosen(view, made[0, :n].copy())
            parts.judge(server, outcomes, n, room.seen, made, rng)
            asks.observe(view, *[made[k, :n].copy() for k in (0, 1, 2, 6)])
        parts.close(server, outcomes, rules, prices, room, n, held, m)


def _view(server: Server, room: Buffers, confidence: np.ndarray, n: int, prefilling: int) -> View:
    """See `simkit.serving.loop.seen_by`; of copies."""
    count = server.count
    waiting = int(count[ARRIVED] - count[STARTED] + count[RETURNED])
    rows: list[Any] = [room.seen[k, :n].copy() for k in range(9)]
    where: list[Any] = [int(count[ITERATIONS]), float(server.clock[0]), int(prefilling)]
    return View._make([*where, waiting, int(count[BEFORE]), *rows, confidence[:n].copy()])


class _Own:
    """A controller of one's own."""

    calls = 0

    def __init__(self, controller: Plain) -> None:
        self.controller = controller

    def begin(self, max_batch: int) -> None:
        self.controller.begin(max_batch)

    def lengths(self, view: View, server: Server, rows: np.ndarray) -> np.ndarray:
        return whole_lengths(self.controller, self.controller.lengths(view), len(view.request))

    def chosen(self, view: View, drafted: np.ndarray) -> np.ndarray:
        found = whole_lengths(self.controller, self.controller.chosen(view, drafted), len(drafted))
        return np.minimum(found, drafted)

    def observe(self, view: View, *outcome: np.ndarray) -> None:
        drafted, proposed, accepted, ended = outcome
        self.controller.observe(view, drafted, proposed, accepted, ended > 0)


def whole_lengths(controller: Plain, given: Any, n: int) -> np.ndarray:
    """The lengths that a controller gave.

    Raises:
        PolicyError: they are no whole numbers, below 0, or not one of each request.
    """
    found = np.asarray(given)
    if found.dtype.kind not in "iu" or found.shape not in ((), (n,)) or (found < 0).any():
        raise PolicyError(
            f"{controller} must give a whole number >= 0, or one of each of"
            f" {how_many(n, 'request')}, not"
            f" {str(given)[:60]}"
        )
    return np.broadcast_to(np.minimum(found, controller.max_draft), (n,))


class _Shared:
    """A rule whose answers make one length for the batch."""

    def __init__(self, controller: ByRule, layout: Layout) -> None:
        policy = chain_of(controller.policy, "no rule for a batch")
        self.policy, self.mean = policy, controller.together == "mean"
        self.layout = layout
        self.read: Read = layout.columns(policy.columns(layout.trace.sampler))
        self.drafts: dict[int, SequenceDrafts] = {}
        self.states: dict[int, tuple] = {}
        self.calls = 0

    def begin(self, max_batch: int) -> None:
        self.states = {-1: self.policy.begin(0)}

    def lengths(self, view: View, server: Server, rows: np.ndarray) -> np.ndarray:
        sequences = server.sequence[view.request]
        self.known = {
            int(r): self._state(int(r), int(s))
            for r, s in zip(view.request, sequences, strict=True)
        }
        starts = rows - self.layout.offsets[sequences] + 1
        rooms = self._rooms(view)
        drafts = [
            iter(self._drafts(int(s)).draft(int(start), room))
            for s, start, room in zip(sequences, starts, rooms, strict=True)
        ]
        depth = self._together(view, drafts, rooms) if self.mean else self._all(view, drafts, rooms)
        self.calls = int(self.policy.calls(depth))
        self.depth = depth
        self.sent = max(sent(self.policy, self.states[k], depth) for k in self._asked(view))
        return np.full(len(view.request), depth)

    def chosen(self, view: View, drafted: np.ndarray) -> np.ndarray:
        return np.full(len(drafted), self.sent)

    def observe(self, view: View, *outcome: np.ndarray) -> None:
        _, _, accepted, ended = outcome
        if self.mean:
            told = Outcome(self.depth, self.sent, round(float(accepted.mean())), False)
            self.states[-1] = self.policy.update(self.states[-1], told)
            return
        for r, a, end in zip(view.request.tolist(), accepted.tolist(), ended.tolist(), strict=True):
            eos = bool(end) and a == self.sent
            told = Outcome(self.depth, self.sent, a, eos)
            self.states[r] = self.policy.update(self.states[r], told)

    def _state(self, request: int, sequence: int) -> tuple:
        if self.mean:
            return self.states[-1]
        if request not in self.states:
            self.states[request] = self.policy.begin(sequence)
        return self.states[request]

    def _asked(self, view: View) -> list[int]:
        return [-1] if self.mean else view.request.tolist()

    def _drafts(self, sequence: int) -> SequenceDrafts:
        if sequence not in self.drafts:
            self.drafts[sequence] = self.layout.sequence(self.read, sequence)
        return self.drafts[sequence]

    def _rooms(self, view: View) -> list[int]:
        """The longest draft of each: the rule's bound, and what its budget leaves."""
        left = self.layout.trace.max_new_tokens - view.tokens - 1
        bound = [longest(self.policy, self.known[r]) for r in view.request.tolist()]
        most = [min(limit, self.policy.max_draft) for limit in bound]
        return [max(0, min(k, int(room))) for k, room in zip(most, left, strict=True)]

    def _all(self, view: View, drafts: list, rooms: list[int]) -> int:
        """Draft until every request's rule has stopped, or its draft is at its end."""
        going = {
            r: d for r, d, room in zip(view.request.tolist(), drafts, rooms, strict=True) if room
        }
        left = dict(zip(view.request.tolist(), rooms, strict=True))
        depth = 0
        while going:
            rows = {r: next(draft, None) for r, draft in going.items()}
            rows = {r: row for r, row in rows.items() if row is not None}
            if not rows:
                break
            depth += 1
            for r, row in rows.items():
                stop, self.states[r] = asked(self.policy, self.states[r], depth, row)
                if stop or depth >= left[r]:
                    del going[r]
            going = {r: draft for r, draft in going.items() if r in rows}
        return depth

    def _together(self, view: View, drafts: list, rooms: list[int]) -> int:
        """Draft until the rule stops that is asked with the mean row."""
        going = [(draft, room) for draft, room in zip(drafts, rooms, strict=True) if room]
        depth = 0
        while going:
            rows = [(next(draft, None), draft, room) for draft, room in going]
            some = [row for row, _, _ in rows if row is not None]
            if not some:
                break
            depth += 1
            mean = tuple(float(np.mean(column)) for column in zip(*some, strict=True))
            stop, self.states[-1] = asked(self.policy, self.states[-1], depth, mean)
            if stop:
                break
            going = [(d, room) for row, d, room in rows if row is not None and depth < room]
        return depth
