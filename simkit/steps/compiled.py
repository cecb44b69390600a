"""The replay as a compiled loop, specialised for each numeric policy by `compiled_slots`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from functools import cache
from typing import Any

import numba
import numpy as np

from simkit.drafters.layout import Layout, Read, Span
from simkit.policies import NumericPolicy, Outcome, Policy, PolicyError, Slots
from simkit.policies.function import CompiledFunction
from simkit.steps.compiled_rules import (
    CompiledRule,
    compilable,
    rule_of,
    run_rule,
    stands_alone,
)
from simkit.steps.compiled_slots import (
    Unsigned,
    begin,
    boolean,
    calls_of,
    is_missing,
    limit,
    proposed_of,
    row_of,
    scores_of,
    trips,
    update,
    whole,
)
from simkit.steps.loop_tables import NO_PRICES, LayoutArrays, LoopPrices, arrays_of
from simkit.steps.steps import Steps, Sums, extra_passes, sequential
from traces.drafters.passes import counted
from traces.kernels import compiled, compiled_part


def compiles(policy: Policy) -> bool:
    """Whether the loop takes this policy: a numeric one whose rule is its slots."""
    if not isinstance(policy, NumericPolicy) or numba.config.DISABLE_JIT:  # type: ignore[attr-defined]
        return False
    return _by_slots(type(policy)) and compilable(type(policy.params), policy.slots)


@cache
def _by_slots(kind: type[NumericPolicy]) -> bool:
    """Whether the methods of a class of policies are those that call its slots."""
    own = NumericPolicy, CompiledFunction
    names = [field.name for field in fields(Slots)]
    return all(getattr(kind, name) in [getattr(one, name) for one in own] for name in names)


def rule(policy: NumericPolicy) -> CompiledRule:
    """The rule of a policy that `compiles`.

    Raises:
        PolicyError: see `rule_of`; or its numbers let drafts be longer than its `max_draft`.
    """
    if policy.params.max_draft > policy.max_draft:
        raise PolicyError(
            f"{policy}: a longest draft of {policy.params.max_draft} tokens among its params is"
            f" beyond its max_draft, {policy.max_draft}"
        )
    if isinstance(policy, CompiledFunction):
        return stands_alone(*policy.rule)
    return rule_of(policy, type(policy.params), policy.slots)


def walk(policy: NumericPolicy, layout: Layout, first: int, span: Span | None = None) -> Steps:
    """Replay a policy; the same steps and errors as in `interpreted.walk`.

    Args:
        policy: one that `compiles`.
        layout: of the trace.
        first: see `interpreted.walk`.
        span: see `total`.
    """
    path, read, flags = _prepare(policy, layout)
    low, high = span or (0, len(layout.n_output))
    rows = 3 if layout.deepest is None else 4
    counts = np.empty((rows, layout.offsets[high] - layout.offsets[low]), np.int32)
    ends = np.zeros(high - low + 1, np.int64)
    loop, params = _loop_of(_record, policy)
    given = path, read, flags, first, low, counts, ends
    _check(run_rule(policy, loop, params, *given), layout)
    extra = extra_passes(policy, layout)
    return sequential(ends, counts[:, : ends[-1]], layout, first, (low, high), extra)


def total(
    policy: NumericPolicy,
    layout: Layout,
    first: int,
    prices: LoopPrices = NO_PRICES,
    span: Span | None = None,
) -> Sums:
    """Replay a policy and keep each sequence's sums only, which is faster than `walk`.

    Args:
        policy: one that `compiles`.
        layout: of the trace.
        first: see `interpreted.walk`.
        prices: tables that reach as far as the steps may; without them times are 0.
        span: sequences to replay; None means all. State that lasts a run begins anew with it.
    """
    path, read, flags = _prepare(policy, layout)
    low, high = span or (0, len(layout.n_output))
    counts = np.empty((6, high - low), np.int64)
    seconds = np.zeros((2, high - low))
    loop, params = _loop_of(_add_up, policy)
    given = path, read, flags, first, prices, low, counts, seconds
    _check(run_rule(policy, loop, params, *given), layout)
    assert not callable(layout.paid)
    counts[2] = counted(layout.paid, counts[1], counts[2])
    if extra := extra_passes(policy, layout):
        counts[2] += extra * counts[0]
    return Sums(*counts, *seconds)


def _prepare(policy: NumericPolicy, layout: Layout) -> tuple[LayoutArrays, Read, tuple[bool, bool]]:
    arrays = arrays_of(layout)
    read = arrays.read(policy.columns(layout.trace.sampler))
    return arrays.path, read, (policy.carried == "sequence", policy.needs_future)


def _check(failure: tuple[int, int, int], layout: Layout) -> None:
    if failure[0] >= 0:
        raise layout.outrun(*failure)


def _loop_of(function: Callable, policy: NumericPolicy) -> tuple[Callable, Any]:
    """The compiled function for a policy's rule, and the parameters that it is called with."""
    mine = rule(policy)
    return _loop(function, mine), mine.params._make(policy.params)  # type: ignore[attr-defined]


