"""Requests served in time, by arrival rate."""

from __future__ import annotations

from matplotlib.axes import Axes

from analysis.figures.base import GREY, Drawn, caption, cells, figure, frame, missing, points
from analysis.figures.legends import below
from analysis.series_styles import of_controller
from analysis.serving import ALONE, COST, At, alone, capacity, curves, priced_as
from analysis.study import Study
from simkit.simulator.arguments import AnyCost

CONTROLLERS = ("static(1)", "static(3)", "ema", "by_batch", "goodput")
SHARES = (0.1, 0.25, 0.4, 0.55, 0.7, 0.85, 1.0, 1.15)
"""Arrival rates, over what the target alone can take."""
TTFT, TPOT = 10.0, 1.25
"""Limits where none are given: so many times what a request takes alone, without drafts."""
REQUESTS = 240


@figure("new")
def load_goodput(
    study: Study,
    ax: Axes,
    cost: AnyCost | None = COST,
    controllers: tuple[str, ...] = CONTROLLERS,
    ttft_s: float | None = None,
    tpot_s: float | None = None,
    shares: tuple[float, ...] = SHARES,
    seeds: int = 5,
) -> Drawn:
    """Requests a second that keep limits of latency, by arrival rate.

    Args:
        study: of a trace of any kind.
        ax: to draw on; None makes one.
        cost: see `simkit.replay`; None: of an H200, `analysis.serving.COST`.
        controllers: beside none.
        ttft_s: limit of the time to the first token; None: `TTFT` times that of a request alone.
        tpot_s: of the time per token; None: `TPOT` times likewise.
        shares: arrival rates over the one at which the server saturates without drafts.
        seeds: runs of each.
    """
    single = alone(study, cost)
    limits = {"ttft_s": ttft_s or TTFT * single["ttft_s_p50"]}
    tpot = tpot_s or TPOT * single["tpot_s_p50"]
    limits |= {"tpot_s": tpot} if tpot > 0 else {}  # no outputs of more than a token: none
    full = capacity(study, [ALONE], cost, seeds).of[ALONE]
    most = full.estimates("steady_requests_s")[0].value or 0.0
    loads = [At("rate", most * share, REQUESTS) for share in shares]
    found = curves(study, (ALONE, *controllers), loads, cost, seeds, limits)
    rows, said = [], []
    for label, one in found.of.items():
        good, share = one.estimates("goodput_s"), one.estimates("good_share")
        points(ax, one.at, good, label=label, **of_controller(label).line)
        said += missing(good)
        for rate, a, b in zip(one.at, good, share, strict=True):
            row = {"controller": label, "rate": float(rate)} | limits
            rows.append(row | cells(a, "goodput_s") | cells(b, "good_share"))
    ends = [0, max(load.value for load in loads)]
    ax.plot(ends, ends, color=GREY, linewidth=0.8, linestyle=":", label="all")
    ax.set(xlabel="requests a second", ylabel="in time, requests a second", ylim=(0, None))
    below(ax, 4)
    said = list(dict.fromkeys(said))
    kept = " and ".join(f"{name[:4].upper()} ≤ {1e3 * s:.3g} ms" for name, s in limits.items())
    caption(
        ax,
        "Requests served in time, by arrival rate",
        f"In time: {kept}. {seeds} runs of {REQUESTS} requests; bars: 95%; exact given the"
        f" schedule. {COST if cost is None else cost}."
        f" {priced_as({'the drafter': study.trace}, cost)}",
    )
    return Drawn("load_goodput", frame(rows), ax, tuple(said + found.gone))
