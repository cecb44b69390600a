"""One iteration of a server, compiled in parts: who takes part, what it takes, what comes of it."""

from __future__ import annotations

from typing import Any

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
    RETURNED,
    RUNNING,
    STARTED,
    STEPS,
)
from traces.kernels import compiled_part


@compiled_part
def receive(server: Any, rules: Any) -> bool:
    """Take in requests that have come; an idle server waits for the next one.

    Returns:
        Whether there is anything left to do.
    """
    count, n = server.count, len(server.sequence)
    if count[DONE] == n:
        return False
    if rules.concurrency > 0:
        free = rules.concurrency - (count[ARRIVED] - count[DONE])
        if rules.copies and free < rules.concurrency:
            free = 0
        for _ in range(min(free, n - count[ARRIVED])):
            server.arrival_s[count[ARRIVED]] = server.clock[0]
            count[ARRIVED] += 1
        return True
    if count[RUNNING] == 0 and count[RETURNED] == 0 and count[STARTED] == count[ARRIVED]:
        server.clock[0] = max(server.clock[0], server.arrival_s[count[ARRIVED]])
    while count[ARRIVED] < n and server.arrival_s[count[ARRIVED]] <= server.clock[0]:
        count[ARRIVED] += 1
    return True


@compiled_part
def gather(server: Any, outcomes: Any, rules: Any, seen: Any, confidence: Any) -> int:
    """Those that decode, in the order of their admission.

    Args:
        server: see `simkit.serving.state`, as for the next two.
        outcomes: of the trace.
        rules: of admission.
        seen: (10, B) int64, filled: request, room, context, tokens, steps, drafted, proposed,
            accepted, ahead, row.
        confidence: (B, K) float64, filled where there is a column.

    Returns:
        How many.
    """
    n = 0
    for k in range(server.count[RUNNING]):
        r = server.running[k]
        if server.read[r] >= 0:
            continue
        s = server.sequence[r]
        row = outcomes.offsets[s] + server.at[r]
        ahead = np.int64(outcomes.ahead[row])
        room = min(rules.max_draft, outcomes.max_new_tokens - server.at[r] - 1)
        seen[0, n] = r
        seen[1, n] = max(room, 0)
        seen[2, n] = outcomes.n_prompt[s] + server.at[r]
        seen[3, n] = server.at[r]
        seen[4, n] = server.steps[r]
        seen[5, n] = server.last[0, r]
        seen[6, n] = server.last[1, r]
        seen[7, n] = server.last[2, r]
        seen[8, n] = ahead if rules.future else -1
        seen[9, n] = row
        if outcomes.confidence.shape[0]:
            for d in range(rules.max_draft):
                confidence[n, d] = outcomes.confidence[row, d]
        n += 1
    return n


@compiled_part
def plan(server: Any, outcomes: Any, rules: Any, n: int, seen: Any, made: Any) -> int:
    """What each draft comes to, cut to its room; or what was planned.

    Args:
        server: see `gather`, as for the next two.
        outcomes: of the trace.
        rules: of admission.
        n: requests that decode.
        seen: see `gather`.
        made: (7, B) int64: drafted, as decided, is cut; proposed, accepted, asked and decisions
            are filled; then tokens that come out, and whether the request is done then.

    Returns:
        Index of a request whose draft goes beyond what was recorded; -1 if there is none.
    """
    for k in range(n):
        if outcomes.steps.shape[1]:
            s = server.sequence[seen[0, k]]
            step = outcomes.step_offsets[s] + seen[4, k]
            for row in range(6):
                made[row, k] = outcomes.steps[row, step]
            continue
        left = outcomes.max_new_tokens - seen[3, k] - 1
        made[3, k] = max(min(made[0, k], left), 0)
        if rules.clip:
            row, longest = seen[9, k], seen[1, k]
            if len(outcomes.rates):
                longest = min(longest, outcomes.offsets[server.sequence[seen[0, k]] + 1] - row - 1)
            elif not outcomes.cut[row]:
                longest = min(longest, outcomes.depth[row])
            made[0, k] = max(min(made[0, k], longest), 0)
            if outcomes.cut[row] and made[0, k] > outcomes.depth[row] and not len(outcomes.rates):
                return k
        made[1, k] = made[0, k]
        made[3, k] = made[3, k] if made[0, k] > 0 else 0
        made[4, k] = 0
    return -1


