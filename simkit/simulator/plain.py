"""The replay in plain Python: for any policy, and the judge of the compiled loop."""

from __future__ import annotations

import numpy as np

from simkit.drafters.layout import Layout
from simkit.policies import Outcome, Sequential
from simkit.simulator.steps import Steps, extra_passes, sequential


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
    most = layout.deepest or max_new_tokens
    counts: list[tuple[int, int, int, int]] = []
    ends = [0]
    state = policy.begin(0)
    for index, n_output in enumerate(layout.n_output.tolist()):
        rows = layout.sequence(read, index)
        if anew:
            state = policy.begin(index)
        i = first
        while i <= n_output:
            ahead = rows.ahead[i - 1]
            longest = policy.limit(state, ahead if policy.needs_future else -1)
            room = max(0, min(longest, policy.max_draft, max_new_tokens - i))
            drafted = 0
            for row in rows.draft(i, room):
                drafted += 1
                stop, state = policy.trips(state, drafted, row)
                if stop:
                    break
            proposed = max(0, min(drafted, policy.proposed(state, drafted)))
            accepted = min(proposed, ahead)
            counts.append((drafted, proposed, accepted, min(room, most) if drafted else 0))
            outcome = Outcome(drafted, proposed, accepted, i + accepted > n_output)
            state = policy.update(state, outcome)
            i += accepted + 1
        ends.append(len(counts))
    columns = np.array(counts, np.int32).reshape(-1, 4).T
    return sequential(np.array(ends), columns, layout, first, extra=extra_passes(policy, layout))
