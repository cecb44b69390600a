"""Requests served in time, by arrival rate."""

from __future__ import annotations

from analysis.figures.base import Plot, figure
from analysis.figures.drawing.styles import GREY
from analysis.figures.rows import cells
from analysis.series_styles import of_controller
from analysis.serving import ALONE, COST, SHARES, At, alone, capacity, curves, priced_as
from analysis.study import Study
from simkit.simulator.arguments import AnyCost
from traces.messages import how_many

CONTROLLERS = ("static(1)", "static(3)", "ema", "by_batch", "goodput")
TTFT, TPOT = 10.0, 1.25
"""Limits where none are given: so many times what a request takes alone, without drafts."""
REQUESTS = 240


@figure("new")
def load_goodput(
    plot: Plot,
    cost: AnyCost | None = COST,
    controllers: tuple[str, ...] = CONTROLLERS,
    ttft_s: float | None = None,
    tpot_s: float | None = None,
    shares: tuple[float, ...] = SHARES,
    seeds: int = 5,
) -> None:
    """Requests a second that keep the latency limits, by arrival rate.

    Args:
        cost: see `simkit.replay`; None: of an H200, `analysis.serving.COST`.
        controllers: beside none.
        ttft_s: limit of the time to the first token; None: `TTFT` times that of a request alone.
        tpot_s: of the time per token; None: `TPOT` times likewise.
        shares: arrival rates over the one at which the server saturates without drafts.
        seeds: runs of each.
    """
    limits = _limits(plot.study, cost, ttft_s, tpot_s)
    full = capacity(plot.study, [ALONE], cost, seeds).of[ALONE]
    most = full.estimates("steady_requests_s")[0].value or 0.0
    loads = [At("rate", most * share, REQUESTS) for share in shares]
    found = curves(plot.study, (ALONE, *controllers), loads, cost, seeds, limits)
    plot.gone += found.gone
    apart = 0.01 * max(load.value for load in loads)  # or bars would hide each other
    for k, (label, one) in enumerate(found.of.items()):
        good, share = one.estimates("goodput_s"), one.estimates("good_share")
        at = one.at + apart * (k - (len(found.of) - 1) / 2)
        plot.points(at, good, label=label, **of_controller(label).line)
        for rate, a, b in zip(one.at, good, share, strict=True):
            row = {"controller": label, "rate": float(rate)} | limits
            plot.rows.append(row | cells(a, "goodput_s") | cells(b, "good_share"))
    ends = [0, max(load.value for load in loads)]
    plot.ax.plot(ends, ends, color=GREY, linewidth=0.8, linestyle=":", label="all")
    plot.ax.set(xlabel="arrivals, requests a second", ylabel="requests a second, in time")
    plot.ax.set_ylim(0, None)
    plot.below(4)
    kept = " and ".join(f"{name[:4].upper()} ≤ {1e3 * s:.3g} ms" for name, s in limits.items())
    plot.caption(
        "Requests served in time, by arrival rate",
        f"In time: {kept}. {how_many(seeds, 'run')} of {how_many(REQUESTS, 'request')}; bars:"
        f" 95% CI; outcomes are exact,"
        f" the schedule is simulated. {priced_as({'the drafter': plot.trace}, cost)}",
    )


def _limits(
    study: Study, cost: AnyCost | None, ttft_s: float | None, tpot_s: float | None
) -> dict[str, float]:
    """Limits of latency, seconds: those given, or so many times what a request takes alone."""
    single = alone(study, cost)
    tpot = tpot_s or TPOT * single["tpot_s_p50"]
    found = {"ttft_s": ttft_s or TTFT * single["ttft_s_p50"]}
    return found | ({"tpot_s": tpot} if tpot > 0 else {})  # none of outputs of a token at most
