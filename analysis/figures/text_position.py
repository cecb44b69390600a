"""Acceptance and entropies by position in the text."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import ScalarFormatter

from analysis.figures.base import Drawn, caption, cells, figure, frame, look, missing, points
from analysis.figures.legends import below
from analysis.stats import binned
from analysis.study import loops_of
from traces.trace import Trace

SERIES = {
    "acceptance": "accepted",
    "draft entropy": "draft_entropy",
    "target entropy": "target_entropy",
}
FIRST = 16  # positions of the first bin; each of the others holds as many as all before it


@figure("SVIP Tables 2 and 6", "accepted", "draft_entropy")
def text_position(trace: Trace, ax: Axes) -> Drawn:
    """Acceptance of a draft's first token, and both models' entropies, by position in the output.

    With verbatim loops of the output and without: long outputs end in loops.

    Args:
        trace: with rows.
        ax: to draw on; None makes one.
    """
    offsets = trace.position_offsets
    position = np.arange(1, trace.n_positions + 1) - np.repeat(offsets[:-1], np.diff(offsets))
    series = {name: column for name, column in SERIES.items() if trace.has("positions", column)}
    looped = loops_of(trace)
    left = looped.outside
    parts = {"": (np.arange(trace.n_positions), offsets)}
    if left is not None:
        parts[", outside of loops"] = np.flatnonzero(left.rows), left.prompts
    nats = ax.twinx()
    nats.grid(False)
    nats.spines["right"].set_visible(True)
    rows, said, k = [], [], 0
    for name, column in series.items():
        on = ax if name == "acceptance" else nats
        for end, (some, prompts) in parts.items():
            values = trace.positions(column)[some].astype(float)
            found = binned.curve(position[some], values, prompts, edges(trace.max_new_tokens))
            points(on, found.x, found.y, **look(k))
            right = " (right)" if on is nats else ""
            ax.plot([], [], label=f"{name}{end}{right}", **look(k))
            said += missing(found.y)
            k += 1
            for (low, high), x, e, n in zip(found.edges, found.x, found.y, found.rows, strict=True):
                row = {"series": f"{name}{end}", "from": int(np.ceil(low)), "to": int(high)}
                rows.append(row | {"position": float(x), "rows": int(n)} | cells(e))
    ax.set_xscale("log", base=2)
    ax.xaxis.set_major_formatter(ScalarFormatter())
    ax.set(xlabel="position in the output, tokens", ylabel="acceptance", ylim=(0, 1.02))
    nats.set(ylabel="entropy, nats", ylim=(0, None))
    below(ax, 2)
    caption(
        ax,
        "Acceptance and entropy by position in the text",
        f"{trace.n_sequences} prompts, fewer where outputs have ended (frame: rows);"
        f" {looped.share:.0%} of the positions repeat a verbatim loop; bars: 95% over prompts.",
    )
    return Drawn("text_position", frame(rows), ax, tuple(said))


def edges(longest: int) -> np.ndarray:
    """Ends of bins 1 … 16, 17 … 32, 33 … 64, and so on up to the longest output."""
    ends = [0.5, FIRST + 0.5]
    while ends[-1] < longest:
        ends.append(2 * (ends[-1] - 0.5) + 0.5)
    return np.array(ends)
