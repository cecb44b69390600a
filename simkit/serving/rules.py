"""Who says how far requests are drafted, asked after each draft round, whatever makes the rounds.

A decider is opened with what it sees, told after each round what was drafted, asked what of it is
to be verified, and told what came of that. Here are policies as deciders: one for each request, one
length for all, or one that is asked for their mean. A simulation tells them a trace's rows, a live
decoder those of its models.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, NamedTuple, Protocol

import numpy as np

from simkit.policies import Outcome, Sequential
from simkit.policies.verdicts import asked, longest, sent

Rows = list[tuple[float, ...]]
"""Of each request, the values of the columns that a decider reads."""


class Seen(Protocol):
    """What every decider sees; `simkit.serving.View` has more."""

    @property
    def request(self) -> Any:
        """Numbers of the requests."""
        ...

    @property
    def room(self) -> Any:
        """Tokens that each may draft."""
        ...


class Came(NamedTuple):
    """What came of an iteration, of each request.

    Attributes:
        drafted: tokens.
        proposed: of those, the ones that were verified.
        accepted: of those again.
        done: whether its output is whole.
        ended: whether it ended with an EOS that was drafted.
    """

    drafted: list[int]
    proposed: list[int]
    accepted: list[int]
    done: list[bool]
    ended: list[bool]


class Decider(ABC):
    """See the module.

    Args:
        name: of its time in a log.
        columns: the draft's statistics of each drafted token that it reads.
        max_draft: the longest draft.

    Attributes:
        going: of each request, whether it drafts on.
        made: of each request, tokens drafted.
        looks: whether it is asked after a round.
        extra_passes: whether the draft reads verified tokens anew.
        whole_view: whether it must see a `View`.
    """

    looks, extra_passes, whole_view = True, False, False

    def __init__(self, name: str, columns: tuple[str, ...], max_draft: int) -> None:
        self.name, self.columns, self.max_draft = name, columns, max_draft
        self.going: list[bool] = []
        self.made: list[int] = []

    @abstractmethod
    def begin(self, max_batch: int) -> None:
        """Before the first iteration of batches of at most so many."""

    def open(self, view: Seen, sequences: list[int]) -> None:
        """Begin an iteration: whose drafts begin, as `going`."""
        self.rooms = self.wanted(view, sequences)
        self.going = [room > 0 for room in self.rooms]
        self.made = [0] * len(self.rooms)
        self.depth = 0

    @abstractmethod
    def wanted(self, view: Seen, sequences: list[int]) -> list[int]:
        """The longest draft of each request."""

    def told(self, eos: list[bool], rows: Rows | None) -> None:
        """A draft round was made: whose token is an EOS, and what is known of the tokens."""
        self.depth += 1
        for k, going in enumerate(self.going):
            self.made[k] += going
        if rows is not None:
            self.ask(rows)
        for k, room in enumerate(self.rooms):
            if self.made[k] == self.depth and (eos[k] or self.depth >= room):
                self.going[k] = False

    def ask(self, rows: Rows) -> None:  # noqa: B027 (some look at nothing)
        """Say who stops."""

    def drafted(self) -> list[int]:
        """Tokens of each request's draft."""
        return self.made

    @abstractmethod
    def chosen(self, view: Seen, drafted: list[int]) -> list[int]:
        """Of the drafted tokens, how many are verified."""

    @abstractmethod
    def observe(self, view: Seen, came: Came) -> None:
        """What came of it."""