@cache
def _loop(function: Callable, rule: CompiledRule) -> Callable[..., tuple[int, int, int]]:
    """The compiled function for one rule.

    A dispatcher takes two named tuples with the same fields for one another, so each rule has a
    dispatcher of its own. It has a name of its own too, since names tell compiled code apart.
    """
    return compiled(function, bool(rule.kept_as), made_for=rule.kept_as)


@compiled_part
def _room(params: Any, state: Any, path: LayoutArrays, ahead: int, position: int) -> int:
    """The longest draft from a position, by the rule and by the end of the longest output."""
    longest = whole(limit(params, state, ahead))
    return min(longest, params.max_draft, path.max_new_tokens - position)


@compiled_part
def _note(
    deepest: int,
    counts: np.ndarray,
    k: int,
    room: int,
    depth: int,
    proposed: int,
    taken: int,
) -> None:
    """Write down step k, which had room for so many tokens."""
    if deepest >= 0:
        counts[3, Unsigned(k)] = min(room, deepest) if depth > 0 else 0
    counts[0, Unsigned(k)] = depth
    counts[1, Unsigned(k)] = proposed
    counts[2, Unsigned(k)] = taken


@compiled_part
def _sequence(
    params: Any,
    state: Any,
    path: LayoutArrays,
    read: Read,
    needs_future: bool,
    first: int,
    s: int,
    counts: np.ndarray,
    at: int,
) -> tuple[int, Any, int, int]:
    """Replay sequence s into columns `at` and on: steps, state, where a row was missing."""
    origin, end = path.offsets[s], path.offsets[s + 1]
    count = 0
    row = origin + first - 1
    while row < end:
        ahead = int(path.ahead[Unsigned(row)])
        room = _room(params, state, path, ahead if needs_future else -1, row - origin + 1)
        depth = 0
        stop = False
        reach = 0 if path.by_start else min(room, ahead + 1, end - row)
        while depth < reach and not stop:
            scores = scores_of(read.starts, row, depth + 1)
            if is_missing(scores):
                return count, state, row - origin + 1, depth + 1
            said, state = trips(params, state, depth + 1, row_of(read.path, row + depth) + scores)
            stop = boolean(said)
            depth += 1
        m = row if path.by_start else row + ahead  # the row that says where drafting ends
        if depth < room and not stop and m < end:
            tail = int(path.tail[Unsigned(m)])
            reach = min(room, depth + (tail if tail >= 0 else -1 - tail))
            k = int(path.rank[Unsigned(m)])
            while depth < reach and not stop:
                scores = scores_of(read.starts, row, depth + 1)
                if is_missing(scores):
                    return count, state, row - origin + 1, depth + 1
                said, state = trips(params, state, depth + 1, row_of(read.branches, k) + scores)
                stop = boolean(said)
                depth += 1
                k += path.n_branches
            if depth < room and not stop and tail < 0:
                return count, state, row - origin + 1, depth + 1
        proposed = max(0, min(depth, whole(proposed_of(params, state, depth))))
        taken = min(proposed, ahead)
        _note(path.deepest, counts, at + count, room, depth, proposed, taken)
        count += 1
        state = update(params, state, Outcome(depth, proposed, taken, row + taken >= end))
        row += taken + 1
    return count, state, 0, 0


