"""Where drafting stops to pay: throughput by concurrency."""

from __future__ import annotations

from typing import Any

from matplotlib.axes import Axes

from analysis import serving
from analysis.figures.base import Drawn, caption, cells, figure, frame, ink, missing, points
from analysis.figures.legends import below
from analysis.figures.panels import doubling
from analysis.series_styles import of_controller
from analysis.serving import ALONE, COST, Curves, closed, crossing, curves, priced_as
from analysis.study import Study
from simkit.simulator.arguments import AnyCost

CONCURRENCY = (1, 2, 4, 8, 16, 32, 64, 128, 256)
CONTROLLERS = ("static(1)", "static(3)", "static(5)", "static(7)", "ema", "budget", "prophet")


@figure("vLLM #52362; SpecDecode-Bench")
def load_crossover(
    study: Study,
    ax: Axes,
    cost: AnyCost | None = COST,
    controllers: tuple[str, ...] = CONTROLLERS,
    concurrency: tuple[int, ...] = CONCURRENCY,
    seeds: int = 4,
) -> Drawn:
    """Throughput by concurrency over that without drafts, and where lengths fall below it.

    Args:
        study: of a trace of any kind.
        ax: to draw on; None makes one.
        cost: see `simkit.replay`; None: of an H200, `analysis.serving.COST`.
        controllers: that are held against none.
        concurrency: requests in flight, ascending.
        seeds: runs of each.
    """
    found = curves(study, (ALONE, *controllers), closed(concurrency), cost, seeds)
    rows, said, ends = [], [], {}
    for label, one in found.of.items():
        ratios = one.estimates("steady_against")
        if label != ALONE:
            points(ax, one.at, ratios, label=label, **of_controller(label).line)
            said += missing(ratios)
        end = crossing(one, found.of[ALONE])
        ends[label] = end.note if end.value is None else end.text(".0f")
        crosses: dict[str, Any] = {"falls": end.value is not None, **cells(end, "falls_at")}
        whole = one.estimates("steady_tokens_s")
        for at, ratio, tokens_s in zip(one.at, ratios, whole, strict=True):
            row = {"controller": label, "concurrency": int(at)} | cells(ratio, "steady_against")
            rows.append(row | cells(tokens_s, "steady_tokens_s") | crosses)
    ax.axhline(1, color=ink(), linewidth=0.8)
    doubling(ax, "x", concurrency)
    ax.set(xlabel="requests in flight", ylabel="throughput ÷ that without drafts", ylim=(0, None))
    below(ax, 4)
    said = list(dict.fromkeys(said))
    caption(ax, "Throughput by concurrency", *_words(study, cost, found, ends, seeds))
    return Drawn("load_crossover", frame(rows), ax, tuple(said + found.gone))


def _words(
    study: Study, cost: AnyCost | None, found: Curves, ends: dict[str, str], seeds: int
) -> list[str]:
    fixed = {label: at for label, at in ends.items() if label.startswith("static")}
    where = [f"{label} from {at}" for label, at in fixed.items() if at[0].isdigit()]
    under = [label for label, at in fixed.items() if at.startswith("below")]
    where += [f"{', '.join(under)} throughout"] if under else []
    told = f"Below none: {'; '.join(where)}." if where else ""
    return [
        told,
        f"{seeds} runs, {serving.EACH} requests for each in flight; bars: 95%; exact given the"
        f" schedule. {COST if cost is None else cost}. {found.timed}"
        f" {priced_as({'the drafter': study.trace}, cost)}",
    ]
