"""The fastest draft lengths of a trace, with every acceptance known beforehand."""

from __future__ import annotations

import numpy as np

from simkit.drafters.layout import Layout
from simkit.simulator.charge import Charge
from simkit.simulator.kernels import compiled


def shortest(layout: Layout, charge: Charge, first: int, max_draft: int) -> np.ndarray:
    """The draft length at every start that makes each sequence's time shortest.

    A sequence is a graph: its nodes are start positions, an edge is a step, its length the step's
    seconds. The shortest path from each start to the end is found backwards from the end. Lengths
    beyond what will be accepted are left out: they emit no more, and no pass takes less time over
    more tokens. The draft's prefill is paid once if a sequence drafts at all, so the path is held
    against the one that never drafts.

    Args:
        layout: of the trace.
        charge: its costs; the seconds are exactly those that it puts on the steps, without
            decisions.
        first: position of each sequence's first step.
        max_draft: longest draft.

    Returns:
        (R,) int32, draft tokens of a step from each on-path row; of equal times the fewest.
    """
    lengths = np.zeros(len(layout.ahead), np.int32)
    prefill_s, each_s = charge.prefill["draft"], charge.draft_step + charge.times.overhead()
    longest = min(max_draft, layout.trace.max_new_tokens - 1)
    passes = layout.passes(np.arange(longest + 1))
    table = charge.verify_table(longest)

    def plan(low: int, high: int, table: np.ndarray, base: int) -> None:
        _plan(
            layout.offsets, layout.ahead, layout.n_prompt, charge.draft_sum, table, base,
            passes, prefill_s, each_s, first, longest, low, high, lengths,
        )  # fmt: skip

    n = len(layout.n_output)
    if table is not None:
        plan(0, n, table, 0)
        return lengths
    for s in range(n):
        rows = slice(layout.offsets[s], layout.offsets[s + 1])
        base = int(layout.n_prompt[s])
        contexts = base + np.arange(layout.n_output[s])
        tokens = np.arange(min(longest, int(layout.ahead[rows].max())) + 1) + 1
        plan(s, s + 1, np.asarray(charge.times.verify(tokens, contexts[:, None]), float), base)
    return lengths


@compiled
def _plan(
    offsets: np.ndarray,
    ahead: np.ndarray,
    n_prompt: np.ndarray,
    draft_sum: np.ndarray,
    verify: np.ndarray,
    base: int,
    passes: np.ndarray,
    prefill_s: np.ndarray,
    each_s: np.ndarray,
    first: int,
    longest: int,
    low: int,
    high: int,
    lengths: np.ndarray,
) -> None:
    """Fill in the lengths of sequences `low` to `high`; row c of `verify` is context base + c.

    A draft of n tokens takes `passes[n]` passes; a step at context c pays `each_s[c]` whatever it
    drafts.
    """
    for s in range(low, high):
        origin, n_output = offsets[s], offsets[s + 1] - offsets[s]
        left_s = np.zeros(n_output + 1)  # from 0-based position k to the end
        undrafted_s = 0.0
        for k in range(n_output - 1, first - 2, -1):
            context = n_prompt[s] + k
            step_s = verify[context - base, 0] + each_s[context]
            undrafted_s += step_s
            best_s, best = step_s + left_s[k + 1], 0
            for length in range(1, min(ahead[origin + k], longest) + 1):
                draft_s = draft_sum[context + passes[length]] - draft_sum[context]
                step_s = draft_s + verify[context - base, length] + each_s[context]
                total_s = step_s + left_s[min(k + length + 1, n_output)]
                if total_s < best_s:
                    best_s, best = total_s, length
            left_s[k], lengths[origin + k] = best_s, best
        if n_output >= first and left_s[first - 1] + prefill_s[s] >= undrafted_s:
            lengths[origin : origin + n_output] = 0