@compiled_part
def judge(server: Any, outcomes: Any, n: int, seen: Any, made: Any, rng: Any) -> None:
    """How many proposed tokens are accepted, how many come out, and who is done then."""
    for k in range(n):
        r, row = seen[0, k], seen[9, k]
        left = outcomes.offsets[server.sequence[r] + 1] - row
        if len(outcomes.rates):
            a = 0
            while a < made[1, k] and a < len(outcomes.rates):
                if rng.random() >= outcomes.rates[a]:
                    break
                a += 1
            made[2, k] = a
        elif not outcomes.steps.shape[1]:
            most = outcomes.max_new_tokens - seen[3, k] - 1
            made[2, k] = max(min(made[1, k], np.int64(outcomes.ahead[row]), most), 0)
        if not outcomes.steps.shape[1]:
            made[5, k] = min(made[2, k] + 1, left)
        made[6, k] = 1 if made[5, k] >= left else 0


@compiled_part
def make_room(server: Any, outcomes: Any, rules: Any, n: int, seen: Any, made: Any) -> tuple:
    """Preempt the last that were admitted until the caches hold what is drafted.

    Returns:
        Requests that decode still, and tokens that the caches then hold.
    """
    while True:
        held, decoding = 0, 0
        for k in range(server.count[RUNNING]):
            r = server.running[k]
            if server.read[r] >= 0:
                held += server.base[r] + 1
            else:
                tree = outcomes.widths.shape[1] > 0  # whose nodes are not all verified
                held += seen[2, decoding] + made[1 if tree else 0, decoding] + 1
                decoding += 1
        if held <= rules.kv_tokens or server.count[RUNNING] <= 1:
            return n, held
        server.count[RUNNING] -= 1
        r = server.running[server.count[RUNNING]]
        if server.read[r] < 0:
            n -= 1
        server.read[r] = 0
        server.drafts[r] = False
        server.unread[r] = 1
        server.missed[r] = 0
        server.preempted[r] += 1
        server.returned[server.count[RETURNED]] = r
        server.count[RETURNED] += 1


@compiled_part
def admit(server: Any, outcomes: Any, rules: Any, held: int) -> int:
    """Let those run that wait, first come, first served, while there is room.

    Returns:
        Tokens that the caches hold, or have room for.
    """
    count = server.count
    while count[RUNNING] < rules.max_batch:
        back = count[RETURNED] > 0
        if not back and count[STARTED] == count[ARRIVED]:
            break
        r = server.returned[count[RETURNED] - 1] if back else count[STARTED]
        known = outcomes.n_prompt[server.sequence[r]] + server.at[r]
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
def prefill(server: Any, rules: Any, before: Any, after: Any, who: Any) -> int:
    """Which prompts are read further, first come, first served.

    Args:
        server: see `gather`.
        rules: of admission.
        before: (B,) int64, filled: tokens of each that were read.
        after: (B,) int64, filled: tokens that are read then.
        who: (B,) int64, filled: requests.

    Returns:
        How many.
    """
    m, left = 0, rules.chunk
    for k in range(server.count[RUNNING]):
        r = server.running[k]
        if server.read[r] < 0 or left <= 0:
            continue
        tokens = min(server.base[r] - server.read[r], left)
        before[m], after[m], who[m] = server.read[r], server.read[r] + tokens, r
        left -= tokens
        m += 1
    return m


