"""One iteration of a server, compiled in parts: who takes part, what it takes, what comes of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from simkit.serving.pass_prices import (
    draft_s,
    prefill_s,
    single_s,
    table_s,
    tree_s,
    verify_s,
)
from simkit.serving.state import (
    ARRIVED,
    DONE,
    ITERATIONS,
    MADE,
    RETURNED,
    RUNNING,
    SEEN,
    SPAN,
    STARTED,
    STEP,
    STEP_S,
    STEPS,
    Buffers,
    Rules,
    ServedOutcomes,
    Server,
)
from traces.kernels import compiled, compiled_part

if TYPE_CHECKING:
    from simkit.serving.prices import Prices


@compiled_part
def receive(server: Server, rules: Rules) -> bool:
    """Take in requests that have come; an idle server waits for the next one.

    Returns:
        Whether there is anything left to do.
    """
    count, n = server.count, len(server.sequence)
    if count[DONE] == n:
        return False
    if rules.concurrency > 0:
        # A closed loop: whoever is done makes way for the next one, or all copies together do.
        free = rules.concurrency - (count[ARRIVED] - count[DONE])
        if rules.copies and free < rules.concurrency:
            free = 0
        for _ in range(min(free, n - count[ARRIVED])):
            server.arrival_s[count[ARRIVED]] = server.clock[0]
            count[ARRIVED] += 1
        return True
    # An idle server has nothing to do until the next arrival, so its clock jumps there.
    if count[RUNNING] == 0 and count[RETURNED] == 0 and count[STARTED] == count[ARRIVED]:
        server.clock[0] = max(server.clock[0], server.arrival_s[count[ARRIVED]])
    while count[ARRIVED] < n and server.arrival_s[count[ARRIVED]] <= server.clock[0]:
        count[ARRIVED] += 1
    return True


@compiled_part
def gather(server: Server, outcomes: ServedOutcomes, rules: Rules, room: Buffers) -> int:
    """Fill `seen`, and `confidence` where there is a column, in the order of admission.

    Returns:
        How many requests decode.
    """
    n, seen = 0, room.seen
    for k in range(server.count[RUNNING]):
        r = server.running[k]
        if server.read[r] >= 0:  # its prompt is not read to the end
            continue
        s, at = server.sequence[r], server.at[r]
        row = outcomes.offsets[s] + at
        seen[SEEN.request, n] = r
        # A step emits one token beside its draft's, so the last one is never drafted.
        seen[SEEN.room, n] = max(min(rules.max_draft, outcomes.max_new_tokens - at - 1), 0)
        seen[SEEN.context, n] = outcomes.n_prompt[s] + at
        seen[SEEN.tokens, n] = at
        seen[SEEN.steps, n] = server.steps[r]
        seen[SEEN.drafted, n] = server.last[MADE.drafted, r]
        seen[SEEN.proposed, n] = server.last[MADE.proposed, r]
        seen[SEEN.accepted, n] = server.last[MADE.accepted, r]
        # Bounds alone are told what will be accepted; no other controller may decide by it.
        seen[SEEN.ahead, n] = np.int64(outcomes.ahead[row]) if rules.future else -1
        seen[SEEN.row, n] = row
        if outcomes.confidence.shape[0]:
            for d in range(rules.max_draft):
                room.confidence[n, d] = outcomes.confidence[row, d]
        n += 1
    return n


@compiled_part
def plan(server: Server, outcomes: ServedOutcomes, rules: Rules, room: Buffers, n: int) -> int:
    """Cut the `n` drafts that `made` has as decided to their room, or take those that were planned.

    All of `made` that is known before a verification is filled.

    Returns:
        Index of a request whose draft goes beyond what was recorded; -1 if there is none.
    """
    seen, made = room.seen, room.made
    for k in range(n):
        s = server.sequence[seen[SEEN.request, k]]
        if outcomes.steps.shape[1]:
            # Known beforehand is all but whether the request ends, in the order of `made`.
            step = outcomes.step_offsets[s] + seen[SEEN.steps, k]
            for row in range(MADE.ended):
                made[row, k] = outcomes.steps[row, step]
            continue
        drafted, asked = made[MADE.drafted, k], outcomes.max_new_tokens - seen[SEEN.tokens, k] - 1
        asked = max(min(drafted, asked), 0)
        if rules.clip:
            row, longest = seen[SEEN.row, k], seen[SEEN.room, k]
            # Drawn outcomes go to the end of the output. The trace's go to where its draft ended
            # by itself: a longer draft would be the same one. A draft that recording cut short
            # would have gone on, in tokens that nobody knows.
            if len(outcomes.rates):
                longest = min(longest, outcomes.offsets[s + 1] - row - 1)
            elif not outcomes.cut[row]:
                longest = min(longest, outcomes.depth[row])
            drafted = max(min(drafted, longest), 0)
            made[MADE.drafted, k] = drafted
            if outcomes.cut[row] and drafted > outcomes.depth[row] and not len(outcomes.rates):
                return k
        made[MADE.proposed, k] = drafted
        made[MADE.asked, k] = asked if drafted > 0 else 0
    return -1


@compiled
def judge(
    server: Server, outcomes: ServedOutcomes, room: Buffers, n: int, rng: np.random.Generator
) -> None:
    """How many proposed tokens are accepted, how many come out, and who is done then."""
    seen, made = room.seen, room.made
    for k in range(n):
        row, proposed = seen[SEEN.row, k], made[MADE.proposed, k]
        left = outcomes.offsets[server.sequence[seen[SEEN.request, k]] + 1] - row
        if len(outcomes.rates):
            a = 0
            while a < proposed and a < len(outcomes.rates):
                if rng.random() >= outcomes.rates[a]:
                    break
                a += 1
            made[MADE.accepted, k] = a
        elif not outcomes.steps.shape[1]:
            most = outcomes.max_new_tokens - seen[SEEN.tokens, k] - 1
            made[MADE.accepted, k] = max(min(proposed, np.int64(outcomes.ahead[row]), most), 0)
        if not outcomes.steps.shape[1]:
            # The target's own token comes out too, unless the output ended before it.
            made[MADE.emitted, k] = min(made[MADE.accepted, k] + 1, left)
        made[MADE.ended, k] = 1 if made[MADE.emitted, k] >= left else 0


@compiled_part
def make_room(
    server: Server, outcomes: ServedOutcomes, rules: Rules, room: Buffers, n: int
) -> tuple:
    """Preempt the last that were admitted until the caches hold what is drafted.

    Returns:
        Requests that decode still, and tokens that the caches then hold.
    """
    # Of a tree the caches hold the nodes that are verified, not all that were drafted.
    held_of = MADE.proposed if outcomes.widths.shape[1] > 0 else MADE.drafted
    while True:
        held, decoding = 0, 0
        for k in range(server.count[RUNNING]):
            r = server.running[k]
            if server.read[r] >= 0:
                held += server.base[r] + 1
            else:
                held += room.seen[SEEN.context, decoding] + room.made[held_of, decoding] + 1
                decoding += 1
        # The first one stays in any case, or nothing would ever be done.
        if held <= rules.kv_tokens or server.count[RUNNING] <= 1:
            return n, held
        server.count[RUNNING] -= 1
        r = server.running[server.count[RUNNING]]
        if server.read[r] < 0:
            n -= 1
        # Its caches are given up: both models will read all of its known tokens anew.
        server.read[r] = 0
        server.drafts[r] = False
        server.unread[r] = 1
        server.missed[r] = 0
        server.preempted[r] += 1
        server.returned[server.count[RETURNED]] = r
        server.count[RETURNED] += 1


@compiled_part
def admit(server: Server, outcomes: ServedOutcomes, rules: Rules, held: int) -> int:
    """Let those run that wait, first come, first served, while there is room.

    Returns:
        Tokens that the caches hold, or have room for.
    """
    count = server.count
    while count[RUNNING] < rules.max_batch:
        back = count[RETURNED] > 0
        if not back and count[STARTED] == count[ARRIVED]:
            break
        # Whoever was preempted goes first, the one that was admitted earliest at the head.
        r = server.returned[count[RETURNED] - 1] if back else count[STARTED]
        known = int(outcomes.n_prompt[server.sequence[r]] + server.at[r])
        if held + known + 1 > rules.kv_tokens and count[RUNNING] > 0:
            break
        held += known + 1
        server.read[r] = 0
        server.base[r] = known
        if back:
            count[RETURNED] -= 1
        else:
            count[STARTED] += 1
            server.admitted_s[r] = server.clock[0]
        server.running[count[RUNNING]] = r
        count[RUNNING] += 1
    return held


@compiled_part
def prefill(server: Server, rules: Rules, spans: np.ndarray) -> int:
    """Which prompts are read further, first come, first served; their `spans` are filled.

    Returns:
        How many.
    """
    m, left = 0, rules.chunk
    for k in range(server.count[RUNNING]):
        r = server.running[k]
        if server.read[r] < 0 or left <= 0:
            continue
        tokens = min(server.base[r] - server.read[r], left)
        spans[SPAN.request, m] = r
        spans[SPAN.before, m] = server.read[r]
        spans[SPAN.after, m] = server.read[r] + tokens
        left -= tokens
        m += 1
    return m


@compiled_part
def priced(
    server: Server,
    outcomes: ServedOutcomes,
    prices: Prices,
    rules: Rules,
    room: Buffers,
    n: int,
    m: int,
) -> tuple[float, float, float, float]:
    """Seconds of the iteration's prefill, drafting, verification and decisions."""
    seen, made, spans = room.seen, room.made, room.spans
    joins = n > 0 and prices.mixed
    prompt_s = prefill_s(prices.prefill, spans[SPAN.before, :m], spans[SPAN.after, :m], joins)
    if n == 0:
        return prompt_s, 0.0, 0.0, 0.0
    known = seen[SEEN.context, :n]
    drafted, proposed, asked = made[MADE.drafted, :n], made[MADE.proposed, :n], made[MADE.asked, :n]
    context = known.sum() / n
    if not rules.speculative:
        return prompt_s, 0.0, single_s(prices, prices.decode, n, context), 0.0
    draft = 0.0
    calls, new, unread, missed, many = _drafters(server, room, n)
    if prices.from_model:
        before, after = spans[SPAN.draft_before, :new], spans[SPAN.draft_after, :new]
        draft += prefill_s(prices.draft_prefill, before, after, False)
    if outcomes.step_s.shape[1] or outcomes.widths.shape[1]:
        for k in range(n):
            s = server.sequence[seen[SEEN.request, k]]
            spans[SPAN.step, k] = outcomes.step_offsets[s] + seen[SEEN.steps, k]
    if outcomes.step_s.shape[1]:  # drafts made while the target runs: one request alone has them
        of, step = outcomes.step_s, spans[SPAN.step, 0]
        return prompt_s + draft, float(of[STEP_S.draft, step]), float(of[STEP_S.verify, step]), 0.0
    # A draft that reads each verified batch anew, as below, has missed nothing.
    mean = unread / many if many and not prices.extra else 1.0
    late = 0 if prices.extra else missed
    if outcomes.widths.shape[1]:
        steps = spans[SPAN.step, :n]
        draft_only_s = tree_s(prices, outcomes.widths, steps, asked, known, mean, late)
    else:
        draft_only_s = draft_s(prices, drafted, asked, known, mean, late)
    tokens = proposed.sum() + n if prices.ragged else n * (proposed.max() + 1)
    if prices.extra and prices.from_model:
        draft_only_s += table_s(prices.block, float(n), tokens / n, context)
    verify = verify_s(prices, n, tokens, context)
    return prompt_s + draft, draft_only_s, verify, calls * prices.call_s


