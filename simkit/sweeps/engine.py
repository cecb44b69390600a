"""Replays of many policies on one trace, shared out over threads.

A work item is a few bound policies and a span of sequences, small enough for its rows to stay in a
core's cache while one policy after another reads them. An item gives the sums of each of its
sequences, so a policy's items put side by side are its whole replay, and what is then added up over
prompts does not depend on how the work was split. State that lasts a run is never split.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import NamedTuple

from simkit.drafters.layout import Span, spans
from simkit.errors import ReplayError
from simkit.policies import Concurrent, NumericPolicy, Policy, Setting
from simkit.simulator import compiled
from simkit.simulator.fitted import advised, fitted
from simkit.simulator.run import Run, Seconds, divides, gather, total
from simkit.simulator.steps import Sums
from traces.errors import UserError

SPAN = 2**16  # positions in a work item
TOGETHER = 32  # policies in a work item
_HELD = 2**20  # sequences' sums in one batch of policies

Part = tuple[Sums, Seconds | None]
_Kind = tuple[type, tuple[str, ...]]
Progress = Callable[[int, int], object]
"""Called with the number of settings done, and of all."""


class _Batch(NamedTuple):
    """Policies that are replayed side by side.

    Attributes:
        given: the policies, as many as in `bound`.
        bound: to the setting.
        spans: of sequences; [None] if the policies cannot be split.
    """

    given: list[Policy]
    bound: list[Policy]
    spans: Sequence[Span | None]


def replays(
    policies: Sequence[Policy],
    setting: Setting,
    threads: int | None = None,
    progress: Progress | None = None,
) -> Iterator[Run]:
    """The replay of each policy, in order; the same as `run` gives one by one.

    Args:
        policies: not bound yet.
        setting: what all of them share.
        threads: None means one for each core that this process may use.
        progress: called as policies are done.

    Raises:
        ReplayError: threads is below 1.
        UserError: a policy cannot be replayed; the message names it.
    """
    threads = cores() if threads is None else threads
    if threads < 1:
        raise ReplayError(f"threads must be at least 1, not {threads}")
    pool = ThreadPoolExecutor(threads)
    waiting: deque[tuple[_Batch, list[Future[list[Part]]]]] = deque()
    batches = _batches(policies, setting)
    done = 0
    try:
        while True:
            batch = next(batches, None)
            if batch:
                items = [pool.submit(_work, batch, setting, span) for span in batch.spans]
                waiting.append((batch, items))
            elif not waiting:
                return
            if batch is None or len(waiting) > 2 * threads:
                oldest, items = waiting.popleft()
                yield from _gathered(oldest, setting, [item.result() for item in items])
                done += len(oldest.given)
                if progress:
                    progress(done, len(policies))
    finally:
        pool.shutdown(cancel_futures=True)


def cores() -> int:
    """How many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _batches(policies: Iterable[Policy], setting: Setting) -> Iterator[_Batch]:
    """Bind the policies and put those side by side that can be split.

    Whatever is made once and then shared is made here, by one thread: a policy of a new kind is
    compiled, and its columns and the tables of times are laid out.
    """
    cuts = spans(setting.layout.offsets, SPAN)
    most = max(1, min(TOGETHER, _HELD // max(1, len(setting.layout.n_output))))
    known: set[_Kind | None] = {None}
    batch = _Batch([], [], cuts)
    for policy in policies:
        with _named(policy):
            bound = fitted(policy, setting)
            split = divides(bound, setting)
            if (kind := _kind(bound, setting)) not in known:
                total(bound, *setting, (0, 0))
                known.add(kind)
        if batch.given and (not split or len(batch.given) == most):
            yield batch
            batch = _Batch([], [], cuts)
        if split:
            batch.given.append(policy)
            batch.bound.append(bound)
        else:
            yield _Batch([policy], [bound], [None])
    if batch.given:
        yield batch


def _kind(policy: Policy, setting: Setting) -> _Kind | None:
    """What policies with the same loop and columns share; None if the loop is not compiled."""
    if isinstance(policy, Concurrent):
        return type(policy), ()
    if isinstance(policy, NumericPolicy) and compiled.compiles(policy):
        return type(policy.params), policy.columns(setting.layout.trace.sampler)
    return None


def _work(batch: _Batch, setting: Setting, span: Span | None) -> list[Part]:
    """One work item: a part of each policy of the batch."""
    parts = []
    for given, bound in zip(batch.given, batch.bound, strict=True):
        with _named(given), advised(given, setting.layout.trace.max_draft):
            parts.append(total(bound, *setting, span))
    return parts


def _gathered(batch: _Batch, setting: Setting, items: list[list[Part]]) -> Iterator[Run]:
    for k, (given, bound) in enumerate(zip(batch.given, batch.bound, strict=True)):
        yield gather(given, bound, setting, [parts[k] for parts in items])


@contextmanager
def _named(policy: Policy) -> Iterator[None]:
    """Say which policy it was that a user's error came from."""
    try:
        yield
    except UserError as error:
        if str(policy) in str(error):
            raise
        raise type(error)(f"{policy}: {error}") from None