@compiled_part
def priced(
    server: Any,
    outcomes: Any,
    prices: Any,
    rules: Any,
    n: int,
    seen: Any,
    made: Any,
    m: int,
    spans: Any,
) -> tuple[float, float, float, float]:
    """Seconds of the iteration's prefill, drafting, verification and decisions."""
    joins = n > 0 and prices.mixed
    prompt_s = prefill_s(prices.prefill, spans[0, :m], spans[1, :m], joins)
    if n == 0:
        return prompt_s, 0.0, 0.0, 0.0
    context = seen[2, :n].sum() / n
    if not rules.speculative:
        return prompt_s, 0.0, single_s(prices, prices.decode, n, context), 0.0
    draft, calls, new, unread, missed, many = 0.0, 0, 0, 0, 0, 0
    for k in range(n):
        calls = max(calls, made[4, k])
        if made[0, k] > 0:
            r = seen[0, k]
            unread += server.unread[r]
            missed += server.missed[r]
            many += 1
            if not server.drafts[r]:
                spans[3, new], spans[4, new] = 0, server.base[r]
                new += 1
    if prices.from_model:
        draft += prefill_s(prices.draft_prefill, spans[3, :new], spans[4, :new], False)
    if outcomes.step_s.shape[1]:  # of the only request
        r = seen[0, 0]
        step = outcomes.step_offsets[server.sequence[r]] + seen[4, 0]
        return prompt_s + draft, outcomes.step_s[0, step], outcomes.step_s[1, step], 0.0
    mean = unread / many if many and not prices.extra else 1.0
    late = 0 if prices.extra else missed
    if outcomes.widths.shape[1]:
        for k in range(n):
            spans[3, k] = outcomes.step_offsets[server.sequence[seen[0, k]]] + seen[4, k]
        asked, steps, widths = made[3, :n], spans[3, :n], outcomes.widths
        draft_only_s = tree_s(prices, widths, steps, asked, seen[2, :n], mean, late)
    else:
        draft_only_s = draft_s(prices, made[0, :n], made[3, :n], seen[2, :n], mean, late)
    tokens = made[1, :n].sum() + n if prices.ragged else n * (made[1, :n].max() + 1)
    if prices.extra and prices.from_model:
        draft_only_s += table_s(prices.block, float(n), tokens / n, context)
    verify = verify_s(prices, n, tokens, context)
    return prompt_s + draft, draft_only_s, verify, calls * prices.call_s


@compiled_part
def advance(
    server: Any, outcomes: Any, n: int, seen: Any, made: Any, m: int, spans: Any, end_s: float
) -> int:
    """Put what came out on the requests, and let those that are done go.

    Returns:
        Tokens that came out.
    """
    count, out = server.count, 0
    for k in range(n):
        r = seen[0, k]
        emitted = made[5, k]
        if server.at[r] == 0:
            server.first_s[r] = end_s
        server.at[r] += emitted
        server.steps[r] += 1
        server.drafted[r] += made[0, k]
        server.proposed[r] += made[1, k]
        server.accepted[r] += made[2, k]
        idle = made[0, k] == 0
        server.unread[r] = emitted + (server.unread[r] if idle else 0)
        server.missed[r] = emitted + server.missed[r] if idle else 0
        server.drafts[r] = server.drafts[r] or not idle
        for row in range(3):
            server.last[row, r] = made[row, k]
        log = server.log[:, count[STEPS]]
        log[0], log[1], log[2] = r, count[ITERATIONS], seen[3, k] + 1
        log[3], log[4], log[5], log[6] = made[0, k], made[1, k], made[2, k], emitted
        count[STEPS] += 1
        out += emitted
    for k in range(m):
        r = spans[2, k]
        server.read[r] = spans[1, k]
        if server.read[r] == server.base[r]:
            server.read[r] = -1
            if server.at[r] == 0 and outcomes.first == 2:
                server.at[r], server.first_s[r] = 1, end_s
                out += 1
    stay = 0
    for k in range(count[RUNNING]):
        r, s = server.running[k], server.sequence[server.running[k]]
        if server.read[r] < 0 and server.at[r] >= outcomes.offsets[s + 1] - outcomes.offsets[s]:
            server.done_s[r] = end_s
            count[DONE] += 1
        else:
            server.running[stay] = r
            stay += 1
    count[RUNNING] = stay
    return out
