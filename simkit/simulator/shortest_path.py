"""The fastest draft lengths of a trace, with every acceptance known beforehand."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from simkit.drafters.layout import Layout
from traces.drafters.passes import Opening
from traces.kernels import compiled, compiled_part

if TYPE_CHECKING:
    from simkit.simulator.step_costs import Charge


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
        (R,) int32, draft tokens of a step from each on-path row; of equal times the fewest. Where
        a draft reads what was emitted since the last one, its time hangs on that one: then of the
        starts that the path reaches, and 0 at others.
    """
    lengths = np.zeros(len(layout.ahead), np.int32)
    each_s = charge.drafting.once_s + charge.times.overhead()
    form, sums = charge.drafting.opening, charge.drafting.sum_s
    longest = min(max_draft, layout.trace.max_new_tokens - 1)
    if layout.deepest:
        longest = min(longest, layout.deepest)
    for low, high, base, verify_s, blocks_s in _tables(layout, charge, longest):
        rows = layout.offsets, layout.ahead, layout.n_prompt, base
        given = charge.prefill["draft"], first, longest, low, high, lengths
        if blocks_s is None or form is None:
            _plan(*rows, sums, verify_s, each_s, *given)
        else:
            _plan_blocks(*rows, _Blocks(blocks_s, verify_s, each_s, sums, form), *given)
    return lengths


class _Blocks(NamedTuple):
    """Seconds of passes where a draft's first one reads what was emitted since the last draft.

    Attributes:
        blocks: (C, N) that pass over 0, 1, … tokens.
        verify: (C, K) verifications of 1, 2, … tokens.
        each: (C,) what a step pays whatever it drafts.
        sums: (C + 1,) passes over single tokens, summed, where each further token of a draft has
            one; else zeros.
        form: of that first pass.
    """

    blocks: np.ndarray
    verify: np.ndarray
    each: np.ndarray
    sums: np.ndarray
    form: Opening


def _tables(
    layout: Layout, charge: Charge, longest: int
) -> Iterator[tuple[int, int, int, np.ndarray, np.ndarray | None]]:
    """Sequences from one to before another, and tables of passes of which row 0 is a context.

    The tables are verifications of 1, 2, … tokens and, where a draft's first pass reads what was
    emitted since the last one, those over 0, 1, … tokens. All sequences have the same; where they
    would be too large, each has its own.
    """
    n, price = len(layout.n_output), charge.drafting
    opening = price.opening
    most = opening.tokens(longest, layout.trace.max_new_tokens) if opening else 0
    verify_s = charge.verify_table(longest)
    own = callable(layout.paid)  # drafts are priced with the verification then
    if own and verify_s is not None:
        tokens = np.arange(longest + 1)
        verify_s = verify_s[:, : longest + 1] + price.seconds(charge.contexts[:, None], tokens)
    blocks_s = price.blocks(most) if opening else None
    if verify_s is not None and (blocks_s is not None or not opening):
        yield 0, n, 0, verify_s, blocks_s
        return
    for s in range(n):
        rows = slice(layout.offsets[s], layout.offsets[s + 1])
        base, n_output = int(layout.n_prompt[s]), int(layout.n_output[s])
        contexts = base + np.arange(n_output)[:, None]
        tokens = np.arange(min(longest, int(layout.ahead[rows].max())) + 1) + 1
        if opening:
            most = opening.tokens(len(tokens) - 1, n_output)
            blocks_s = price.block(np.maximum(np.arange(most + 1), 1), contexts)
        verify_s = charge.verify(tokens, contexts)
        if own:
            verify_s = verify_s + price.seconds(contexts, tokens - 1)
        yield s, s + 1, base, verify_s, blocks_s