def _record(
    params: Any,
    path: LayoutArrays,
    read: Read,
    flags: tuple[bool, bool],
    first: int,
    low: int,
    counts: np.ndarray,
    ends: np.ndarray,
) -> tuple[int, int, int]:
    """Fill in the steps of the sequences from `low` on.

    Returns:
        (-1, 0, 0), or the sequence, start and depth not recorded.
    """
    anew, needs_future = flags
    state = begin(params, low)
    for k in range(len(ends) - 1):
        s = low + k
        if anew:
            state = begin(params, s)
        count, state, start, depth = _sequence(
            params, state, path, read, needs_future, first, s, counts, ends[k]
        )
        if start > 0:
            return s, start, depth
        ends[k + 1] = ends[k] + count
    return -1, 0, 0


def _add_up(
    params: Any,
    path: LayoutArrays,
    read: Read,
    flags: tuple[bool, bool],
    first: int,
    prices: LoopPrices,
    low: int,
    counts: np.ndarray,
    seconds: np.ndarray,
) -> tuple[int, int, int]:
    """Fill in the sums of the sequences from `low` on; returns what `_record` does."""
    anew, needs_future = flags
    steps = np.empty((4, path.max_new_tokens), np.int32)
    state = begin(params, low)
    for k in range(counts.shape[1]):
        s = low + k
        if anew:
            state = begin(params, s)
        count, state, start, depth = _sequence(
            params, state, path, read, needs_future, first, s, steps, 0
        )
        if start > 0:
            return s, start, depth
        drafted = drafts = proposed = accepted = calls = np.int64(0)
        for j in range(count):
            drafted += steps[0, j]
            proposed += steps[1, j]
            accepted += steps[2, j]
            calls += whole(calls_of(params, steps[0, j]))
            if path.deepest >= 0:
                drafts += steps[0, j] > 0
        counts[0, k] = count
        counts[1, k] = drafted
        counts[2, k] = drafts
        counts[3, k] = proposed
        counts[4, k] = accepted
        counts[5, k] = calls
        if len(prices.n_prompt):
            context = prices.n_prompt[s] + first - 1
            seconds[0, k], seconds[1, k] = _charge(prices, context, steps, count)
    return -1, 0, 0


@compiled_part
def _draft_s(prices: LoopPrices, context: int, steps: np.ndarray, k: int, unread: int) -> float:
    """Seconds of the passes over the draft of step k, what the step pays once included."""
    if not prices.blocks.size:
        behind = context + steps[0, k]
        return prices.draft[Unsigned(behind)] - prices.before[Unsigned(context)]
    once_s = prices.draft[Unsigned(context)] - prices.before[Unsigned(context)]
    if steps[0, k] == 0:
        return once_s
    form = prices.opening
    tokens = form.draft * np.int64(steps[3, k]) + form.unread * unread + form.more
    behind = context - form.back * (unread - 1)
    later_s = prices.draft[Unsigned(context + steps[0, k])] - prices.draft[Unsigned(context + 1)]
    return once_s + prices.blocks[Unsigned(behind), Unsigned(tokens)] + later_s


@compiled_part
def _charge(prices: LoopPrices, context: int, steps: np.ndarray, count: int) -> tuple[float, float]:
    """Seconds of draft passes and of verifications of steps, the first one at `context`."""
    draft_s = 0.0
    verify_s = 0.0
    unread = 1
    for k in range(count):
        draft_s += _draft_s(prices, context, steps, k, unread)
        if prices.extra.size:
            draft_s += prices.extra[Unsigned(context), Unsigned(steps[1, k])]
        verify_s += prices.verify[Unsigned(context), Unsigned(steps[1, k])]
        emitted = steps[2, k] + 1
        context += emitted
        if not prices.extra.size:  # else the draft has read all but the last token
            unread = emitted + (unread if steps[0, k] == 0 else 0)
    return draft_s, verify_s
