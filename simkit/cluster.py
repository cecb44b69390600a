"""Work that is shared out over the processes of a Ray cluster, on one machine or many.

Each worker holds what all tasks need (an opened trace, loaded models), which it makes once. It has
one task at a time, and the next one when it is done. A worker that is lost is replaced, and its
task goes to whichever is free, so what comes back does not depend on who did it.
"""

from __future__ import annotations

import os
import socket
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple, TypeVar

from traces.errors import UserError, first_line
from traces.messages import how_many

LOST = 3
"""Workers that a task may be lost with, before it is given up."""
PATIENCE_S = 60.0
"""How long a busy cluster is waited for."""
_LOOK_S = 0.5  # between looks at what is free
_STORE_BYTES = 256 * 2**20  # of a Ray of our own; what travels is small

Item = TypeVar("Item")
Result = TypeVar("Result")


class ClusterError(UserError):
    """A cluster cannot be reached, or lost too much."""


class Job(NamedTuple):
    """What the tasks of one `Cluster.map` share.

    Attributes:
        make: gives what a worker holds; called once in each.
        work: of that and an item; its result goes back.
        cpus: cores of a worker.
        gpus: of a worker.
    """

    make: Callable[[], Any]
    work: Callable[[Any, Any], Any]
    cpus: int = 1
    gpus: int = 0


