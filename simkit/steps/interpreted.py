"""The replay in plain Python: for any policy, and the judge of the compiled loop."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from simkit.drafters.layout import Layout, SequenceDrafts
from simkit.policies import Outcome, Sequential
from simkit.policies.base import State
from simkit.policies.verdicts import asked, longest, sent
from simkit.steps.steps import Steps, extra_passes, sequential


class DraftCounts(NamedTuple):
    """One draft and what came of it, see `simkit.steps.steps.Steps`."""

    drafted: int
    proposed: int
    accepted: int
    asked: int

    def outcome(self, start: int, n_output: int) -> Outcome:
        """What a policy is told of the step from `start` of an output of so many tokens."""
        ended = start + self.accepted > n_output
        return Outcome(self.drafted, self.proposed, self.accepted, ended)


def draft(
    policy: Sequential,
    state: State,
    rows: SequenceDrafts,
    start: int,
    left: int,
    deepest: int | None,
) -> tuple[DraftCounts, State]:
    """What a policy makes of the draft from one position, and its state then.

    Args:
        policy: any policy.
        state: after its step before.
        rows: of the sequence.
        start: i.
        left: the most tokens that the budget leaves, T_max - i.
        deepest: see `Layout`.
    """
    ahead = rows.ahead[start - 1]
    most = longest(policy, state, ahead if policy.needs_future else -1)
    room = max(0, min(most, policy.max_draft, left))
    drafted = 0
    for row in rows.draft(start, room):
        drafted += 1
        stop, state = asked(policy, state, drafted, row)
        if stop:
            break
    proposed = sent(policy, state, drafted)
    yielded = drafted if deepest is None else min(room, deepest)
    return DraftCounts(drafted, proposed, min(proposed, ahead), yielded if drafted else 0), state


def walk(policy: Sequential, layout: Layout, first: int) -> Steps:
    """Replay a policy step by step.

    Args:
        policy: any policy.
        layout: of the trace.
        first: position of each sequence's first step: 1, or 2 if the prefill emits a token.

    Raises:
        ReplayError: the policy wants a row that was not recorded.
        PolicyError: the policy does not hold under the trace's sampler.
        TraceError: a column that it reads was not recorded.
    """
    read = layout.columns(policy.columns(layout.trace.sampler))
    max_new_tokens = layout.trace.max_new_tokens
    anew = policy.carried == "sequence"
    counts: list[DraftCounts] = []
    ends = [0]
    state = policy.begin(0)
    for index, n_output in enumerate(layout.n_output.tolist()):
        rows = layout.sequence(read, index)
        if anew:
            state = policy.begin(index)
        i = first
        while i <= n_output:
            made, state = draft(policy, state, rows, i, max_new_tokens - i, layout.deepest)
            counts.append(made)
            state = policy.update(state, made.outcome(i, n_output))
            i += made.accepted + 1
        ends.append(len(counts))
    columns = np.array(counts, np.int32).reshape(-1, 4).T
    return sequential(np.array(ends), columns, layout, first, extra=extra_passes(policy, layout))
