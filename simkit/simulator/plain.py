"""The replay in plain Python: for any policy, and the judge of the compiled loop."""

from __future__ import annotations

import numpy as np

from simkit.policies import Outcome, Policy
from simkit.simulator.layout import PathLayout
from simkit.simulator.steps import Steps


def walk(policy: Policy, layout: PathLayout, first: int) -> Steps:
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
    columns = layout.columns(policy.columns(layout.trace.sampler))
    max_new_tokens = layout.trace.max_new_tokens
    anew = policy.carried == "sequence"
    lengths: list[int] = []
    taken: list[int] = []
    ends = [0]
    state = policy.begin()
    for index, n_output in enumerate(layout.n_output.tolist()):
        rows = layout.sequence(columns, index)
        if anew:
            state = policy.begin()
        i = first
        while i <= n_output:
            ahead = rows.ahead[i - 1]
            longest = policy.limit(state, ahead if policy.needs_future else -1)
            room = max(0, min(longest, max_new_tokens - i))
            drafted = 0
            for row in rows.draft(i, room):
                drafted += 1
                stop, state = policy.trips(state, drafted, row)
                if stop:
                    break
            accepted = min(drafted, ahead)
            lengths.append(drafted)
            taken.append(accepted)
            outcome = Outcome(drafted, drafted, accepted, i + accepted > n_output)
            state = policy.update(state, outcome)
            i += accepted + 1
        ends.append(len(lengths))
    drafts, accepts = np.array(lengths, np.int32), np.array(taken, np.int32)
    return Steps(np.array(ends), drafts, drafts, accepts, layout.n_output, first)
