"""The loop over iterations: compiled for each controller, and in plain Python for one's own.

The compiled loop calls a controller's slots through stubs, as `simkit.steps.compiled` does with
a policy's.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from typing import Any, NamedTuple

import numpy as np
from numba.extending import overload

from simkit.policies.surroundings import plain
from simkit.serving.controllers.base import ByLength, View
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
from simkit.serving.prices import Prices
from simkit.serving.state import (
    ARRIVED,
    BEFORE,
    ITERATIONS,
    RETURNED,
    ROW,
    STARTED,
    STEPS,
    Logs,
    Outcomes,
    Rules,
    Server,
)
from simkit.steps.compiled_rules import CompiledRule, rule_of, run_rule, slots_of
from traces.kernels import compiled, compiled_part

OVER, FULL, OUTRUN = 0, 1, 2


class Buffers(NamedTuple):
    """Room for one iteration.

    Attributes:
        seen: see `simkit.serving.iteration.gather`.
        made: see `simkit.serving.iteration.plan`.
        spans: (5, B) int64: of prompts tokens before, after and the request; of the draft model's
            prompts tokens before and after.
        confidence: (B, K) float64.
        unknown: (B, K) float64 of NaN, in its place before anything is drafted.
    """

    seen: np.ndarray
    made: np.ndarray
    spans: np.ndarray
    confidence: np.ndarray
    unknown: np.ndarray


def buffers(rules: Rules, outcomes: Outcomes) -> Buffers:
    """Room for batches of these rules."""
    n = rules.max_batch
    width = rules.max_draft if outcomes.confidence.shape[0] else 0
    return Buffers(
        np.zeros((10, n), np.int64),
        np.zeros((7, n), np.int64),
        np.zeros((5, n), np.int64),
        np.full((n, width), np.nan),
        np.full((n, width), np.nan),
    )


def _decide(params: Any, state: Any, view: Any, prices: Any, drafted: Any) -> Any: ...
def _choose(
    params: Any, state: Any, view: Any, prices: Any, drafted: Any, proposed: Any
) -> Any: ...
def _observe(
    params: Any, state: Any, view: Any, drafted: Any, proposed: Any, accepted: Any, ended: Any
) -> Any: ...


_slot = partial(overload, strict=False)


@_slot(_decide)
def _find_decide(params: Any, state: Any, view: Any, prices: Any, drafted: Any) -> Any:
    return plain(slots_of(params.instance_class).decide)


@_slot(_choose)
def _find_choose(
    params: Any, state: Any, view: Any, prices: Any, drafted: Any, proposed: Any
) -> Any:
    return plain(slots_of(params.instance_class).choose)


@_slot(_observe)
def _find_observe(
    params: Any, state: Any, view: Any, drafted: Any, proposed: Any, accepted: Any, ended: Any
) -> Any:
    return plain(slots_of(params.instance_class).observe)


@compiled_part
def seen_by(server: Any, room: Any, confidence: Any, n: int, prefilling: int) -> Any:
    """The first n requests that decode, as a controller sees them; (B, K) of their drafts."""
    count, seen = server.count, room.seen
    waiting = count[ARRIVED] - count[STARTED] + count[RETURNED]
    return View(
        count[ITERATIONS],
        server.clock[0],
        prefilling,
        waiting,
        count[BEFORE],
        seen[0, :n],
        seen[1, :n],
        seen[2, :n],
        seen[3, :n],
        seen[4, :n],
        seen[5, :n],
        seen[6, :n],
        seen[7, :n],
        seen[8, :n],
        confidence[:n],
    )


@compiled
def close(
    server: Any, outcomes: Any, rules: Any, prices: Any, room: Any, n: int, held: int, m: int
) -> None:
    """Price an iteration, put what came out on the requests, and log it."""
    seen, made, spans = room.seen, room.made, room.spans
    prompt_s, draft, verify, policy = priced(
        server, outcomes, prices, rules, n, seen, made, m, spans
    )
    overhead = 0.0
    if n > 0 and not outcomes.step_s.shape[1]:
        overhead = overhead_s(prices, rules.speculative, n)
    begin_s = server.clock[0]
    end_s = begin_s + (prompt_s + draft + verify + policy + overhead)
    count = server.count
    log = server.iterations[:, count[ROW]]
    log[0], log[1], log[2], log[3] = begin_s, end_s, n, m
    log[4] = (spans[1, :m] - spans[0, :m]).sum()
    log[5] = count[ARRIVED] - count[STARTED] + count[RETURNED]
    log[6], log[7], log[8] = made[0, :n].sum(), made[1, :n].sum(), made[2, :n].sum()
    log[9] = advance(server, outcomes, n, seen, made, m, spans, end_s)
    log[10], log[11], log[12], log[13], log[14] = held, prompt_s, draft, verify, policy
    server.clock[0] = end_s
    count[ITERATIONS] += 1
    count[ROW] += 1
    count[BEFORE] = n + m


@compiled
def begin(server: Any, outcomes: Any, rules: Any, room: Any) -> tuple:
    """How many decode next, -1 at the end and -2 where a log is full; and how many prefill."""
    count = server.count
    if count[ROW] == server.iterations.shape[1]:
        return -2, 0
    if count[STEPS] + rules.max_batch > server.log.shape[1]:
        return -2, 0
    if not receive(server, rules):
        return -1, 0
    n = gather(server, outcomes, rules, room.seen, room.confidence)
    return n, count[3] - n


@compiled
def settle(server: Any, outcomes: Any, rules: Any, room: Any, n: int) -> tuple:
    """Who stays and who comes: requests that decode, tokens held, and prompts that are read."""
    before = server.count[RETURNED]
    n, held = make_room(server, outcomes, rules, n, room.seen, room.made)
    if server.count[RETURNED] == before:
        held = admit(server, outcomes, rules, held)
    spans = room.spans
    return n, held, prefill(server, rules, spans[0], spans[1], spans[2])


def _drive(
    params: Any,
    state: np.ndarray,
    server: Server,
    outcomes: Outcomes,
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
        if n == -1:
            return OVER, 0
        if n == -2:
            return FULL, 0
        if n > 0:
            view = seen_by(server, room, room.unknown, n, prefilling)
            _decide(params, state, view, prices, made[0, :n])
            beyond = plan(server, outcomes, rules, n, room.seen, made)
            if beyond >= 0:
                return OUTRUN, beyond
        n, held, m = settle(server, outcomes, rules, room, n)
        if n > 0:
            view = seen_by(server, room, room.confidence, n, m)
            _choose(params, state, view, prices, made[0, :n], made[1, :n])
            judge(server, outcomes, n, room.seen, made, rng)
            _observe(params, state, view, made[0, :n], made[1, :n], made[2, :n], made[6, :n])
        close(server, outcomes, rules, prices, room, n, held, m)


@cache
def _loop(rule: CompiledRule) -> Callable[..., tuple[int, int]]:
    """The compiled loop for one rule, see `simkit.steps.compiled`."""
    return compiled(_drive, bool(rule.kept_as), made_for=rule.kept_as)


def drive(
    controller: ByLength,
    server: Server,
    outcomes: Outcomes,
    rules: Rules,
    prices: Prices,
    rng: np.random.Generator,
) -> tuple[Logs, Buffers, int]:
    """Simulate to the end under a controller that compiles.

    Args:
        controller: bound to the prices.
        server: before its first iteration.
        outcomes: of the trace.
        rules: of admission.
        prices: of iterations.
        rng: for outcomes that are drawn.

    Returns:
        What was logged; and, where a draft went beyond what was recorded, its place in the
        buffers; else -1.
    """
    room = buffers(rules, outcomes)
    state = controller.begin(rules.max_batch)
    rule = rule_of(controller, type(controller.params), controller.slots)
    params = rule.params._make(controller.params)  # type: ignore[attr-defined]
    loop, logs = _loop(rule), Logs()
    given = params, state, server, outcomes, rules, prices, room, rng
    while True:
        status, place = run_rule(controller, loop, *given)
        logs.empty(server)
        if status != FULL:
            return logs, room, place if status == OUTRUN else -1