@compiled
def _plan(
    offsets: np.ndarray,
    ahead: np.ndarray,
    n_prompt: np.ndarray,
    base: int,
    draft_sum: np.ndarray,
    verify: np.ndarray,
    each_s: np.ndarray,
    prefill_s: np.ndarray,
    first: int,
    longest: int,
    low: int,
    high: int,
    lengths: np.ndarray,
) -> None:
    """Fill in the lengths of sequences `low` to `high`; row c of `verify` is context base + c.

    A step at context c pays `each_s[c]` whatever it drafts.
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
                draft_s = draft_sum[context + length] - draft_sum[context]
                step_s = draft_s + verify[context - base, length] + each_s[context]
                total_s = step_s + left_s[min(k + length + 1, n_output)]
                if total_s < best_s:
                    best_s, best = total_s, length
            left_s[k], lengths[origin + k] = best_s, best
        if n_output >= first and left_s[first - 1] + prefill_s[s] >= undrafted_s:
            lengths[origin : origin + n_output] = 0


@compiled
def _plan_blocks(
    offsets: np.ndarray,
    ahead: np.ndarray,
    n_prompt: np.ndarray,
    base: int,
    seconds: _Blocks,
    prefill_s: np.ndarray,
    first: int,
    longest: int,
    low: int,
    high: int,
    lengths: np.ndarray,
) -> None:
    """`_plan` where the first pass of a draft reads what was emitted since the last draft.

    So the time to the end from position p hangs on the position k of the last draft too. `then_s[k,
    n]` is that behind a draft of n tokens at k: the least over the position p of the next draft,
    before which steps are empty, and over its length. The first draft of a sequence reads as if one
    had been drafted one position before the first.
    """
    for s in range(low, high):
        rows = ahead[offsets[s] : offsets[s + 1]]
        n_output, begin = len(rows), first - 1
        from_s, context = n_prompt[s] - base, n_prompt[s]
        undrafted_s = 0.0
        for p in range(begin, n_output):
            undrafted_s += seconds.verify[from_s + p, 0] + seconds.each[context + p]
        then_s = np.zeros((n_output + 1, longest + 1))
        for k in range(n_output - 1, begin - 1, -1):
            left_s = 0.0  # from p to the end
            for p in range(n_output - 1, k, -1):
                left_s += seconds.verify[from_s + p, 0] + seconds.each[context + p]
                drafted_s, _ = _best_block(p, p - k, rows, seconds, from_s, context, then_s)
                left_s = min(left_s, drafted_s)
                if p - k - 1 <= longest:
                    then_s[k, p - k - 1] = left_s
        best_s, at, length = _next(begin - 1, begin, rows, seconds, from_s, context, then_s)
        if best_s + prefill_s[s] >= undrafted_s:
            continue
        while length > 0:
            lengths[offsets[s] + at] = length
            k, p = at, at + length + 1
            _, at, length = _next(k, p, rows, seconds, from_s, context, then_s)


@compiled_part
def _best_block(
    p: int,
    unread: int,
    rows: np.ndarray,
    seconds: _Blocks,
    from_s: int,
    context: int,
    then_s: np.ndarray,
) -> tuple[float, int]:
    """Seconds to the end if p drafts, and the best length; infinite if nothing is accepted."""
    form, sums = seconds.form, seconds.sums
    best_s, best = np.inf, 0
    for length in range(1, min(rows[p], then_s.shape[1] - 1) + 1):
        tokens = form.draft * length + form.unread * unread + form.more
        draft_s = seconds.blocks[from_s + p - form.back * (unread - 1), tokens]
        draft_s += sums[context + p + length] - sums[context + p + 1]
        step_s = draft_s + seconds.verify[from_s + p, length] + seconds.each[context + p]
        total_s = step_s + then_s[p, length]
        if total_s < best_s:
            best_s, best = total_s, length
    return best_s, best


@compiled_part
def _next(
    k: int,
    start: int,
    rows: np.ndarray,
    seconds: _Blocks,
    from_s: int,
    context: int,
    then_s: np.ndarray,
) -> tuple[float, int, int]:
    """Seconds from `start` to the end behind a draft at k, and the next draft's place and length.

    Of equal times that of the fewest tokens; length 0: nothing is drafted any more.
    """
    left_s, at, drafts = 0.0, len(rows), 0
    for p in range(len(rows) - 1, start - 1, -1):
        left_s += seconds.verify[from_s + p, 0] + seconds.each[context + p]
        total_s, length = _best_block(p, p - k, rows, seconds, from_s, context, then_s)
        if total_s < left_s:
            left_s, at, drafts = total_s, p, length
    return left_s, at, drafts
