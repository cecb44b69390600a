"""Controllers that do not compile, as the loop asks them: one's own, and rules a batch shares."""

from __future__ import annotations

from typing import Any

import numpy as np

from simkit.drafters.layout import Layout, Read, SequenceDrafts
from simkit.errors import PolicyError
from simkit.policies.base import chain_of
from simkit.policies.verdicts import decisions
from simkit.serving.controllers.base import ByRule, View
from simkit.serving.controllers.function import Plain
from simkit.serving.plans import ControllerPlan
from simkit.serving.prices import Prices
from simkit.serving.rules import All, Came, Mean
from simkit.serving.state import MADE, SEEN, Buffers, Server
from traces.messages import how_many


def asked(planned: ControllerPlan, server: Server, room: Buffers) -> _Own | _Shared:
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

    def decide(self, view: View, prices: Prices, drafted: np.ndarray) -> None:
        given = self.controller.lengths(_copied(view))
        drafted[:] = whole_lengths(self.controller, given, len(drafted))

    def choose(self, view: View, prices: Prices, drafted: np.ndarray, proposed: np.ndarray) -> None:
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
        columns = policy.columns(layout.trace.sampler)
        kind = Mean if controller.together == "mean" else All
        self.rule = kind(policy, columns, policy.max_draft)
        self.layout, self.server, self.room = layout, server, room
        self.read: Read = layout.columns(columns)
        self.drafts: dict[int, SequenceDrafts] = {}

    def decide(self, view: View, prices: Prices, drafted: np.ndarray) -> None:
        n, rule, sequences = len(drafted), self.rule, self.server.sequence[view.request]
        rule.open(view, sequences.tolist())
        starts = self.room.seen[SEEN.row, :n] - self.layout.offsets[sequences] + 1
        drafts = [
            iter(self._drafts(s).draft(start, room))
            for s, start, room in zip(sequences.tolist(), starts.tolist(), rule.rooms, strict=True)
        ]
        while any(rule.going):
            going = zip(drafts, rule.going, strict=True)
            rows = [next(draft, None) if goes else None for draft, goes in going]
            rule.going = [row is not None for row in rows]  # others end with an EOS
            if any(rule.going):
                rule.told([False] * n, [() if row is None else row for row in rows])
        drafted[:] = rule.drafted()
        self.room.made[MADE.calls, :n] = decisions(rule.policy, rule.depth)

    def choose(self, view: View, prices: Prices, drafted: np.ndarray, proposed: np.ndarray) -> None:
        proposed[:] = self.rule.chosen(view, drafted.tolist())

    def observe(self, view: View, *outcome: np.ndarray) -> None:
        drafted, proposed, accepted, done = (column.tolist() for column in outcome)
        counts = zip(accepted, proposed, done, strict=True)
        ended = [bool(whole) and a == sent for a, sent, whole in counts]
        self.rule.observe(view, Came(drafted, proposed, accepted, [bool(x) for x in done], ended))

    def _drafts(self, sequence: int) -> SequenceDrafts:
        if sequence not in self.drafts:
            self.drafts[sequence] = self.layout.sequence(self.read, sequence)
        return self.drafts[sequence]
