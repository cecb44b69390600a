"""What draft and target do, step by step, in turn and at the same time."""

from __future__ import annotations

import numpy as np
import polars as pl
from matplotlib.axes import Axes

from analysis.figures.base import Plot, figure
from analysis.figures.drawing.marks import COLORS
from analysis.figures.drawing.styles import FigureError, paper, small
from analysis.labelled_replays import window_words
from analysis.replays import Replays
from analysis.stats.timeline import lanes
from simkit.simulator.arguments import AnyCost
from traces.messages import how_many

PALE = "#C5DEED"  # of tokens that are thrown away
DRAFT, TARGET = COLORS[0], COLORS[5]


@figure("PEARL Figs. 1 and 3", draft_model=True)
def timeline(
    plot: Plot,
    cost: AnyCost | None = None,
    window: int | None = None,
    prompt: int | None = None,
    steps: int = 7,
) -> pl.DataFrame:
    """Draft and target at work on one prompt, under fixed drafts and under PEARL.

    Args:
        window: γ of both; None means round(c), as PEARL takes it, or the widest that the trace can
            replay.
        prompt: which one, from 0; None means the first that has any output.
        steps: of the fixed drafts, as many as are drawn; PEARL's are those of the same time.
    """
    ax, at = plot.ax, plot.under(cost)
    gamma = window or at.window
    written = np.flatnonzero(plot.trace.sequences["n_output"].to_numpy())
    which = int(written[0]) if prompt is None else prompt
    if which not in written:
        raise FigureError(f"there is no prompt {which} with output")
    table = pl.concat([_steps(at, spec, which) for spec in (f"fixed({gamma})", f"pearl({gamma})")])
    ends = table.filter(policy=f"fixed({gamma})")["end_ms"].head(steps)
    end_ms = float(ends[-1])
    shown = table.filter(pl.col("end_ms") <= end_ms * (1 + 1e-9))
    for low, spec in ((2.5, f"fixed({gamma})"), (0.0, f"pearl({gamma})")):
        for row in shown.filter(policy=spec).iter_rows(named=True):
            _bars(ax, row, low)
    names = [f"pearl({gamma}): target", "draft", f"fixed({gamma}): target", "draft"]
    ax.set_yticks([0.45, 1.45, 2.95, 3.95], names)
    ax.set(xlabel="time after the prefill, ms", xlim=(0, end_ms))
    ax.grid(axis="y", visible=False)
    for color, label in ((DRAFT, "accepted"), (PALE, "thrown away"), (TARGET, "target's pass")):
        ax.broken_barh([], (0, 0), color=color, label=label)
    plot.below()
    words = "" if window else f"{window_words(at)}; "
    sums = shown.group_by("policy", maintain_order=True).agg(pl.col("emitted").sum())
    emitted = ", ".join(f"{spec} {how_many(n, 'token')}" for spec, n in sums.iter_rows())
    plot.caption(
        "Draft and target, in turn and at the same time",
        f"Prompt {which}; {words}{plot.cost_name(cost)}. Numbers: tokens that a step emits;"
        f" tokens after {end_ms:.4g} ms: {emitted}.",
    )
    return shown


def _steps(at: Replays, spec: str, prompt: int) -> pl.DataFrame:
    """A prompt's steps, with the times of their work."""
    steps, seconds = at.run(spec).steps((prompt, prompt + 1))
    assert seconds is not None
    found = lanes(steps, seconds, at.charge)
    counts = ("start", "drafted", "proposed", "accepted", "emitted")
    return pl.DataFrame(
        {"policy": spec, "prompt": prompt, "step": steps.number}
        | {name: np.asarray(getattr(steps, name), np.int64) for name in counts}
        | {"kept": found.kept, "begin_ms": 1e3 * found.begin_s, "draft_ms": 1e3 * found.draft_s}
        | {"verify_begin_ms": 1e3 * found.verify_begin_s}
        | {"verify_ms": 1e3 * found.verify_s, "end_ms": 1e3 * found.end_s}
    )


def _bars(ax: Axes, row: dict[str, float], low: float) -> None:
    """One step: the draft's bar, dark as far as its tokens are accepted, and the target's."""
    dark_ms = row["draft_ms"] * row["kept"] / max(1, row["drafted"])
    begin_ms, pale_ms = row["begin_ms"], row["draft_ms"] - dark_ms
    spans = [(begin_ms, dark_ms), (begin_ms + dark_ms, pale_ms)]
    ax.broken_barh(spans, (low + 1, 0.9), color=[DRAFT, PALE], linewidth=0)
    verify = row["verify_begin_ms"], row["verify_ms"]
    ax.broken_barh([verify], (low, 0.9), color=TARGET, edgecolor=paper())
    middle = verify[0] + verify[1] / 2, low + 0.45
    ax.text(*middle, str(row["emitted"]), ha="center", va="center", fontsize=small())
