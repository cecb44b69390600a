"""The loop over iterations: compiled for each controller, or interpreted for one's own.

Either runs `iterate`. Compiled, it calls a controller's slots through stubs, as
`simkit.steps.compiled` does with a policy's; interpreted, the stubs ask what the controller is.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from typing import Any

import numpy as np
from numba.extending import overload, register_jitable

from simkit.policies.surroundings import plain
from simkit.serving.controllers.base import ByLength, View
from simkit.serving.interpreted import asked
from simkit.serving.iteration import (
    admit,
    advance,
    gather,
    judge,
    make_room,
    plan,
    prefill,
    priced,
    receive,
)
from simkit.serving.pass_prices import overhead_s
from simkit.serving.plans import ControllerPlan
from simkit.serving.prices import Prices
from simkit.serving.state import (
    ARRIVED,
    BEFORE,
    ITERATION,
    ITERATIONS,
    MADE,
    RETURNED,
    ROW,
    RUNNING,
    SEEN,
    SPAN,
    STARTED,
    STEPS,
    Buffers,
    Logs,
    Rules,
    ServedOutcomes,
    Server,
    buffers,
)
from simkit.steps.compiled_rules import CompiledRule, rule_of, run_rule, slots_of
from traces.kernels import compiled

OVER, FULL, OUTRUN = -1, -2, -3


def _slot(name: str) -> Callable[..., None]:
    """A stub that asks a slot of what the controller is."""

    def ask(params: Any, state: Any, *given: Any) -> None:
        getattr(state, name)(*given)

    # A slot's annotations, and the names of its arguments, may differ from its stub's.
    @overload(ask, strict=False)
    def find(params: Any, state: Any, *given: Any) -> Any:
        return plain(getattr(slots_of(params.instance_class), name))

    return ask


_decide, _choose, _observe = map(_slot, ("decide", "choose", "observe"))


@register_jitable
def seen_by(server: Server, room: Buffers, confidence: np.ndarray, n: int, prefilling: int) -> View:
    """What a controller sees of the requests that decode, and of their drafts."""
    count, seen = server.count, room.seen
    return View(
        number=int(count[ITERATIONS]),
        now_s=float(server.clock[0]),
        prefilling=prefilling,
        waiting=int(count[ARRIVED] - count[STARTED] + count[RETURNED]),
        before=int(count[BEFORE]),
        request=seen[SEEN.request, :n],
        room=seen[SEEN.room, :n],
        context=seen[SEEN.context, :n],
        tokens=seen[SEEN.tokens, :n],
        steps=seen[SEEN.steps, :n],
        drafted=seen[SEEN.drafted, :n],
        proposed=seen[SEEN.proposed, :n],
        accepted=seen[SEEN.accepted, :n],
        ahead=seen[SEEN.ahead, :n],
        confidence=confidence[:n],
    )


@compiled
def close(
    server: Server,
    outcomes: ServedOutcomes,
    rules: Rules,
    prices: Prices,
    room: Buffers,
    n: int,
    held: int,
    m: int,
) -> None:
    """Price an iteration, put what came out on the requests, and log it."""
    made, spans = room.made, room.spans
    prompt_s, draft, verify, policy = priced(server, outcomes, prices, rules, room, n, m)
    overhead = 0.0
    if n > 0 and not outcomes.step_s.shape[1]:  # else each step's seconds hold all of it
        overhead = overhead_s(prices, rules.speculative, n)
    begin_s = server.clock[0]
    end_s = begin_s + (prompt_s + draft + verify + policy + overhead)
    count = server.count
    log, at = server.iterations, count[ROW]
    log[ITERATION.begin_s, at] = begin_s
    log[ITERATION.end_s, at] = end_s
    log[ITERATION.decoding, at] = n
    log[ITERATION.prefilling, at] = m
    log[ITERATION.prefill_tokens, at] = (spans[SPAN.after, :m] - spans[SPAN.before, :m]).sum()
    log[ITERATION.waiting, at] = count[ARRIVED] - count[STARTED] + count[RETURNED]
    log[ITERATION.drafted, at] = made[MADE.drafted, :n].sum()
    log[ITERATION.proposed, at] = made[MADE.proposed, :n].sum()
    log[ITERATION.accepted, at] = made[MADE.accepted, :n].sum()
    log[ITERATION.emitted, at] = advance(server, outcomes, room, n, m, end_s)
    log[ITERATION.kv_tokens, at] = held
    log[ITERATION.prefill_s, at] = prompt_s
    log[ITERATION.draft_s, at] = draft
    log[ITERATION.verify_s, at] = verify
    log[ITERATION.policy_s, at] = policy
    server.clock[0] = end_s
    count[ITERATIONS] += 1
    count[ROW] += 1
    count[BEFORE] = n + m


@compiled
def begin(server: Server, outcomes: ServedOutcomes, rules: Rules, room: Buffers) -> tuple:
    """How many requests decode next, or `OVER` or `FULL`; and how many prompts are not read yet."""
    count = server.count
    # An iteration logs a row, and a step of each request: both logs must have room before it.
    if count[ROW] == server.iterations.shape[1]:
        return FULL, 0
    if count[STEPS] + rules.max_batch > server.log.shape[1]:
        return FULL, 0
    if not receive(server, rules):
        return OVER, 0
    n = gather(server, outcomes, rules, room)
    return n, count[RUNNING] - n


@compiled
def settle(server: Server, outcomes: ServedOutcomes, rules: Rules, room: Buffers, n: int) -> tuple:
    """Who stays and who comes, once drafts are cut to what there is.

    Returns:
        Requests that decode, tokens held, and prompts that are read; or `OUTRUN` and the place of
        the request whose draft was not recorded.
    """
    beyond = plan(server, outcomes, rules, room, n)
    if beyond >= 0:
        return OUTRUN, beyond, 0
    before = server.count[RETURNED]
    n, held = make_room(server, outcomes, rules, room, n)
    # Whoever was preempted just now would come back at once, and be preempted again.
    if server.count[RETURNED] == before:
        held = admit(server, outcomes, rules, held)
    return n, held, prefill(server, rules, room.spans)


def iterate(
    params: Any,
    state: Any,
    server: Server,
    outcomes: ServedOutcomes,
    rules: Rules,
    prices: Prices,
    room: Buffers,
    rng: np.random.Generator,
) -> tuple[int, int]:
    """Iterate to the end, or until a log is full.

    Returns:
        `OVER`; `FULL`; or `OUTRUN` and the place of the request whose draft was not recorded.
    """
    made = room.made
    while True:
        n, prefilling = begin(server, outcomes, rules, room)
        if n < 0:
            return n, 0
        # Lengths are decided before it is settled who decodes: caches must hold the drafts, and
        # who is preempted for them is the last of the batch, so that rows stay where they are.
        if n > 0:
            view = seen_by(server, room, room.unknown, n, prefilling)
            _decide(params, state, view, prices, made[MADE.drafted, :n])
        n, held, m = settle(server, outcomes, rules, room, n)
        if n == OUTRUN:
            return OUTRUN, held
        if n > 0:
            view = seen_by(server, room, room.confidence, n, m)
            drafted, proposed = made[MADE.drafted, :n], made[MADE.proposed, :n]
            _choose(params, state, view, prices, drafted, proposed)
            judge(server, outcomes, room, n, rng)
            accepted, ended = made[MADE.accepted, :n], made[MADE.ended, :n]
            _observe(params, state, view, drafted, proposed, accepted, ended)
        close(server, outcomes, rules, prices, room, n, held, m)


@cache
def _loop(rule: CompiledRule) -> Callable[..., tuple[int, int]]:
    """`iterate` compiled for one rule, see `simkit.steps.compiled`."""
    return compiled(iterate, bool(rule.kept_as), made_for=rule.kept_as)


def drive(
    planned: ControllerPlan, server: Server, rng: np.random.Generator
) -> tuple[Logs, Buffers, int]:
    """Simulate to the end.

    Args:
        planned: what runs of the controller share.
        server: before its first iteration.
        rng: draws outcomes, where they are drawn.

    Returns:
        What was logged; and, where a draft went beyond what was recorded, its place in the
        buffers; else -1.
    """
    bound, logs = planned.bound, Logs()
    room = buffers(planned.rules, planned.outcomes)
    if isinstance(bound, ByLength):
        rule = rule_of(bound, type(bound.params), bound.slots)
        params = rule.params._make(bound.params)  # type: ignore[attr-defined]
        state, run = bound.begin(planned.rules.max_batch), partial(run_rule, bound, _loop(rule))
    else:
        params, state, run = None, asked(planned, server, room), iterate
    while True:
        status, place = run(
            params=params,
            state=state,
            server=server,
            outcomes=planned.outcomes,
            rules=planned.rules,
            prices=planned.prices,
            room=room,
            rng=rng,
        )
        logs.empty(server)
        if status != FULL:
            return logs, room, place if status == OUTRUN else -1
