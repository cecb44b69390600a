"""What policies of a live decoder read: the draft's statistics, and learned heads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from simkit.live.block_scorer import BlockScorer, check_fits
from simkit.live.clock import Mark
from simkit.live.log import Spans
from simkit.live.settings import UNKNOWN, DecoderSettings
from simkit.policies import PolicyError, Sequential
from simkit.policies.verdicts import asked
from simkit.serving.rules import Decider, Each, Rows, Seen
from traces.record.statistics import LogitRows
from traces.record.statistics_triton import draft_statistics
from traces.schema import DRAFT_STATISTICS


@dataclass
class Drafted:
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


class Headed(Each):
    """One request, whose policy reads heads.

    A head that scores blocks is asked, and with it the policy, when the policy's next decision is
    due; until then its rule only adds up. A head with a lag now knows of all but the newest token:
    that one waits on, and what the rule makes of it without a score, which it does not heed, is
    forgotten when the score is there.

    Args:
        policy: that is asked.
        columns: that it reads.
        max_draft: the longest draft.
        heads: by name.
    """

    def __init__(
        self,
        policy: Sequential,
        columns: tuple[str, ...],
        max_draft: int,
        heads: Mapping[str, BlockScorer],
    ) -> None:
        super().__init__(policy, columns, max_draft)
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

    def rows(self, drawn: Drafted) -> Rows | None:
        """Of the tokens that wait for scores; None: the next decision is not due."""
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


def rows_of(decider: Decider, drawn: Drafted) -> Rows | None:
    """What a decider reads of the tokens of a round; None: there is nothing to ask."""
    if isinstance(decider, Headed):
        return decider.rows(drawn)
    if not decider.looks:
        return None
    if not decider.columns:
        return [()] * len(drawn.tokens)
    found = draft_statistics(drawn.q, drawn.tokens, decider.columns)
    rows = torch.stack([found[name] for name in decider.columns], 1).tolist()
    return [tuple(row) for row in rows]


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
            check_fits(heads[head], policy, min(policy.max_draft, settings.max_new_tokens - 1))
    return columns
