"""Controllers that do not compile, as the loop asks them: one's own, and rules a batch shares."""

from __future__ import annotations

from typing import Any

import numpy as np

from simkit.drafters.layout import Layout, Read, SequenceDrafts
from simkit.errors import PolicyError
from simkit.policies import Outcome
from simkit.policies.base import chain_of
from simkit.policies.verdicts import asked as asked_once
from simkit.policies.verdicts import longest, sent
from simkit.serving.controllers.base import ByRule, View
from simkit.serving.controllers.function import Plain
from simkit.serving.plans import Plan
from simkit.serving.state import MADE, SEEN, Buffers, Server
from traces.messages import how_many


def asked(planned: Plan, server: Server, room: Buffers) -> _Own | _Shared:
    """Whom the loop asks, at the beginning of a run."""
    bound = planned.bound
    if isinstance(bound, ByRule):
        return _Shared(bound, planned.layout, server, room)
    assert isinstance(bound, Plain)
    bound.begin(planned.rules.max_batch)
    return _Own(bound)


class _Own:
    """A controller of one's own; it is given copies, which it may keep or change."""

    def __init__(self, controller: Plain) -> None:
        self.controller = controller

    def decide(self, view: View, drafted: np.ndarray) -> None:
        given = self.controller.lengths(_copied(view))
        drafted[:] = whole_lengths(self.controller, given, len(drafted))

    def choose(self, view: View, drafted: np.ndarray, proposed: np.ndarray) -> None:
        self.view = _copied(view)
        given = self.controller.chosen(self.view, drafted.copy())
        proposed[:] = np.minimum(whole_lengths(self.controller, given, len(drafted)), drafted)

    def observe(self, view: View, *outcome: np.ndarray) -> None:
        drafted, proposed, accepted, ended = (column.copy() for column in outcome)
        self.controller.observe(self.view, drafted, proposed, accepted, ended > 0)


def _copied(view: View) -> View:
    return View._make(x.copy() if isinstance(x, np.ndarray) else x for x in view)


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

    def __init__(self, controller: ByRule, layout: Layout, server: Server, room: Buffers) -> None:
        policy = chain_of(controller.policy, "no rule for a batch")
        self.policy, self.mean = policy, controller.together == "mean"
        self.layout, self.server, self.room = layout, server, room
        self.read: Read = layout.columns(policy.columns(layout.trace.sampler))
        self.drafts: dict[int, SequenceDrafts] = {}
        self.states: dict[int, tuple] = {-1: policy.begin(0)}

    def decide(self, view: View, drafted: np.ndarray) -> None:
        n, sequences = len(drafted), self.server.sequence[view.request]
        self.known = {
            int(r): self._state(int(r), int(s))
            for r, s in zip(view.request, sequences, strict=True)
        }
        starts = self.room.seen[SEEN.row, :n] - self.layout.offsets[sequences] + 1
        rooms = self._rooms(view)
        drafts = [
            iter(self._drafts(int(s)).draft(int(start), room))
            for s, start, room in zip(sequences, starts, rooms, strict=True)
        ]
        depth = self._together(view, drafts, rooms) if self.mean else self._all(view, drafts, rooms)
        self.depth = depth
        self.sent = max(sent(self.policy, self.states[k], depth) for k in self._asked(view))
        drafted[:] = depth
        self.room.made[MADE.calls, :n] = self.policy.calls(depth)

    def choose(self, view: View, drafted: np.ndarray, proposed: np.ndarray) -> None:
        proposed[:] = self.sent

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
                stop, self.states[r] = asked_once(self.policy, self.states[r], depth, row)
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
            stop, self.states[-1] = asked_once(self.policy, self.states[-1], depth, mean)
            if stop:
                break
            going = [(d, room) for row, d, room in rows if row is not None and depth < room]
        return depth