class Rule(Decider):
    """A draft-length policy that is asked after every round."""

    def __init__(self, policy: Sequential, columns: tuple[str, ...], max_draft: int) -> None:
        super().__init__(f"policy:{policy.timed_as}", columns, max_draft)
        self.policy, self.looks = policy, policy.looks
        self.extra_passes = bool(policy.extra_passes)
        self.states: dict[int, tuple] = {}  # by request

    def begin(self, max_batch: int) -> None:
        """See `Decider`."""
        if self.policy.carried == "sequence":
            self.states = {}

    def wanted(self, view: Seen, sequences: list[int]) -> list[int]:
        """See `Decider`."""
        self.who = list(map(int, view.request))
        for r, sequence in zip(self.who, sequences, strict=True):
            if r not in self.states:
                self.states[r] = self.policy.begin(sequence)
        limits = [
            min(longest(self.policy, self.states[r]), self.policy.max_draft) for r in self.who
        ]
        return [max(0, min(k, int(room))) for k, room in zip(limits, view.room, strict=True)]


class Each(Rule):
    """Every request stops by itself."""

    def ask(self, rows: Rows) -> None:
        """See `Decider`."""
        for k, r in enumerate(self.who):
            if self.going[k]:
                stop, self.states[r] = asked(self.policy, self.states[r], self.depth, rows[k])
                self.going[k] = not stop

    def chosen(self, view: Seen, drafted: list[int]) -> list[int]:
        """See `Decider`."""
        pairs = zip(self.who, drafted, strict=True)
        return [sent(self.policy, self.states[r], n) for r, n in pairs]

    def observe(self, view: Seen, came: Came) -> None:
        """See `Decider`."""
        columns = zip(came.drafted, came.proposed, came.accepted, came.ended, strict=True)
        for r, outcome in zip(self.who, columns, strict=True):
            self.states[r] = self.policy.update(self.states[r], Outcome(*outcome))


class All(Each):
    """One length: on until every request's rule has stopped, or its draft is at its end.

    Args:
        policy: that all are asked.
        columns: that it reads.
        max_draft: the longest draft.
        stop: "any": on only until one of them has.
    """

    def __init__(
        self, policy: Sequential, columns: tuple[str, ...], max_draft: int, stop: str = "all"
    ) -> None:
        super().__init__(policy, columns, max_draft)
        self.stop = stop

    def open(self, view: Seen, sequences: list[int]) -> None:
        """See `Decider`."""
        super().open(view, sequences)
        self._together()

    def told(self, eos: list[bool], rows: Rows | None) -> None:
        """See `Decider`."""
        super().told(eos, rows)
        self._together()

    def _together(self) -> None:
        if self.stop == "any" and not all(self.going):
            self.going = [False] * len(self.going)

    def drafted(self) -> list[int]:
        """See `Decider`."""
        return [self.depth] * len(self.made)

    def chosen(self, view: Seen, drafted: list[int]) -> list[int]:
        """See `Decider`."""
        return [max(super().chosen(view, drafted))] * len(drafted)


class Mean(Rule):
    """One length, of one rule that is asked with the mean row of the drafts that have not ended."""

    def wanted(self, view: Seen, sequences: list[int]) -> list[int]:
        """See `Decider`."""
        if -1 not in self.states:
            self.states[-1] = self.policy.begin(0)
        limit = min(longest(self.policy, self.states[-1]), self.policy.max_draft)
        return [max(0, min(limit, int(room))) for room in view.room]

    def ask(self, rows: Rows) -> None:
        """See `Decider`."""
        some = [row for row, going in zip(rows, self.going, strict=True) if going]
        mean = tuple(float(np.mean(column)) for column in zip(*some, strict=True))
        stop, self.states[-1] = asked(self.policy, self.states[-1], self.depth, mean)
        if stop:
            self.going = [False] * len(self.going)

    def drafted(self) -> list[int]:
        """See `Decider`."""
        return [self.depth] * len(self.made)

    def chosen(self, view: Seen, drafted: list[int]) -> list[int]:
        """See `Decider`."""
        return [sent(self.policy, self.states[-1], self.depth)] * len(drafted)

    def observe(self, view: Seen, came: Came) -> None:
        """See `Decider`."""
        mean = round(float(np.mean(came.accepted)))
        told = Outcome(self.depth, came.proposed[0], mean, False)
        self.states[-1] = self.policy.update(self.states[-1], told)
