"""Acceptance and entropies by position in the text."""

from __future__ import annotations

import numpy as np
from matplotlib.ticker import ScalarFormatter

from analysis.figures.base import Plot, figure
from analysis.figures.drawing.marks import look, points
from analysis.figures.rows import cells
from analysis.stats import binned

SERIES = {
    "acceptance": "accepted",
    "draft entropy": "draft_entropy",
    "target entropy": "target_entropy",
}
FIRST = 16  # positions of the first bin; each of the others holds as many as all before it


@figure("SVIP Tables 2 and 6", "accepted", "draft_entropy")
def text_position(plot: Plot) -> None:
    """Acceptance of a draft's first token, and both models' entropies, by position in the output.

    With verbatim loops of the output and without: long outputs end in loops.
    """
    trace, ax, looped = plot.trace, plot.ax, plot.study.loops
    offsets = trace.position_offsets
    position = np.arange(1, trace.n_positions + 1) - np.repeat(offsets[:-1], np.diff(offsets))
    parts = {"": (np.arange(trace.n_positions), offsets)}
    if (left := looped.outside) is not None:
        parts[", outside of loops"] = np.flatnonzero(left.rows), left.prompts
    nats = ax.twinx()
    nats.grid(False)
    nats.spines["right"].set_visible(True)
    series = {name: column for name, column in SERIES.items() if trace.has("positions", column)}
    drawn = [(name, end) for name in series for end in parts]
    for k, (name, end) in enumerate(drawn):
        on = ax if name == "acceptance" else nats
        some, prompts = parts[end]
        values = trace.positions(series[name])[some].astype(float)
        found = binned.curve(position[some], values, prompts, edges(trace.max_new_tokens))
        points(on, found.x, found.y, **look(k))
        right = " (right)" if on is nats else ""
        ax.plot([], [], label=f"{name}{end}{right}", **look(k))
        plot.missing(found.y)
        for (low, high), x, e, n in zip(found.edges, found.x, found.y, found.rows, strict=True):
            row = {"series": f"{name}{end}", "from": int(np.ceil(low)), "to": int(high)}
            plot.rows.append(row | {"position": float(x), "rows": int(n)} | cells(e))
    ax.set_xscale("log", base=2)
    ax.xaxis.set_major_formatter(ScalarFormatter())
    ax.set(xlabel="position in the output, tokens", ylabel="acceptance", ylim=(0, 1.02))
    nats.set(ylabel="entropy, nats", ylim=(0, None))
    plot.below(2)
    plot.caption(
        "Acceptance and entropy by position in the text",
        f"{plot.prompts}, fewer where outputs have ended (see the frame's rows);"
        f" {looped.share:.0%} of the positions lie in verbatim loops; bars: 95% CI over prompts.",
    )


def edges(longest: int) -> np.ndarray:
    """Ends of bins 1 … 16, 17 … 32, 33 … 64, and so on up to the longest output."""
    ends = [0.5, FIRST + 0.5]
    while ends[-1] < longest:
        ends.append(2 * (ends[-1] - 0.5) + 0.5)
    return np.array(ends)
