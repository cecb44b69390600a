"""Replays of many policies on one trace, shared out over threads.

A work item is a few bound policies and a span of sequences, small enough for its rows to stay in a
core's cache while one policy after another reads them. An item gives the sums of each of its
sequences, so a policy's items put side by side are its whole replay, and what is then added up over
prompts does not depend on how the work was split. State that lasts a run is never split.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from simkit.cluster import Cluster, ClusterError, Job, cores, node
from simkit.costs import Times
from simkit.drafters import layout_of
from simkit.drafters.layout import Span, spans
from simkit.drafters.streamed import windowed
from simkit.errors import ReplayError
from simkit.policies import Policy, Setting
from simkit.simulator.binding import fitted
from simkit.simulator.run import Run, gather
from simkit.simulator.step_costs import Charge
from simkit.simulator.streamed import in_windows
from simkit.simulator.total import Seconds, divides, total
from simkit.steps.depth import advised
from simkit.steps.family import family_of
from simkit.steps.steps import Sums
from traces.errors import TraceError, UserError
from traces.trace import OWN, load

SPAN = 2**16  # positions in a work item
FAR = 2**20  # positions in one that another process does
TOGETHER = 32  # policies in a work item
_HELD = 2**20  # sequences' sums in one batch of policies

Part = tuple[Sums, Seconds | None]
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
    workers: int | None = None,
    progress: Progress | None = None,
    cluster: Cluster | None = None,
) -> Iterator[Run]:
    """The replay of each policy, in order; the same as `run` gives one by one.

    Args:
        policies: not bound yet.
        setting: what all of them share.
        workers: threads that replay; None means one for each core that this process may use.
        progress: called as policies are done.
        cluster: whose workers replay, in place of threads; see `check_far`.

    Raises:
        ReplayError: workers is below 1.
        UserError: a policy cannot be replayed; the message names it.
    """
    if windowed(setting.layout):
        near = partial(replays, workers=workers)
        yield from in_windows(policies, setting, near, progress)
        return
    if cluster:
        yield from _far(policies, setting, progress, cluster)
        return
    workers = cores() if workers is None else workers
    check_workers(workers)
    pool = ThreadPoolExecutor(workers)
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
            if batch is None or len(waiting) > 2 * workers:
                oldest, items = waiting.popleft()
                yield from _gathered(oldest, setting, [item.result() for item in items])
                done += len(oldest.given)
                if progress:
                    progress(done, len(policies))
    finally:
        pool.shutdown(cancel_futures=True)


def check_far(setting: Setting, ray: str | None) -> None:
    """Refuse a cluster, before one is joined, for what one machine reads in windows.

    Raises:
        ReplayError: it is.
    """
    if ray is not None and windowed(setting.layout):
        raise ReplayError("rows are read in windows (--memory) by one machine: leave out --ray")


def _far(
    policies: Sequence[Policy], setting: Setting, progress: Progress | None, cluster: Cluster
) -> Iterator[Run]:
    """What `replays` gives, from the workers of a cluster."""
    waiting: deque[_Batch] = deque()

    def items() -> Iterator[tuple[list[Policy], Span | None]]:
        for batch in _batches(policies, setting, FAR):
            waiting.append(batch)
            yield from ((batch.given, span) for span in batch.spans)

    parts: list[list[Part]] = []
    done = 0
    for part in cluster.map(Job(opening(setting), _far_work), items()):
        parts.append(part)
        if len(parts) == len(waiting[0].spans):
            batch = waiting.popleft()
            yield from _gathered(batch, setting, parts)
            parts = []
            done += len(batch.given)
            if progress:
                progress(done, len(policies))


def _far_work(setting: Setting, item: tuple[list[Policy], Span | None]) -> list[Part]:
    """One work item, in a worker; policies are bound there anew, as they are here."""
    given, span = item
    bound = []
    for policy in given:
        with _named(policy):
            bound.append(fitted(policy, setting))
    return _work(_Batch(given, bound, [span]), setting, span)


def opening(setting: Setting) -> Callable[[], Setting]:
    """What opens a setting once more in another process, which must see the trace's folder.

    Raises:
        ClusterError: the trace is in memory.
    """
    trace, charge = setting.layout.trace, setting.charge
    if trace.path is None:
        raise ClusterError("the trace is in memory: save it, so that workers can open its folder")
    recording = trace.recording or trace
    assert recording.path is not None
    place = str(recording.path.resolve())
    drafter = OWN if trace.recording is None else trace.path.name
    times = charge.times if charge else None
    return partial(_opened, place, drafter, trace.hash, times, setting.first)


def _opened(place: str, drafter: str, hash: str, times: Times | None, first: int) -> Setting:
    if not Path(place).exists():
        raise TraceError(f"{place}: no such trace on {node()}, where a worker runs")
    trace = load(place).with_drafter(drafter)
    if trace.hash != hash:
        raise TraceError(f"{place}: another trace on {node()}, where a worker runs")
    layout = layout_of(trace)
    return Setting(layout, Charge(times, layout, first) if times else None, first)


def _batches(
    policies: Iterable[Policy], setting: Setting, positions: int = SPAN
) -> Iterator[_Batch]:
    """Bind the policies and put those side by side that can be split.

    Whatever is made once and then shared is made here, by one thread: a policy of a new kind is
    compiled, and its columns and the tables of times are laid out.
    """
    cuts = spans(setting.layout.offsets, positions)
    most = max(1, min(TOGETHER, _HELD // max(1, len(setting.layout.n_output))))
    known: set[tuple[Any, ...] | None] = {None}
    batch = _Batch([], [], cuts)
    for policy in policies:
        with _named(policy):
            bound = fitted(policy, setting)
            split = divides(bound, setting)
            if (kind := family_of(bound).kind(bound, setting.layout)) not in known:
                total(bound, setting, (0, 0))
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


def _work(batch: _Batch, setting: Setting, span: Span | None) -> list[Part]:
    """One work item: a part of each policy of the batch."""
    parts = []
    for given, bound in zip(batch.given, batch.bound, strict=True):
        with _named(given), advised(given):
            parts.append(total(bound, setting, span))
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


def check_workers(workers: Any) -> None:
    """Refuse what is no number of workers; a pool of NaN threads would wait for ever.

    Raises:
        ReplayError: it is no whole number of at least 1.
    """
    whole = isinstance(workers, int) and not isinstance(workers, bool)
    if not whole or workers < 1:
        raise ReplayError(f"workers must be at least 1, not {workers!r:.40}")
