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
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from simkit.cluster import joined
from simkit.errors import PolicyError, ServingError
from simkit.policies import Policy, Setting
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
from simkit.serving.engine import Engine, check_count, check_numbers
from simkit.serving.loads import Closed, Copies, Load, Poisson, Timestamps, read_times
from simkit.serving.measures import check_limits
from simkit.serving.notes import notes_of, warnings_of
from simkit.serving.plans import ControllerPlan, plan
from simkit.serving.ray_runs import far
from simkit.serving.result import Served
from simkit.serving.run import How, ServingRun, run
from simkit.simulator.arguments import AnyCost, AnyTrace, check_confidence, setting
from simkit.simulator.beyond import together
from simkit.sweeps.engine import Progress, check_workers, cores
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
    "ServingRun",
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
    workers: int | None = None,
    progress: Progress | None = None,
    ray: str | None = None,
) -> Served:
    """Serve requests, each with the outcomes of one of a trace's sequences.

    A controller is an object, a spec (with ranges), a draft-length policy or its spec, which each
    request follows by itself, or a function of a `View`. Requests come by one of `rate`, a second,
    at random; `concurrency`, in flight in a closed loop; `arrivals`, times in seconds or a file of
    them (`arrivals_unit`: see `read_times`); and `copies` of each request at once. `requests` is
    how many: "default" as many as there are arrival times, else `REQUESTS`; None each sequence
    once. If `drawn`, each of `seeds` runs draws prompts with replacement, as many as the trace has;
    else they go round in order. `rates` are chances that a token at depth 1, 2, … is accepted if
    those before it were, drawn in place of the trace's outcomes. Goodput is counted under `limits`,
    the most seconds of `ttft_s`, `tpot_s`, `latency_s` and `gap_s`. The engine serves batches of 64
    at most unless given, `drafter` names an attached one, others are as in `simkit.sweep`.

    Raises:
        UserError: an argument is out of range or does not fit the others, or times are missing.

    >>> cost = "linear(draft_s=1, target_s=10, draft_per_token_s=0.01, target_per_token_s=0.1)"
    >>> simkit.serve("reference", "static(3)", cost, concurrency=4, requests=40, seeds=1)
    <Served: 1 setting, 1 run>
    """
    check_confidence(confidence)
    loads = _loads(rate, concurrency, arrivals, copies, arrivals_unit)
    how = _how(requests, drawn, seeds, loads[0])
    check_limits(limits or {})
    setup = _setup(trace, drafter, cost, first_token, engine, rates)
    done = _done(setup, _plans(setup, _chosen(controllers), loads), how, workers, progress, ray)
    return _served(setup, done, limits, confidence)


class _Setup(NamedTuple):
    """What all runs share: trace, cost and first token; the engine; chances that are drawn."""

    where: Setting
    engine: Engine
    rates: np.ndarray | None


def _served(
    setup: _Setup, done: list[ServingRun], limits: Mapping[str, float] | None, confidence: float
) -> Served:
    where = setup.where
    assert where.charge is not None  # or nothing was planned
    warnings, past = warnings_of(where.charge, done), beyond(where.charge, done)
    notes = [*warnings, *together(past), *notes_of(where.charge, setup.engine, done)]
    notes += remarks_of(where.layout.trace)
    return Served(done, limits, confidence, list(dict.fromkeys(notes)), warnings, past)


def _how(requests: int | Literal["default"] | None, drawn: bool, seeds: int, load: Load) -> How:
    if requests == "default":
        requests = len(load.times) if isinstance(load, Timestamps) else REQUESTS
    if requests is not None:
        check_count("requests", requests, MOST_REQUESTS)
    check_count("seeds", seeds, MOST_SEEDS)
    return How(requests, drawn and requests is not None, seeds)


def _setup(
    trace: AnyTrace,
    drafter: str | None,
    cost: AnyCost | None,
    first_token: str,
    engine: Engine | None,
    rates: Iterable[float] | None,
) -> _Setup:
    if drafter is not None:
        trace = opened(trace).with_drafter(drafter)
    where = setting(trace, cost, first_token)
    if engine is not None and not isinstance(engine, Engine):
        raise ServingError(f"{engine!r} is no engine: give a simkit.serving.Engine")
    if not len(where.layout.n_output):
        raise ServingError("the trace is empty: there are no rows to serve")
    return _Setup(where, engine or Engine(), None if rates is None else _checked_rates(rates))


def _plans(setup: _Setup, controllers: list[Controller], loads: list[Load]) -> list[ControllerPlan]:
    where, engine, rates = setup
    return [plan(one, where, engine, load, rates) for one in controllers for load in loads]


def _done(
    setup: _Setup,
    plans: list[ControllerPlan],
    how: How,
    workers: int | None,
    progress: Progress | None,
    ray: str | None,
) -> list[ServingRun]:
    """The run of each plan and seed, in order."""
    jobs = [(p, seed) for p in plans for seed in range(how.seeds)]
    if ray is None:
        return _all(jobs, how, workers, progress)
    with joined(ray, workers) as cluster:
        assert cluster is not None
        return far(cluster, jobs, *setup, how, progress)


def _all(
    jobs: list[tuple[ControllerPlan, int]],
    how: How,
    workers: int | None,
    progress: Progress | None,
) -> list[ServingRun]:
    workers = cores() if workers is None else workers
    check_workers(workers)
    found: list[ServingRun] = []
    one_by_one = Lock()  # a controller of one's own keeps its state on itself

    def job(p: ControllerPlan, seed: int) -> ServingRun:
        with one_by_one if isinstance(p.bound, Plain) else nullcontext():
            return run(p, how, seed)

    with ThreadPoolExecutor(workers) as pool:
        for p in {type(p.bound): p for p, _ in jobs if not isinstance(p.bound, Plain)}.values():
            run(p, How(1, how.drawn))  # compiled by one thread, then setup
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
        raise ServingError("arrivals_unit needs arrivals, a file of arrival times")
    if arrivals is not None:
        return [Timestamps(check_numbers("arrivals", arrivals))]
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
    if not one and not isinstance(given, Iterable):
        raise PolicyError(f"{given!r} is no controller: give a spec, an object, a rule, or several")
    items: list[Any] = [given] if one else list(given)  # pyright: ignore[reportArgumentType]
    for item in items:
        for controller in expand(item) if isinstance(item, str) else [controller_of(item)]:
            if found.setdefault(str(controller), controller) != controller:
                raise ServingError(
                    f"two different controllers are both called {controller}: give them two names"
                )
    if not found:
        raise ServingError("no controller is given")
    return list(found.values())


def _checked_rates(rates: Iterable[float]) -> np.ndarray:
    found = check_numbers("rates", rates)
    if not len(found) or not ((found >= 0) & (found <= 1)).all():
        raise ServingError("rates must be chances between 0 and 1, one for each depth")
    return found
