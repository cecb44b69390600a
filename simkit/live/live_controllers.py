"""Controllers of servers as deciders, run as they are written.

A simulation asks them with a trace's outcomes in place of models (`simkit.serving`); nothing of its
loop is used here.
"""

from __future__ import annotations

import numpy as np

from simkit.errors import PolicyError
from simkit.live.deciders import check
from simkit.live.settings import DecoderSettings
from simkit.policies.base import chain_of
from simkit.serving import Plain, View
from simkit.serving.controllers import ByLength, ByRule, Controller
from simkit.serving.interpreted import whole_lengths
from simkit.serving.prices import Prices
from simkit.serving.rules import All, Came, Decider, Each, Mean, Rows
from traces.schema import DRAFT_STATISTICS


class _Lengths(Decider):
    """A controller whose slots are functions of arrays."""

    whole_view = True

    def __init__(self, controller: ByLength, max_draft: int, prices: Prices | None) -> None:
        columns = (controller.column,) if controller.column else ()
        super().__init__(f"policy:{controller}", columns, max_draft)
        self.controller, self.prices, self.looks = controller, prices, bool(columns)

    def begin(self, max_batch: int) -> None:
        self.state = self.controller.begin(max_batch)
        self.params = self.controller.params

    def wanted(self, view: View, sequences: list[int]) -> list[int]:
        found = np.zeros(len(view.room), np.int64)
        self.controller.slots.decide(self.params, self.state, view, self.prices, found)
        self.known = view.confidence
        return np.clip(found, 0, view.room).tolist()

    def ask(self, rows: Rows) -> None:
        for k, going in enumerate(self.going):
            if going:
                self.known[k, self.depth - 1] = rows[k][0]

    def chosen(self, view: View, drafted: list[int]) -> list[int]:
        made = np.array(drafted, np.int64)
        self.view, found = _decided(view), made.copy()
        slots = self.controller.slots
        slots.choose(self.params, self.state, self.view, self.prices, made, found)
        return found.tolist()

    def observe(self, view: View, came: Came) -> None:
        counts = (came.drafted, came.proposed, came.accepted, came.done)
        arrays = [np.array(column, np.int64) for column in counts]
        self.controller.slots.observe(self.params, self.state, self.view, *arrays)


class _OwnDecider(Decider):
    """A controller of one's own."""

    looks, whole_view = False, True

    def __init__(self, controller: Plain, max_draft: int) -> None:
        super().__init__(f"policy:{controller}", (), max_draft)
        self.controller = controller

    def begin(self, max_batch: int) -> None:
        self.controller.begin(max_batch)

    def wanted(self, view: View, sequences: list[int]) -> list[int]:
        found = whole_lengths(self.controller, self.controller.lengths(view), len(view.room))
        return np.clip(found, 0, view.room).tolist()

    def chosen(self, view: View, drafted: list[int]) -> list[int]:
        self.view, made = _decided(view), np.array(drafted, np.int64)
        given = self.controller.chosen(self.view, made.copy())
        return np.minimum(whole_lengths(self.controller, given, len(made)), made).tolist()

    def observe(self, view: View, came: Came) -> None:
        drafted, proposed, accepted = (
            np.array(column, np.int64) for column in (came.drafted, came.proposed, came.accepted)
        )
        done = np.array(came.done)
        self.controller.observe(self.view, drafted, proposed, accepted, done)


def _decided(view: View) -> View:
    """What a controller sees when the drafts are there, and those who wait are to come."""
    return view._replace(waiting=0, prefilling=view.waiting)


def decider(
    controller: Controller, settings: DecoderSettings, prices: Prices | None = None
) -> Decider:
    """What runs a controller.

    Args:
        controller: `simkit.serving.parse` makes one of a spec.
        settings: how to decode.
        prices: that a controller is bound to; None for those that take nothing from them.

    Raises:
        PolicyError: it cannot run live: it needs the future, prices that are not there, what is
            not known while drafting, a head, or verified batches read anew.
    """
    if controller.needs_future:
        raise PolicyError(f"{controller} needs the future: it cannot run live")
    most = max(1, min(controller.max_draft, settings.max_new_tokens - 1))
    if isinstance(controller, Plain):
        return _OwnDecider(controller, most)
    if isinstance(controller, ByLength):
        if controller.column and controller.column not in DRAFT_STATISTICS:
            raise PolicyError(
                f"{controller} reads {controller.column}, which is not known while drafting"
            )
        if prices is None and needs_prices(controller):
            raise PolicyError(f"{controller} needs times: give a cost (--cost)")
        return _Lengths(controller.bind(prices) if prices else controller, most, prices)
    if not isinstance(controller, ByRule):
        raise PolicyError(f"{controller}: cannot run live")
    policy = chain_of(controller.policy, f"{controller} cannot run live")
    if policy.head:
        raise PolicyError(f"{controller}: {policy} reads a head, which a batch cannot run")
    if policy.extra_passes:
        raise PolicyError(
            f"{controller}: {policy} drafts after extra passes, which a batch cannot run"
        )
    kinds = {"each": Each, "all": All, "mean": Mean}
    return kinds[controller.together](policy, check(policy, settings, {}), most)


def needs_prices(controller: Controller) -> bool:
    """Whether a controller decides by times."""
    if not isinstance(controller, ByLength):
        return False
    return type(controller).bind is not ByLength.bind or bool(controller.column)
