"""What controllers do while a burst of requests comes and goes."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes

from analysis.figures.base import Plot, figure
from analysis.figures.drawing.panels import panels
from analysis.figures.drawing.styles import GREY
from analysis.labelled_replays import without
from analysis.series_styles import Look, of_controller
from analysis.serving import ALONE, COST, LARGEST, burst, capacity, over_time, priced_as, served
from simkit.simulator.arguments import AnyCost
from traces.messages import how_many

CONTROLLERS = ("ema", "by_batch", "budget")
REQUESTS, SHARE, TIMES = 360, 0.25, 6.0
BINS = 90


@figure("new")
def load_timeline(
    plot: Plot,
    cost: AnyCost | None = COST,
    controllers: tuple[str, ...] = CONTROLLERS,
    requests: int = REQUESTS,
    seed: int = 0,
) -> None:
    """Draft lengths and batch sizes over time, in one run with a burst of arrivals.

    Requests come at a quarter of the rate that the target alone can take; the middle half of them
    six times as fast.

    Args:
        cost: see `simkit.replay`; None: of an H200, `analysis.serving.COST`.
        controllers: that are shown.
        requests: how many.
        seed: of arrivals, and of what each request is.
    """
    most = capacity(plot.study, [ALONE], cost, 1).of[ALONE].seeds["steady_requests_s"][0, 0]
    times = burst(SHARE * most, requests, seed, TIMES)
    runs, why = served(plot.study, controllers, cost, times, seed)
    plot.gone += without(why)
    end_s = max(float(np.nanmax(run.server.done_s)) for run in runs.values())
    edges = np.linspace(0, end_s, BINS + 1)
    both = panels(plot.ax, "seconds", ["tokens a request", "requests in the batch"])
    for label, run in runs.items():
        found = over_time(run, edges)
        _step(plot, both, label, edges, found)
        for i, (low, high) in enumerate(zip(edges[:-1], edges[1:], strict=True)):
            row = {"controller": label, "from_s": float(low), "to_s": float(high)}
            values = {name: float(x[i]) for name, x in found.items()}
            plot.rows.append(row | {n: v if np.isfinite(v) else None for n, v in values.items()})
    times = times - times[0]
    low, high = times[requests // 4], times[requests - requests // 4 - 1]
    for panel in both:
        panel.axvspan(float(low), float(high), color=GREY, alpha=0.12, linewidth=0)
        panel.set_ylim(0, None)
    plot.below(4)
    plot.caption(
        "Draft lengths and batches under a burst",
        f"Top: draft tokens verified a step. One run of {how_many(requests, 'request')}, at most"
        f" {LARGEST} at once; grey: {TIMES:g} times as many arrivals a second;"
        " outcomes are exact, the schedule is simulated."
        f" {priced_as({'the drafter': plot.trace}, cost)}",
    )


def _step(
    plot: Plot, both: list[Axes], label: str, edges: np.ndarray, found: dict[str, np.ndarray]
) -> None:
    """What one controller verified in the upper panel, and its batches in the lower one."""
    how: Look = of_controller(label).line | {"marker": ""}
    upper, lower = both
    upper.step(edges, np.append(found["verified"], np.nan), where="post", label=label, **how)
    lower.step(edges, np.append(found["batch"], np.nan), where="post", **how)
    plot.ax.plot([], [], label=label, **how)
