"""Who says how far a batch drafts: controllers, run as they are written.

A decider is opened with what it sees, told after each draft round what was drafted, asked what of
it is to be verified, and told what came of that. A simulation does the same with a trace's
outcomes in place of models (`simkit.serving`); nothing of its loop is used here.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import NamedTuple

import numpy as np

from simkit.errors import PolicyError
from simkit.live.settings import DecoderSettings
from simkit.live.timed import check
from simkit.policies import Outcome
from simkit.policies.base import chain_of
from simkit.policies.verdicts import asked, longest, sent
from simkit.serving import Plain, View
from simkit.serving.controllers import ByLength, ByRule, Controller
from simkit.serving.interpreted import whole_lengths
from simkit.serving.prices import Prices
from traces.schema import DRAFT_STATISTICS

Rows = list[tuple[float, ...]]
"""Of each request, the values of the columns that a decider reads."""


class Came(NamedTuple):
    """What came of an iteration, of each request.

    Attributes:
        drafted: (n,) int64, tokens.
        proposed: (n,) int64, of those, the ones that were verified.
        accepted: (n,) int64.
        done: whether its output is whole.
        ended: whether it ended with an EOS that was drafted.
    """

    drafted: np.ndarray
    proposed: np.ndarray
    accepted: np.ndarray
    done: list[bool]
    ended: list[bool]


class Decider(ABC):
    """See the module.

    Args:
        columns: the draft's statistics of each drafted token that it reads.
        max_draft: the longest draft.

    Attributes:
        going: of each request, whether it drafts on.
        made: of each request, tokens drafted.
    """

    def __init__(self, columns: tuple[str, ...], max_draft: int) -> None:
        self.columns, self.max_draft = columns, max_draft
        self.going: list[bool] = []
        self.made: list[int] = []

    @abstractmethod
    def begin(self, max_batch: int) -> None:
        """Before the first iteration of batches of at most so many."""

    def open(self, view: View, sequences: list[int]) -> None:
        """Begin an iteration: whose drafts begin, as `going`."""
        self.rooms = self.wanted(view, sequences)
        self.going = [room > 0 for room in self.rooms]
        self.made = [0] * len(self.rooms)
        self.depth = 0

    @abstractmethod
    def wanted(self, view: View, sequences: list[int]) -> list[int]:
        """The longest draft of each request."""

    def told(self, eos: list[bool], rows: Rows) -> None:
        """A draft round was made: whose token is an EOS, and what is known of the tokens."""
        self.depth += 1
        self.ask(rows)
        for k, room in enumerate(self.rooms):
            if self.made[k] == self.depth and (eos[k] or self.depth >= room):
                self.going[k] = False

    def ask(self, rows: Rows) -> None:
        """Count the new tokens of those that draft, and say who stops."""
        for k, going in enumerate(self.going):
            self.made[k] += going

    def drafted(self) -> np.ndarray:
        """Tokens of each request's draft, (n,) int64."""
        return np.array(self.made, np.int64)

    def confidence(self) -> np.ndarray:
        """`View.confidence` of the drafts, (n, K) or (n, 0)."""
        return np.full((len(self.made), 0), np.nan)

    @abstractmethod
    def chosen(self, view: View, drafted: np.ndarray) -> np.ndarray:
        """Of the drafted tokens, how many are verified."""

    @abstractmethod
    def observe(self, view: View, came: Came) -> None:
        """What came of it."""


class _Lengths(Decider):
    """A controller whose slots are functions of arrays."""

    def __init__(self, controller: ByLength, max_draft: int, prices: Prices | None) -> None:
        columns = (controller.column,) if controller.column else ()
        super().__init__(columns, max_draft)
        self.controller, self.prices = controller, prices

    def begin(self, max_batch: int) -> None:
        self.state = self.controller.begin(max_batch)
        self.params = self.controller.params

    def wanted(self, view: View, sequences: list[int]) -> list[int]:
        found = np.zeros(len(view.room), np.int64)
        self.controller.slots.decide(self.params, self.state, view, self.prices, found)
        self.known = np.full((len(found), self.max_draft if self.columns else 0), np.nan)
        return np.clip(found, 0, view.room).tolist()

    def ask(self, rows: Rows) -> None:
        super().ask(rows)
        if self.columns:
            for k, going in enumerate(self.going):
                if going:
                    self.known[k, self.depth - 1] = rows[k][0]

    def confidence(self) -> np.ndarray:
        return self.known

    def chosen(self, view: View, drafted: np.ndarray) -> np.ndarray:
        found = drafted.copy()
        slots = self.controller.slots
        slots.choose(self.params, self.state, view, self.prices, drafted, found)
        return found

    def observe(self, view: View, came: Came) -> None:
        given = came.drafted, came.proposed, came.accepted, np.array(came.done, np.int64)
        self.controller.slots.observe(self.params, self.state, view, *given)


