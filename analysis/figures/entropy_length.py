"""Accepted length against the entropy of a draft's first token."""

from __future__ import annotations

from typing import Any

from matplotlib.axes import Axes

from analysis.figures.base import Drawn, caption, cells, figure, frame, look, missing, points, text
from analysis.figures.legends import below
from analysis.stats import binned, correlation, drafts
from analysis.study import loops_of, path_layout
from simkit.drafters.path import PathLayout
from traces.trace import Trace


@figure("SVIP Figs. 2, bottom, and 8", "draft_entropy", "accepted", draft_model=True)
def entropy_length(
    trace: Trace, ax: Axes, bins: int = 16, draft_length: int | None = None
) -> Drawn:
    """Accepted tokens of the draft that starts at a position, by the draft's entropy there.

    With verbatim loops of the output and without.

    Args:
        trace: with rows.
        ax: to draw on; None makes one.
        bins: of entropy, of about as many rows each.
        draft_length: of the drafts; None means Γ, as SVIP's longest.
    """
    layout = path_layout(trace)
    longest = draft_length or trace.max_draft
    starts = drafts.every_start(layout.ahead, layout.offsets, trace.max_new_tokens, longest)
    h, y = trace.positions("draft_entropy"), starts.accepted
    found = binned.curve(h, y, layout.offsets, bins)
    rank = correlation.correlation(h, y, layout.offsets)
    label = f"mean, Spearman ρ {text(rank, '.2f')}"
    points(ax, found.x, found.y, label=label, **look(0))
    rows = [
        {"series": "accepted", "entropy_nats": float(x), "rows": int(n)} | cells(e, "tokens")
        for x, e, n in zip(found.x, found.y, found.rows, strict=True)
    ]
    rows.append({"series": "spearman", "rows": len(h)} | cells(rank, "tokens"))
    share, more, weak = _outside(trace, layout, ax, bins, longest)
    rows += more
    ax.set(xlabel="draft entropy H(q) of the first token, nats", ylabel="accepted tokens a")
    ax.set_ylim(0)
    below(ax, 2)
    how = "greedy" if trace.sampler.greedy else "sampled"
    said = missing(found.y) + weak
    n = f"Drafts of {longest} tokens from all {len(h):,} positions of {trace.n_sequences} prompts,"
    caption(
        ax,
        "Accepted length by the draft's entropy",
        f"{n} {how}; bars: 95% over prompts. {share:.0%} of the positions repeat a verbatim loop.",
    )
    return Drawn("entropy_length", frame(rows), ax, tuple(said))


def _outside(
    trace: Trace, layout: PathLayout, ax: Axes, bins: int, longest: int
) -> tuple[float, list[dict[str, Any]], list[str]]:
    """Draw the same outside of loops.

    Returns:
        The share of positions in loops, rows for the frame, and what is missing.
    """
    looped = loops_of(trace)
    left = looped.outside
    if left is None:
        return looped.share, [], []
    ends = left.cut(layout.ahead), left.offsets, trace.max_new_tokens, longest
    h, y = trace.positions("draft_entropy")[left.rows], drafts.every_start(*ends).accepted
    found = binned.curve(h, y, left.prompts, bins)
    rank = correlation.correlation(h, y, left.prompts)
    points(ax, found.x, found.y, label=f"outside of loops, ρ {text(rank, '.2f')}", **look(1))
    rows = [
        {"series": "accepted, outside of loops", "entropy_nats": float(x), "rows": int(n)}
        | cells(e, "tokens")
        for x, e, n in zip(found.x, found.y, found.rows, strict=True)
    ]
    rows.append({"series": "spearman, outside of loops", "rows": len(h)} | cells(rank, "tokens"))
    return looped.share, rows, missing(found.y)
