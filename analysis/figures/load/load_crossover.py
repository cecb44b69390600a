"""Where drafting stops to pay: throughput by concurrency."""

from __future__ import annotations

from analysis import serving
from analysis.figures.base import Plot, figure
from analysis.figures.drawing.panels import doubling
from analysis.figures.rows import cells
from analysis.series_styles import of_controller
from analysis.serving import ALONE, COST, closed, crossing, curves, priced_as
from simkit.simulator.arguments import AnyCost
from traces.messages import how_many

CONCURRENCY = (1, 2, 4, 8, 16, 32, 64, 128, 256)
CONTROLLERS = ("static(1)", "static(3)", "static(5)", "static(7)", "ema", "budget", "prophet")


@figure("vLLM #52362; SpecDecode-Bench")
def load_crossover(
    plot: Plot,
    cost: AnyCost | None = COST,
    controllers: tuple[str, ...] = CONTROLLERS,
    concurrency: tuple[int, ...] = CONCURRENCY,
    seeds: int = 4,
) -> None:
    """Throughput relative to no drafts by concurrency, and where each length becomes slower.

    Args:
        cost: see `simkit.replay`; None: of an H200, `analysis.serving.COST`.
        controllers: that are held against none.
        concurrency: requests in flight, ascending.
        seeds: runs of each.
    """
    found = curves(plot.study, (ALONE, *controllers), closed(concurrency), cost, seeds)
    plot.gone += found.gone
    ends = {}
    for label, one in found.of.items():
        ratios, whole = one.estimates("steady_against"), one.estimates("steady_tokens_s")
        if label != ALONE:
            plot.points(one.at, ratios, label=label, **of_controller(label).line)
        end = crossing(one, found.of[ALONE])
        ends[label] = end.note if end.value is None else end.text(".0f")
        crosses = {"falls": end.value is not None, **cells(end, "falls_at")}
        for at, ratio, tokens_s in zip(one.at, ratios, whole, strict=True):
            row = {"controller": label, "concurrency": int(at)} | cells(ratio, "steady_against")
            plot.rows.append(row | cells(tokens_s, "steady_tokens_s") | crosses)
    plot.line_at_1()
    doubling(plot.ax, "x", concurrency)
    plot.ax.set(xlabel="requests in flight", ylabel="throughput ÷ that without drafts")
    plot.ax.set_ylim(0, None)
    plot.below(4)
    plot.caption(
        "Throughput by concurrency",
        _answer(ends),
        f"{how_many(seeds, 'run')}, {how_many(serving.EACH, 'request')} for each one in flight;"
        f" bars: 95% CI; outcomes are exact,"
        f" the schedule is simulated. {priced_as({'the drafter': plot.trace}, cost)}",
    )


def _answer(ends: dict[str, str]) -> str:
    fixed = {label: at for label, at in ends.items() if label.startswith("static")}
    where = [f"{label} from {at}" for label, at in fixed.items() if at[0].isdigit()]
    under = [label for label, at in fixed.items() if at.startswith("below")]
    where += [f"{', '.join(under)} throughout"] if under else []
    return f"Slower than no drafts: {'; '.join(where)}." if where else ""