class _OwnDecider(Decider):
    """A controller of one's own."""

    def __init__(self, controller: Plain, max_draft: int) -> None:
        super().__init__((), max_draft)
        self.controller = controller

    def begin(self, max_batch: int) -> None:
        self.controller.begin(max_batch)

    def wanted(self, view: View, sequences: list[int]) -> list[int]:
        found = whole_lengths(self.controller, self.controller.lengths(view), len(view.room))
        return np.clip(found, 0, view.room).tolist()

    def chosen(self, view: View, drafted: np.ndarray) -> np.ndarray:
        given = self.controller.chosen(view, drafted.copy())
        found = whole_lengths(self.controller, given, len(drafted))
        return np.minimum(found, drafted)

    def observe(self, view: View, came: Came) -> None:
        given = came.drafted, came.proposed, came.accepted, np.array(came.done)
        self.controller.observe(view, *given)


class _Rule(Decider):
    """A draft-length policy that is asked after every round."""

    def __init__(self, controller: ByRule, max_draft: int, settings: DecoderSettings) -> None:
        policy = chain_of(controller.policy, "no rule for a batch")
        super().__init__(policy.columns(settings.sampler), max_draft)
        self.policy = policy
        self.states: dict[int, tuple] = {}

    def begin(self, max_batch: int) -> None:
        self.states = {}

    def wanted(self, view: View, sequences: list[int]) -> list[int]:
        self.who = view.request.tolist()
        for r, sequence in zip(self.who, sequences, strict=True):
            if r not in self.states:
                self.states[r] = self.policy.begin(sequence)
        limits = [
            min(longest(self.policy, self.states[r]), self.policy.max_draft) for r in self.who
        ]
        return [max(0, min(k, int(room))) for k, room in zip(limits, view.room, strict=True)]


class _Each(_Rule):
    """Every request stops by itself."""

    def ask(self, rows: Rows) -> None:
        super().ask(rows)
        for k, r in enumerate(self.who):
            if self.going[k]:
                stop, self.states[r] = asked(self.policy, self.states[r], self.depth, rows[k])
                self.going[k] = not stop

    def chosen(self, view: View, drafted: np.ndarray) -> np.ndarray:
        found = [
            sent(self.policy, self.states[r], n)
            for r, n in zip(self.who, drafted.tolist(), strict=True)
        ]
        return np.array(found, np.int64)

    def observe(self, view: View, came: Came) -> None:
        counts = (came.drafted.tolist(), came.proposed.tolist(), came.accepted.tolist())
        columns = (*counts, came.ended)
        for r, *outcome in zip(self.who, *columns, strict=True):
            self.states[r] = self.policy.update(self.states[r], Outcome(*outcome))


class _All(_Each):
    """One length: on until every request's rule has stopped, or its draft is at its end."""

    def drafted(self) -> np.ndarray:
        return np.full(len(self.made), self.depth, np.int64)

    def chosen(self, view: View, drafted: np.ndarray) -> np.ndarray:
        most = max(sent(self.policy, self.states[r], self.depth) for r in self.who)
        return np.full(len(drafted), most, np.int64)


class _Mean(_Rule):
    """One length, of one rule that is asked with the mean row of the drafts that have not ended."""

    def wanted(self, view: View, sequences: list[int]) -> list[int]:
        if -1 not in self.states:
            self.states[-1] = self.policy.begin(0)
        limit = min(longest(self.policy, self.states[-1]), self.policy.max_draft)
        return [max(0, min(limit, int(room))) for room in view.room]

    def ask(self, rows: Rows) -> None:
        super().ask(rows)
        some = [row for row, going in zip(rows, self.going, strict=True) if going]
        mean = tuple(float(np.mean(column)) for column in zip(*some, strict=True))
        stop, self.states[-1] = asked(self.policy, self.states[-1], self.depth, mean)
        if stop:
            self.going = [False] * len(self.going)

    def drafted(self) -> np.ndarray:
        return np.full(len(self.made), self.depth, np.int64)

    def chosen(self, view: View, drafted: np.ndarray) -> np.ndarray:
        most = sent(self.policy, self.states[-1], self.depth)
        return np.full(len(drafted), most, np.int64)

    def observe(self, view: View, came: Came) -> None:
        mean = round(float(came.accepted.mean()))
        told = Outcome(self.depth, int(came.proposed[0]), mean, False)
        self.states[-1] = self.policy.update(self.states[-1], told)


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
        raise PolicyError(f"{controller}: {policy} reads a head, which a batch has not")
    if policy.extra_passes:
        raise PolicyError(f"{controller}: {policy} reads verified batches anew")
    check(policy, settings, {})
    kinds = {"each": _Each, "all": _All, "mean": _Mean}
    return kinds[controller.together](controller, most, settings)


def needs_prices(controller: Controller) -> bool:
    """Whether a controller decides by times."""
    if not isinstance(controller, ByLength):
        return False
    return type(controller).bind is not ByLength.bind or bool(controller.column)