@compiled_part
def _drafters(server: Server, room: Buffers, n: int) -> tuple[int, int, int, int, int]:
    """Fill the `spans` of prompts that the draft model reads.

    Returns:
        The most decisions of a request; those prompts; of requests that draft, the tokens that are
        unread and those that were missed, and how many requests these are.
    """
    seen, made, spans = room.seen, room.made, room.spans
    calls, new, unread, missed, many = 0, 0, 0, 0, 0
    for k in range(n):
        calls = max(calls, made[MADE.calls, k])
        if made[MADE.drafted, k] > 0:
            r = seen[SEEN.request, k]
            unread += int(server.unread[r])
            missed += int(server.missed[r])
            many += 1
            # A draft model reads a prompt when it first drafts behind it, which may be never.
            if not server.drafts[r]:
                spans[SPAN.draft_before, new] = 0
                spans[SPAN.draft_after, new] = server.base[r]
                new += 1
    return calls, new, unread, missed, many


@compiled_part
def advance(
    server: Server, outcomes: ServedOutcomes, room: Buffers, n: int, m: int, end_s: float
) -> int:
    """Put what came out on the requests, and let those that are done go.

    Returns:
        Tokens that came out.
    """
    out, made, spans = 0, room.made, room.spans
    for k in range(n):
        r = room.seen[SEEN.request, k]
        drafted, emitted = made[MADE.drafted, k], made[MADE.emitted, k]
        if server.at[r] == 0:
            server.first_s[r] = end_s
        server.at[r] += emitted
        server.steps[r] += 1
        server.drafted[r] += drafted
        server.proposed[r] += made[MADE.proposed, k]
        server.accepted[r] += made[MADE.accepted, k]
        # A draft model that sat idle reads what came out meanwhile when it drafts next.
        idle = drafted == 0
        server.unread[r] = emitted + (server.unread[r] if idle else 0)
        server.missed[r] = emitted + server.missed[r] if idle else 0
        server.drafts[r] = server.drafts[r] or not idle
        for row in range(MADE.asked):  # drafted, proposed and accepted
            server.last[row, r] = made[row, k]
        _log(server, room, k)
        out += emitted
    for k in range(m):
        r = spans[SPAN.request, k]
        server.read[r] = spans[SPAN.after, k]
        if server.read[r] == server.base[r]:
            server.read[r] = -1
            # The prompt's pass emits the first token, where the first step begins at the second.
            if server.at[r] == 0 and outcomes.first == 2:
                server.at[r], server.first_s[r] = 1, end_s
                out += 1
    _let_go(server, outcomes, end_s)
    return out