class Cluster:
    """A Ray cluster that this process has joined.

    Attributes:
        workers: how many may work at once; None: as many as there are cores, or GPUs, for.
    """

    def __init__(self, ray: Any, workers: int | None = None) -> None:
        self._ray = ray
        self.workers = workers

    def map(self, job: Job, items: Iterable[Item]) -> Iterator[Any]:
        """The result of each item, in order.

        Args:
            job: what is done with an item.
            items: asked for as workers are free.

        Raises:
            UserError: one of a task's own, which is not tried again.
            ClusterError: there is no room for a worker, or an item was lost too often.
        """
        crew = _Crew(self._ray, job, self._room(job))
        try:
            yield from crew.results(iter(items))
        finally:
            crew.dismiss()

    def _room(self, job: Job) -> int:
        """How many workers of a job there is room for; on a busy cluster, once there is some."""
        kind, each = ("GPU", job.gpus) if job.gpus else ("CPU", job.cpus)
        if self._ray.cluster_resources().get(kind, 0) < each:
            raise ClusterError(f"the Ray cluster has no room for {_worker(job)}")
        until = time.monotonic() + PATIENCE_S
        while (room := int(self._ray.available_resources().get(kind, 0) // each)) < 1:
            if time.monotonic() > until:
                raise _busy(job)
            time.sleep(_LOOK_S)
        return min(room, self.workers or room)


def _busy(job: Job) -> ClusterError:
    waited = f"in {PATIENCE_S:g} s there was no room for"
    return ClusterError(f"the Ray cluster is busy: {waited} {_worker(job)}")


def _worker(job: Job) -> str:
    takes = f"{job.gpus} GPU" if job.gpus else f"{how_many(job.cpus, 'core')}"
    return f"a worker, which takes {takes}"


class _Crew:
    """The workers of one job, and what each is doing.

    `busy` has the worker and the number of the item by the task's reference; the number is None
    while a worker makes what it holds.
    """

    def __init__(self, ray: Any, job: Job, size: int) -> None:
        self.ray = ray
        self.job = ray.put(job)
        options = {"num_cpus": job.cpus, "num_gpus": job.gpus, "max_restarts": 0}
        self.worker = ray.remote(**options)(_Worker)
        self.busy: dict[Any, tuple[Any, int | None]] = {}
        self.free: deque[Any] = deque()
        self.items: dict[int, Any] = {}
        self.lost: dict[int | None, int] = {}
        there = [self.hire() for _ in range(size)]
        if not ray.wait(there, timeout=PATIENCE_S)[0]:  # others were faster, or no node is free
            self.dismiss()
            raise _busy(job)

    def hire(self) -> Any:
        """Ask for one more worker; a reference that is ready once it has its place."""
        worker = self.worker.remote()
        there = worker.there.remote()
        self.busy[worker.ready.remote(self.job)] = worker, None
        return there

    def results(self, items: Iterator[Any]) -> Iterator[Any]:
        """See `Cluster.map`."""
        numbered = enumerate(items)
        again: deque[int] = deque()
        done: dict[int, Any] = {}
        following, ended = 0, False
        while True:
            while self.free and (again or not ended):
                if again:
                    self.give(again.popleft())
                elif (fresh := next(numbered, None)) is not None:
                    self.items[fresh[0]] = fresh[1]
                    self.give(fresh[0])
                else:
                    ended = True
            if ended and not self.items:
                return
            for reference in self.ray.wait([*self.busy])[0]:
                worker, number = self.busy.pop(reference)
                found, kept = self.taken(reference, number)
                if not kept:
                    again.extend([] if number is None else [number])
                    self.hire()
                    continue
                self.free.append(worker)
                if number is not None:
                    done[number] = found
                    del self.items[number]
            while following in done:
                yield done.pop(following)
                following += 1

    def give(self, number: int) -> None:
        worker = self.free.popleft()
        self.busy[worker.work.remote(self.items[number])] = worker, number

    def taken(self, reference: Any, number: int | None) -> tuple[Any, bool]:
        """What a task gave, and whether its worker is still there."""
        errors = self.ray.exceptions
        try:
            return self.ray.get(reference), True
        except errors.RayTaskError as error:
            raise error.cause from (None if isinstance(error.cause, UserError) else error)
        except (errors.RayActorError, errors.ObjectLostError, errors.OutOfMemoryError):
            self.lost[number] = self.lost.get(number, 0) + 1
            if self.lost[number] < LOST:
                return None, False
            what = "while they started" if number is None else "each on the same task"
            raise ClusterError(f"{LOST} workers were lost, {what}: Ray's logs say why") from None

    def dismiss(self) -> None:
        for worker in [*self.free, *(worker for worker, _ in self.busy.values())]:
            with suppress(self.ray.exceptions.RayError):
                self.ray.kill(worker)


class _Worker:
    """A process of the cluster; Ray makes it."""

    def there(self) -> None:
        """It has its place."""

    def ready(self, job: Job) -> None:
        self.job, self.held = job, job.make()

    def work(self, item: Any) -> Any:
        return self.job.work(self.held, item)


@contextmanager
def joined(address: str | None, workers: int | None = None) -> Iterator[Cluster | None]:
    """The cluster at an address, as long as it is needed.

    Args:
        address: of a Ray cluster, such as "auto", "HOST:6379" or "ray://HOST:10001"; "local" starts
            one on this machine and stops it again; None: there is none.
        workers: how many may work at once; None: as many as there is room for.

    Raises:
        ClusterError: Ray is not installed, or there is no cluster at the address.
    """
    if address is None:
        yield None
        return
    if workers is not None and workers < 1:
        raise ClusterError(f"workers must be at least 1, not {workers}")
    with _environment():
        ray = _imported()
        ours = not ray.is_initialized()
        if ours:
            _connect(ray, address, workers)
        try:
            yield Cluster(ray, workers)
        finally:
            if ours:
                ray.shutdown()


@contextmanager
def _environment() -> Iterator[None]:
    """Ray's settings that the user has not set, for as long as they are needed."""
    names = ("RAY_USAGE_STATS_ENABLED", "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO")
    ours = [name for name in names if name not in os.environ]
    os.environ.update(dict.fromkeys(ours, "0"))
    try:
        yield
    finally:
        for name in ours:
            os.environ.pop(name, None)


def _imported() -> Any:
    try:
        import ray  # pyright: ignore[reportMissingImports]
    except ModuleNotFoundError:
        message = "--ray needs ray: pip install 'draft-simkit[distributed]'"
        raise ClusterError(message) from None
    return ray


def _connect(ray: Any, address: str, workers: int | None) -> None:
    quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": "error"}
    if address == "local":
        own = {"include_dashboard": False, "object_store_memory": _STORE_BYTES}
        ray.init(address="local", num_cpus=max(workers or 0, cores()), **own, **quiet)
        return
    try:
        ray.init(address=address, **quiet)
    except (ConnectionError, ValueError, RuntimeError, OSError) as error:
        raise ClusterError(
            f"--ray {address}: no Ray cluster there ({first_line(error):.200})"
        ) from None


def cores() -> int:
    """How many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def node() -> str:
    """The name of the machine that this process is on."""
    return socket.gethostname()
