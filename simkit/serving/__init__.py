"""Serving: many requests on one clock, over a trace's own outcomes.

A sequence's outcome given its own draft lengths is exact. A controller that looks at the batch or
at the clock makes lengths hang on the schedule: a result is exact given the simulated schedule.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from simkit.cluster import joined
from simkit.errors import ServingError
from simkit.policies import Policy
from simkit.serving.beyond import beyond
from simkit.serving.controllers import (
    CONTROLLERS,
    Controller,
    Plain,
    View,
    controller_of,
    expand,
    parse,
)
from simkit.serving.engine import Engine, check_count
from simkit.serving.loads import Closed, Copies, Load, Poisson, Timestamps, read_times
from simkit.serving.measures import check_limits
from simkit.serving.notes import notes_of, warnings_of
from simkit.serving.plans import Plan, plan
from simkit.serving.ray_runs import far
from simkit.serving.result import Served
from simkit.serving.run import How, Run, run
from simkit.simulator.arguments import AnyCost, AnyTrace, check_confidence, setting
from simkit.simulator.beyond import together
from simkit.sweeps.engine import Progress, check_threads, cores
from traces.did_you_mean import misspelt
from traces.loops import remarks_of
from traces.trace import opened

__all__ = [
    "CONTROLLERS",
    "Closed",
    "Controller",
    "Copies",
    "Engine",
    "Load",
    "Plain",
    "Poisson",
    "Run",
    "Served",
    "ServingError",
    "Timestamps",
    "View",
    "parse",
    "read_times",
    "serve",
]

if not TYPE_CHECKING:  # a checker knows all names
    __getattr__ = misspelt("simkit.serving", __all__)

AnyController = Controller | Policy | str | Callable[[View], Any]
REQUESTS = 1000
MOST_REQUESTS, MOST_SEEDS = 10**8, 10**5


def serve(
    trace: AnyTrace,
    controllers: AnyController | Iterable[AnyController],
    cost: AnyCost | None = None,
    *,
    rate: float | Iterable[float] | None = None,
    concurrency: int | Iterable[int] | None = None,
    arrivals: Path | str | Iterable[float] | None = None,
    arrivals_unit: str | None = None,
    copies: int | Iterable[int] | None = None,
    engine: Engine | None = None,
    requests: int | Literal["default"] | None = "default",
    drawn: bool = True,
    seeds: int = 5,
    first_token: str = "draft",
    drafter: str | None = None,
    rates: Iterable[float] | None = None,
    limits: Mapping[str, float] | None = None,
    confidence: float = 0.95,
    threads: int | None = None,
    progress: Progress | None = None,
    ray: str | None = None,
) -> Served:
    """Serve requests, each with the outcomes of one of a trace's sequences.

    Args:
        trace: see `simkit.replay`.
        controllers: one or more; an object, a spec (with ranges), a draft-length policy or its
            spec, which each request follows by itself, or a function of a `View`.
        cost: see `simkit.replay`; there must be times.
        rate: requests a second, arriving at random; one or several.
        concurrency: requests in flight in a closed loop; one or several.
        arrivals: times in seconds, or a file of them.
        arrivals_unit: of such a file's time stamps, "s" or "ms", see `read_times`.
        copies: so many copies of each request at once, as SpecDecode-Bench has it.
        engine: that serves; by default batches of 64 at most.
        requests: how many; "default": as many as there are arrival times, else `REQUESTS`. None:
            each sequence once, in its order.
        drawn: whether prompts are drawn with replacement for each seed, as many as the trace has,
            of which its requests are; else they go round in order.
        seeds: runs of each, that differ in arrivals and in the prompts drawn.
        first_token: see `simkit.replay`.
        drafter: name of an attached drafter.
        rates: chances that a token at depth 1, 2, … is accepted if those before it were, drawn in
            place of the trace's outcomes.
        limits: seconds that a request may take at most, by `ttft_s`, `tpot_s`, `latency_s` and
            `gap_s`: goodput is counted under them.
        confidence: of the intervals over prompts and seeds.
        threads: None means one for each core that this process may use.
        progress: called before the first run, behind all compiling, and as runs are done.
        ray: see `simkit.sweep`.

    Raises:
        UserError: an argument is out of range, the controller does not fit the trace or the cost,
            there are no times, or a batch is beyond those that were timed.
    """
    check_confidence(confidence)
    loads = _loads(rate, concurrency, arrivals, copies, arrivals_unit)
    if requests == "default":
        requests = len(loads[0].times) if isinstance(loads[0], Timestamps) else REQUESTS
    if requests is not None:
        check_count("requests", requests, MOST_REQUESTS)
    check_count("seeds", seeds, MOST_SEEDS)
    if drafter is not None:
        trace = opened(trace).with_drafter(drafter)
    check_limits(limits or {})
    where = setting(trace, cost, first_token)
    if not len(where.layout.n_output):
        raise ServingError("the trace is empty: there are no rows to serve")
    chosen = _chosen(controllers)
    outcomes = None if rates is None else _checked_rates(rates)
    server = engine or Engine()
    plans = [plan(one, where, server, load, outcomes) for one in chosen for load in loads]
    jobs = [(p, seed) for p in plans for seed in range(seeds)]
    how = How(requests, drawn and requests is not None, seeds)
    if ray is None:
        done = _all(jobs, how, threads, progress)
    else:
        with joined(ray, threads) as cluster:
            assert cluster is not None
            done = far(cluster, jobs, where, server, outcomes, how, progress)
    assert where.charge is not None  # or nothing was planned
    warnings, past = warnings_of(where.charge, done), beyond(where.charge, done)
    notes = [*warnings, *together(past), *notes_of(where.charge, server, done)]
    notes += remarks_of(where.layout.trace)
    return Served(done, limits, confidence, list(dict.fromkeys(notes)), warnings, past)


def _all(
    jobs: list[tuple[Plan, int]],
    how: How,
    threads: int | None,
    progress: Progress | None,
) -> list[Run]:
    threads = cores() if threads is None else threads
    check_threads(threads)
    found: list[Run] = []
    one_by_one = Lock()  # a controller of one's own keeps its state on itself

    def job(p: Plan, seed: int) -> Run:
        with one_by_one if isinstance(p.bound, Plain) else nullcontext():
            return run(p, how, seed)

    with ThreadPoolExecutor(threads) as pool:
        for p in {type(p.bound): p for p, _ in jobs if not isinstance(p.bound, Plain)}.values():
            run(p, How(1, how.drawn))  # compiled by one thread, then shared
        if progress:
            progress(0, len(jobs))
        waiting = [pool.submit(job, p, seed) for p, seed in jobs]
        for one in waiting:
            found.append(one.result())
            if progress:
                progress(len(found), len(jobs))
    return found


def _loads(rate: Any, concurrency: Any, arrivals: Any, copies: Any, unit: str | None) -> list[Load]:
    given = {"rate": rate, "concurrency": concurrency, "arrivals": arrivals, "copies": copies}
    named = [name for name, value in given.items() if value is not None]
    if len(named) != 1:
        told = " and ".join(named) if named else "none is given"
        raise ServingError(f"give one of rate, concurrency, arrivals and copies ({told})")
    if isinstance(arrivals, str | Path):
        return [read_times(Path(arrivals), unit)]
    if unit is not None:
        raise ServingError("arrivals_unit is of a file of arrivals, and there is none")
    if arrivals is not None:
        return [Timestamps(np.array(list(arrivals)))]
    kind: Any = {"rate": Poisson, "concurrency": Closed, "copies": Copies}[named[0]]
    values = given[named[0]]
    several = isinstance(values, Iterable) and not isinstance(values, str)
    found = [kind(value) for value in dict.fromkeys(values if several else [values])]
    if not found:
        raise ServingError(f"{named[0]} is empty")
    return found


def _chosen(given: AnyController | Iterable[AnyController]) -> list[Controller]:
    one = isinstance(given, Controller | Policy | str) or callable(given)
    found: dict[str, Controller] = {}
    items: list[Any] = [given] if one else list(given)  # pyright: ignore[reportArgumentType]
    for item in items:
        for controller in expand(item) if isinstance(item, str) else [controller_of(item)]:
            if found.setdefault(str(controller), controller) != controller:
                raise ServingError(
                    f"two controllers that differ are both called {controller}: name them apart"
                )
    if not found:
        raise ServingError("no controller is given")
    return list(found.values())


def _checked_rates(rates: Iterable[float]) -> np.ndarray:
    found = np.array(list(rates), np.float64)
    if found.ndim != 1 or not len(found) or not ((found >= 0) & (found <= 1)).all():
        raise ServingError("rates must be chances between 0 and 1, one for each depth")
    return found
