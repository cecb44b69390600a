"""A run: one controller, one load, one seed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from simkit.serving.controllers.base import Controller
from simkit.serving.loads import Load
from simkit.serving.loop import drive
from simkit.serving.plans import ControllerPlan
from simkit.serving.pools import Sample, sequences_of
from simkit.serving.state import SEEN, Logs, Server, server


class How(NamedTuple):
    """Which requests runs of a setting serve.

    Attributes:
        requests: how many; None: each sequence of the trace once, in its order.
        drawn: whether prompts are drawn for each seed; else requests go round in order.
        seeds: runs of the setting.
    """

    requests: int | None
    drawn: bool = True
    seeds: int = 1


@dataclass(frozen=True, eq=False)
class ServingRun:
    """What came of one run.

    Attributes:
        controller: as it was given.
        load: of requests.
        seed: of arrivals and of which prompts are served, see `simkit.serving.pools`.
        server: at the end.
        logs: of its iterations and steps.
        plan: that it ran.
        drawn: whether prompts are drawn for each seed.

    >>> cost = "linear(draft_s=1, target_s=10, draft_per_token_s=0.01, target_per_token_s=0.1)"
    >>> served = simkit.serve("reference", "none", cost, concurrency=4, requests=40, seeds=1)
    >>> len(served.runs[0].output), int(max(served.runs[0].iterations["decoding"]))
    (40, 4)
    """

    controller: Controller
    load: Load
    seed: int
    server: Server
    logs: Logs
    plan: ControllerPlan
    drawn: bool = True

    @property
    def iterations(self) -> dict[str, np.ndarray]:
        """Columns of `simkit.serving.state.ITERATION`, (I,) each."""
        return self.logs.iterations

    @property
    def steps(self) -> dict[str, np.ndarray]:
        """Columns of `simkit.serving.state.STEP`, (M,) each; a request's in order."""
        return self.logs.steps

    @property
    def sample(self) -> Sample:
        """What it served."""
        requests = len(self.server.sequence) // self.load.copies
        return Sample(len(self.plan.layout.n_output), requests, self.drawn)

    @property
    def output(self) -> np.ndarray:
        """Output tokens of each request, (Q,) int64."""
        return self.plan.layout.n_output[self.server.sequence]


def run(plan: ControllerPlan, how: How, seed: int = 0) -> ServingRun:
    """Simulate.

    Args:
        plan: all that runs of its controller share.
        how: which requests are served.
        seed: see `ServingRun`.

    Raises:
        ReplayError: a draft went beyond what was recorded.
    """
    load, sequences = plan.load, len(plan.layout.n_output)
    groups = -(-how.requests // load.copies) if how.requests else sequences
    which = np.arange(groups) % sequences
    if how.drawn:
        which = sequences_of(sequences, groups, seed, how.seeds)
    which = np.repeat(which, load.copies)
    times_s = load.times_s(len(which), np.random.default_rng([seed, 1]))
    begun = server(which, times_s, plan.rules.max_batch)
    logs, room, place = drive(plan, begun, np.random.default_rng([seed, 2]))
    if place >= 0:
        request, row = room.seen[SEEN.request, place], room.seen[SEEN.row, place]
        s = int(begun.sequence[request])
        start = int(row - plan.layout.offsets[s]) + 1
        raise plan.layout.outrun(s, start, int(plan.outcomes.depth[row]) + 1)
    return ServingRun(
        plan.controller, load, seed, server=begun, logs=logs, plan=plan, drawn=how.drawn
    )
