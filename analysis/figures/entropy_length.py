"""Accepted length against the entropy of a draft's first token."""

from __future__ import annotations

from matplotlib.axes import Axes

from analysis.figures.base import Drawn, caption, cells, figure, frame, look, missing, points, text
from analysis.stats import binned, correlation, drafts
from analysis.study import path_layout
from traces.trace import Trace


@figure("SVIP Figs. 2, bottom, and 8", "draft_entropy", "accepted", draft_model=True)
def entropy_length(
    trace: Trace, ax: Axes, bins: int = 16, draft_length: int | None = None
) -> Drawn:
    """Accepted tokens of the draft that starts at a position, by the draft's entropy there.

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
    ax.set(xlabel="draft entropy H(q) of the first token, nats", ylabel="accepted tokens a")
    ax.set_ylim(0)
    ax.legend(loc="upper right")
    how = "greedy" if trace.sampler.greedy else "sampled"
    said = missing(found.y)
    n = f"Drafts of {longest} tokens from all {len(h):,} positions of {trace.n_sequences} prompts,"
    caption(
        ax, "Accepted length by the draft's entropy", f"{n} {how}; bars: 95% over prompts.", *said
    )
    return Drawn("entropy_length", frame(rows), ax, tuple(said))
