"""Speedup against batch size."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from analysis.figures.base import Plot, figure
from analysis.figures.drawing.styles import FigureError
from analysis.figures.rows import cells
from analysis.labelled_replays import chosen
from analysis.series_styles import of_policy
from analysis.speeds import speedup
from analysis.stats import Estimate
from simkit.costs import Linear
from simkit.costs.presets import PRESETS

SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256)
FAMILIES = {
    "fixed": "fixed(0:16)",
    "confidence": "confidence(threshold=0.1:0.9:0.1)",
    "SVIP": "svip(h=0.2:2.0:0.2)",
    "best rate": "rate_optimal",
    "prophet": "prophet",
}
PRESET = "specdecode-bench:eagle"
FIT = PRESETS[PRESET].arguments  # its target: Llama-3.1-8B on an H100


def scaled(c: float) -> Linear:
    """The fitted target at batch size 1, and a draft that takes 1 / c of its passes."""
    per = ("s", "per_token_s", "per_kv_token_s")
    target: dict[str, Any] = {f"target_{name}": float(FIT[f"target_{name}"]) for name in per}
    draft: dict[str, Any] = {f"draft_{name}": target[f"target_{name}"] / c for name in per}
    overheads: dict[str, Any] = {
        name: float(FIT[name]) for name in ("overhead_s", "baseline_overhead_s")
    }
    return Linear(**draft, **target, **overheads, preset=PRESET)


@figure("new", draft_model=True)
def batch_speedup(plot: Plot, c: float = 8.0) -> None:
    """Speedup of tuned policies by batch size; passes take a fixed time plus a time per token.

    All sequences of a batch step together and drafts are as long on average as alone: a token
    costs a pass B times its per-token time, and its fixed time is shared by B.

    Args:
        c: T_target ÷ T_draft, at every batch size; the target is that of SpecDecode-Bench's fit.

    Raises:
        FigureError: c is not positive.
    """
    if not c > 0:
        raise FigureError(f"batch_speedup: c must be positive, not {c}")
    cost = scaled(c)
    speeds: dict[str, list[Estimate]] = {}
    for size in SIZES:
        for name, one in plot.tuned(FAMILIES, batched(cost, size)).items():
            drafted = float(one.counts["drafted"].sum() / one.counts["steps"].sum())
            row = {"policy": name, "batch_size": size, "setting": one.spec}
            speeds.setdefault(name, []).append(e := speedup(one))
            plot.rows.append(row | {"drafted_per_step": drafted} | cells(e, "speedup"))
    plot.rows.sort(key=lambda row: list(speeds).index(str(row["policy"])))
    for name, values in speeds.items():
        plot.points(SIZES, values, label=name, **of_policy(FAMILIES[name]).line)
    plot.line_at_1()
    plot.ax.set_xscale("log", base=2)
    plot.ax.set_xticks(SIZES, [str(size) for size in SIZES])
    plot.ax.set(xlabel="batch size, sequences", ylabel="speedup over the target alone")
    plot.below(5)
    plot.caption(
        "Speedup by batch size under a linear cost",
        f"Target pass, fitted by SpecDecode-Bench to Llama-3.1-8B on an H100: "
        f"{1e3 * cost.target_s:.2f} ms + {1e3 * cost.target_per_token_s:.3f} ms a token of the"
        f" batch + its context's time; draft pass: 1/{c:g} of that. {plot.prompts};"
        f" {chosen(plot.trace)}; bars: 95% CI over prompts.",
    )


def batched(cost: Linear, size: int) -> Linear:
    """The cost of a pass over one sequence's tokens in a batch of so many alike."""
    names = ("draft_per_token_s", "target_per_token_s", "draft_per_kv_token_s")
    names += ("target_per_kv_token_s",)
    return replace(cost, **{name: size * getattr(cost, name) for name in names})
