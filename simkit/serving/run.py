"""A run: one controller, one load, one seed."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from simkit.serving import loop, plainly
from simkit.serving.controllers.base import ByLength, Controller
from simkit.serving.loads import Load
from simkit.serving.plans import Plan
from simkit.serving.world import Logs, Server, server


@dataclass(frozen=True, eq=False)
class Run:
    """What came of one run.

    Attributes:
        controller: as it was given.
        load: of requests.
        seed: of arrivals and of which sequence each request is of.
        server: at the end.
        logs: of its iterations and steps.
        plan: that it ran.
    """

    controller: Controller
    load: Load
    seed: int
    server: Server
    logs: Logs
    plan: Plan

    @property
    def iterations(self) -> dict[str, np.ndarray]:
        """Columns of `simkit.serving.world.ITERATION`, (I,) each."""
        return self.logs.iterations

    @property
    def steps(self) -> dict[str, np.ndarray]:
        """Columns of `simkit.serving.world.STEP`, (M,) each; a request's in order."""
        return self.logs.steps

    @property
    def output(self) -> np.ndarray:
        """Output tokens of each request, (Q,) int64."""
        return self.plan.layout.n_output[self.server.sequence]


def run(plan: Plan, load: Load, requests: int | None, seed: int = 0, drawn: bool = True) -> Run:
    """Simulate.

    Args:
        plan: see there.
        load: of requests.
        requests: how many; None: each sequence of the trace once, in its order.
        seed: see `Run`.
        drawn: whether each is of a sequence drawn with replacement; else they go round in order.

    Raises:
        ReplayError: a draft went beyond what was recorded.
    """
    rng = np.random.default_rng([seed, 0])
    sequences = len(plan.layout.n_output)
    groups = -(-requests // load.copies) if requests else sequences
    if drawn and requests:
        which = rng.integers(0, sequences, groups)
    else:
        which = np.arange(groups) % sequences
    which = np.repeat(which, load.copies)
    times_s = load.times_s(len(which), np.random.default_rng([seed, 1]))
    begun = server(which, times_s, plan.rules.max_batch)
    judged = np.random.default_rng([seed, 2])
    if isinstance(plan.bound, ByLength):
        args = (plan.outcomes, plan.rules, plan.prices, judged)
        logs, room, place = loop.drive(plan.bound, begun, *args)
    else:
        logs, room, place = plainly.drive(plan, begun, judged)
    if place >= 0:
        request, row = room.seen[0, place], room.seen[9, place]
        s = int(begun.sequence[request])
        start = int(row - plan.layout.offsets[s]) + 1
        raise plan.layout.outrun(s, start, int(plan.outcomes.depth[row]) + 1)
    return Run(plan.controller, load, seed, begun, logs, plan)
