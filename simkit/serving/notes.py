"""What a reader of served requests must know, a line each."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from simkit.serving.controllers import Each, Nothing, Static
from simkit.serving.engine import Engine
from simkit.serving.plans import ControllerPlan, Planned
from simkit.serving.result import SCHEDULE, served
from simkit.serving.run import ServingRun
from simkit.simulator.step_costs import Charge
from simkit.statistics.enough import few_below
from traces.messages import how_many


def warnings_of(charge: Charge, runs: Sequence[ServingRun]) -> list[str]:
    """Why numbers that rest on the times may be wrong: `Charge.warnings`, and those of batches."""
    times, most = charge.times, max(run.plan.rules.max_batch for run in runs)
    found = list(charge.warnings)
    if times.batches and max(times.batches) < most:
        found.append(
            f"passes over more than {how_many(max(times.batches), 'sequence')} were not timed:"
            f" their times up to {most} are extrapolated linearly"
        )
    return found


def notes_of(charge: Charge, engine: Engine, runs: Sequence[ServingRun]) -> list[str]:
    """Of runs under one cost and engine: what was assumed, and what the times do not know."""
    plans = list({id(run.plan): run.plan for run in runs}.values())
    looks = [p for p in plans if not isinstance(p.bound, Planned | Static | Nothing)]
    found = [SCHEDULE] if looks else []
    if any(p.load.concurrency > engine.max_batch for p in plans):
        found.append(
            f"the engine runs at most {how_many(engine.max_batch, 'request')} at once (max_batch);"
            " other requests in flight wait"
        )
    found += [*charge.remarks, *_of_times(charge, engine, runs, plans)]
    carried = [
        str(p.controller)
        for p in plans
        if isinstance(p.controller, Each) and getattr(p.controller.policy, "carried", "") == "run"
    ]
    if carried:
        found.append(
            f"{', '.join(dict.fromkeys(carried))}: the state that lasts a whole run is taken from a"
            " replay in the trace's order"
        )
    return list(dict.fromkeys(found + _of_intervals(runs)))


def _of_intervals(runs: Sequence[ServingRun]) -> list[str]:
    """What intervals are over, or why there are none."""
    sample, seeds = runs[0].sample, 1 + max(run.seed for run in runs)
    if why := sample.unknown(seeds):
        return [f"no intervals: {why}"]
    told = "intervals cover the spread over prompts and seeds, not that of the times; a number that"
    told += " is the same in all runs has none"
    return [told, *few_below({None: served(runs)})]


def _of_times(
    charge: Charge, engine: Engine, runs: Sequence[ServingRun], plans: Sequence[ControllerPlan]
) -> list[str]:
    """What the cost does not know of batches."""
    found = []
    times, most = charge.times, max(p.rules.max_batch for p in plans)
    if any(
        len(p.prices.prefill) > 2 and p.prices.prefill[1] == p.prices.prefill[-1] for p in plans
    ):
        found.append(
            "prompts of one length only were timed: every prompt takes that long, and further ones"
            " in the same pass are not charged"
        )
    loops = [_loop_s(p) for p in plans]
    given = sorted({float(s) for seconds in loops for s in seconds if s > 0})
    if most > 1 and given and all(len(np.unique(seconds)) == 1 for seconds in loops):
        told = " and ".join(f"{1e3 * s:.3g} ms" for s in given)
        found.append(f"every batch is charged the same time outside its passes: {told}")
    asks = engine.catch_up and charge.drafting.paid == "token" and not times.knows_blocks
    if asks and any(_left_out(run) for run in runs):
        found.append(
            "no draft pass over several tokens was timed: one that reads the tokens emitted without"
            " drafts is charged like a pass over one token"
        )
    return found


def _loop_s(plan: ControllerPlan) -> np.ndarray:
    prices = plan.prices
    return prices.overhead_s if plan.rules.speculative else prices.baseline_overhead_s


def _left_out(run: ServingRun) -> bool:
    """Whether a request drafted after a step in which it did not."""
    steps = run.steps
    order = np.argsort(steps["request"], kind="stable")
    drafted, of = steps["drafted"][order] > 0, steps["request"][order]
    return bool((~drafted[:-1] & drafted[1:] & (of[:-1] == of[1:])).any())
