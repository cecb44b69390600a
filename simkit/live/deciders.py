"""Who says how far texts are drafted: a draft-length policy, for one text or for many at once.

A decider is opened with what it sees, told after each draft round what was drafted, asked what of
it is to be verified, and told what came of that. Those of servers are in `live_controllers`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from simkit.live.block_scorer import BlockScorer, check_depth, check_lag
from simkit.live.clock import Mark
from simkit.live.log import Spans
from simkit.live.settings import UNKNOWN, DecoderSettings
from simkit.policies import Outcome, PolicyError, Sequential
from simkit.policies.verdicts import asked, longest, sent
from traces.record.statistics import LogitRows
from traces.record.statistics_triton import draft_statistics
from traces.schema import DRAFT_STATISTICS

Rows = list[tuple[float, ...]]
"""Of each request, the values of the columns that a decider reads."""


@dataclass
class Drawn:
    """What a draft round gives.

    Attributes:
        q: of each text, B rows.
        tokens: (B,), drawn of them.
        states: the draft's, behind each token of the only text that it has read; for heads.
        n_text: how many of them stand before its draft.
        spans: what takes how long.
        since: when the decider was asked, its heads left out.
    """

    q: LogitRows
    tokens: Tensor
    states: Tensor
    n_text: int
    spans: Spans
    since: Mark


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
        heads: that it asks, by column.
        extra_passes: whether the draft reads verified tokens anew.
        whole_view: whether it must see a `View`.
    """

    looks, extra_passes, whole_view = True, False, False
    heads: Mapping[str, BlockScorer] = {}

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

    def rows(self, drawn: Drawn) -> Rows | None:
        """What is known of the tokens of a round; None: there is nothing to ask."""
        if not self.looks:
            return None
        if not self.columns:
            return [()] * len(drawn.tokens)
        found = draft_statistics(drawn.q, drawn.tokens, self.columns)
        rows = torch.stack([found[name] for name in self.columns], 1).tolist()
        return [tuple(row) for row in rows]

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

    def __init__(self, policy: Sequential, max_draft: int, settings: DecoderSettings) -> None:
        columns = policy.columns(settings.sampler)
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
        self.who = [*view.request]
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
        max_draft: the longest draft.
        settings: how to decode.
        stop: "any": on only until one of them has.
    """

    def __init__(
        self, policy: Sequential, max_draft: int, settings: DecoderSettings, stop: str = "all"
    ) -> None:
        super().__init__(policy, max_draft, settings)
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


class Headed(Each):
    """One request, whose policy reads heads.

    A head that scores blocks is asked, and with it the policy, when the policy's next decision is
    due; until then its rule only adds up. A head with a lag now knows of all but the newest token:
    that one waits on, and what the rule makes of it without a score, which it does not heed, is
    forgotten when the score is there.

    Args:
        policy: that is asked.
        max_draft: the longest draft.
        settings: how to decode.
        heads: by name.
    """

    def __init__(
        self,
        policy: Sequential,
        max_draft: int,
        settings: DecoderSettings,
        heads: Mapping[str, BlockScorer],
    ) -> None:
        super().__init__(policy, max_draft, settings)
        names = {column: column.removeprefix("score:") for column in self.columns}
        self.heads = {column: heads[name] for column, name in names.items() if name != column}
        self.statistics = [column for column in self.columns if column not in self.heads]
        self.lag = max(head.lag for head in self.heads.values())
        self.waits = bool(self.lag) or any(head.by_start for head in self.heads.values())

    def open(self, view: Seen, sequences: list[int]) -> None:
        """See `Decider`."""
        super().open(view, sequences)
        (self.who_only,) = self.who
        self.known = self.states[self.who_only]  # when all scores are there
        self.waiting: list[tuple[int, LogitRows, Tensor]] = []

    def rows(self, drawn: Drawn) -> Rows | None:
        """See `Decider`."""
        depth = self.depth + 1
        self.waiting.append((depth, drawn.q, drawn.tokens))
        if self.waits and self.policy.calls(depth) == self.policy.calls(depth - 1):
            return None
        count, scores = len(self.waiting) - self.lag, {}
        for column, head in self.heads.items():
            states = drawn.states[: drawn.n_text + depth]
            found = head.score(states, drawn.n_text, count)
            scores[column] = [*found, *[UNKNOWN] * self.lag]
            since, drawn.since = drawn.since, drawn.spans.mark()
            name = column.replace("score", "head", 1)
            drawn.spans.add("head", name, since, drawn.since, count, drawn.n_text, depth)
        return [self._row(k, q, tokens, scores) for k, (_, q, tokens) in enumerate(self.waiting)]

    def _row(
        self, k: int, q: LogitRows, tokens: Tensor, scores: Mapping[str, list[float]]
    ) -> tuple[float, ...]:
        values = draft_statistics(q, tokens, self.statistics) if self.statistics else {}
        known = (scores[name][k] if name in scores else values[name] for name in self.columns)
        return tuple(map(float, known))

    def ask(self, rows: Rows) -> None:
        """See `Decider`."""
        count, stop, state = len(rows) - self.lag, False, self.known
        for k, ((depth, _, _), row) in enumerate(zip(self.waiting, rows, strict=True)):
            stop, state = asked(self.policy, self.known, depth, row)
            if k < count:
                self.known = state
        del self.waiting[:count]
        self.states[self.who_only], self.going[0] = state, not stop


def check(
    policy: Sequential, settings: DecoderSettings, heads: Mapping[str, object]
) -> tuple[str, ...]:
    """The columns that a policy reads, if it can run live.

    Args:
        policy: to run.
        settings: how to decode.
        heads: by name, `Head` or `BlockScorer`.

    Raises:
        PolicyError: it needs the future, does not hold under the sampler, reads a head that is not
            given, or what is not known while drafting.
        HeadError: it drafts deeper than its head scores, or asks for scores before they are there.
    """
    if policy.needs_future:
        raise PolicyError(f"{policy} needs the future: it cannot run live")
    columns = policy.columns(settings.sampler)
    for column in columns:
        head = column.removeprefix("score:")
        if head != column and head not in heads:
            raise PolicyError(f"{policy} reads the head {head}, which is not given (--head)")
        if head == column and column not in DRAFT_STATISTICS:
            raise PolicyError(f"{policy} reads {column}, which is not known while drafting")
        if head != column:
            check_lag(heads[head], policy)
            check_depth(heads[head], policy, min(policy.max_draft, settings.max_new_tokens - 1))
    return columns