@compiled_part
def _log(server: Server, room: Buffers, k: int) -> None:
    """Note the step of the k-th request that decodes."""
    log, at, seen, made = server.log, server.count[STEPS], room.seen, room.made
    log[STEP.request, at] = seen[SEEN.request, k]
    log[STEP.iteration, at] = server.count[ITERATIONS]
    log[STEP.start, at] = seen[SEEN.tokens, k] + 1
    log[STEP.drafted, at] = made[MADE.drafted, k]
    log[STEP.proposed, at] = made[MADE.proposed, k]
    log[STEP.accepted, at] = made[MADE.accepted, k]
    log[STEP.emitted, at] = made[MADE.emitted, k]
    server.count[STEPS] += 1


@compiled_part
def _let_go(server: Server, outcomes: ServedOutcomes, end_s: float) -> None:
    """Let requests that are done go; the others move up, so that the order of admission holds."""
    count, stay = server.count, 0
    for k in range(count[RUNNING]):
        r, s = server.running[k], server.sequence[server.running[k]]
        if server.read[r] < 0 and server.at[r] >= outcomes.offsets[s + 1] - outcomes.offsets[s]:
            server.done_s[r] = end_s
            count[DONE] += 1
        else:
            server.running[stay] = r
            stay += 1
    count[RUNNING] = stay
