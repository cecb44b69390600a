"""What controllers do while a burst of requests comes and goes."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.axes import Axes

from analysis.figures.base import GREY, Drawn, caption, figure, frame
from analysis.figures.legends import below
from analysis.figures.panels import panels
from analysis.labelled_replays import without
from analysis.series_styles import of_controller
from analysis.serving import COST, LARGEST, burst, over_time, priced_as, served
from analysis.serving import capacity as most_of
from analysis.study import Study
from simkit.simulator.arguments import AnyCost

CONTROLLERS = ("ema", "by_batch", "budget")
REQUESTS, SHARE, TIMES = 360, 0.25, 6.0
BINS = 90


@figure("new")
def load_timeline(
    study: Study,
    ax: Axes,
    cost: AnyCost | None = COST,
    controllers: tuple[str, ...] = CONTROLLERS,
    requests: int = REQUESTS,
    seed: int = 0,
) -> Drawn:
    """Draft lengths and batch sizes over time, in one run with a burst of arrivals.

    Requests come at a quarter of the rate that the target alone can take; the middle half of them
    six times as fast.

    Args:
        study: of a trace of any kind.
        ax: to draw on; None makes one.
        cost: see `simkit.replay`; None: of an H200, `analysis.serving.COST`.
        controllers: that are shown.
        requests: how many.
        seed: of arrivals, and of what each request is.
    """
    capacity = most_of(study, ["none"], cost, 1).of["none"].seeds["steady_requests_s"][0, 0]
    times = burst(SHARE * capacity, requests, seed, TIMES)
    runs, why = served(study, controllers, cost, times, seed)
    end_s = max(float(np.nanmax(run.server.done_s)) for run in runs.values())
    edges = np.linspace(0, end_s, BINS + 1)
    upper, lower = panels(ax, "seconds", ["tokens a request", "requests in the batch"])
    rows = []
    for label, run in runs.items():
        found = over_time(run, edges)
        how: dict[str, Any] = of_controller(label).line | {"marker": ""}
        verified = np.append(found["verified"], np.nan)
        upper.step(edges, verified, where="post", label=label, **how)
        lower.step(edges, np.append(found["batch"], np.nan), where="post", **how)
        ax.plot([], [], label=label, **how)
        for i, (low, high) in enumerate(zip(edges[:-1], edges[1:], strict=True)):
            row = {"controller": label, "from_s": float(low), "to_s": float(high)}
            values = {name: float(x[i]) for name, x in found.items()}
            rows.append(row | {n: v if np.isfinite(v) else None for n, v in values.items()})
    times = times - times[0]
    for panel in (upper, lower):
        low, high = times[requests // 4], times[requests - requests // 4 - 1]
        panel.axvspan(float(low), float(high), color=GREY, alpha=0.12, linewidth=0)
        panel.set_ylim(0, None)
    below(ax, 4)
    gone = without(why)
    caption(
        ax,
        "Draft lengths and batches under a burst",
        f"Above: draft tokens verified a step. One run of {requests} requests, {TIMES:g} times as"
        f" many a second where it is grey, at most {LARGEST} at once; exact given the schedule."
        f" {COST if cost is None else cost}."
        f" {priced_as({'the drafter': study.trace}, cost)}",
    )
    return Drawn("load_timeline", frame(rows), ax, tuple(gone))
