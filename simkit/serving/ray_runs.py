"""Serving runs by the workers of a cluster."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import numpy as np

from simkit.cluster import Cluster, Job
from simkit.policies import Setting
from simkit.serving.controllers import Controller
from simkit.serving.engine import Engine
from simkit.serving.loads import Load
from simkit.serving.plans import ControllerPlan, plan
from simkit.serving.run import How, ServingRun, run
from simkit.serving.state import Logs, Server
from simkit.sweeps.engine import Progress, opening


def far(
    cluster: Cluster,
    jobs: list[tuple[ControllerPlan, int]],
    setting: Setting,
    engine: Engine,
    rates: np.ndarray | None,
    how: How,
    progress: Progress | None,
) -> list[ServingRun]:
    """The run of each plan and seed, in order.

    Raises:
        UserError: see `simkit.serving.serve`, and `simkit.cluster.Cluster.map`.
    """
    found: list[ServingRun] = []
    work = Job(partial(_Bench, opening(setting), engine, rates, how), _served)
    numbers = {id(p): k for k, p in enumerate({id(p): p for p, _ in jobs}.values())}
    items = [_Item(numbers[id(p)], p.controller, p.load, seed) for p, seed in jobs]
    for (p, seed), (begun, logs) in zip(jobs, cluster.map(work, items), strict=True):
        found.append(
            ServingRun(p.controller, p.load, seed, server=begun, logs=logs, plan=p, drawn=how.drawn)
        )
        if progress:
            progress(len(found), len(jobs))
    return found


class _Item(NamedTuple):
    """A run of the plan of a number."""

    number: int
    controller: Controller
    load: Load
    seed: int


class _Bench:
    """What a worker holds: the setting, and the plan that it last ran, which seeds share."""

    def __init__(
        self, opened: Callable[[], Setting], engine: Engine, rates: np.ndarray | None, how: How
    ) -> None:
        self.setting, self.engine, self.rates, self.how = opened(), engine, rates, how
        self.planned: tuple[int, ControllerPlan] | None = None

    def plan(self, item: _Item) -> ControllerPlan:
        if self.planned is None or self.planned[0] != item.number:
            laid = plan(item.controller, self.setting, self.engine, item.load, self.rates)
            self.planned = item.number, laid
        return self.planned[1]


def _served(bench: _Bench, item: _Item) -> tuple[Server, Logs]:
    """A run's server and logs; its plan is laid out at both ends, and not sent."""
    made = run(bench.plan(item), bench.how, item.seed)
    return made.server, made.logs
