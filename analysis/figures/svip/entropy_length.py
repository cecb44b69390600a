"""Accepted length against the entropy of a draft's first token."""

from __future__ import annotations

import numpy as np

from analysis.figures.base import Plot, figure
from analysis.figures.drawing.marks import look
from analysis.figures.rows import cells, text
from analysis.stats import binned, correlation, drafts
from traces.messages import how_many


@figure("SVIP Figs. 2, bottom, and 8", "draft_entropy", "accepted", draft_model=True)
def entropy_length(plot: Plot, bins: int = 16, draft_length: int | None = None) -> None:
    """Accepted tokens of the draft that starts at a position, by the draft's entropy there.

    With verbatim loops of the output and without.

    Args:
        bins: of entropy, of about as many rows each.
        draft_length: of the drafts; None means Γ, as SVIP's longest.
    """
    trace, layout, looped = plot.trace, plot.study.path, plot.study.loops
    longest = draft_length or trace.max_draft
    h, limits = trace.positions("draft_entropy"), (trace.max_new_tokens, longest)
    starts = drafts.every_start(layout.ahead, layout.offsets, *limits)
    _curve(plot, 0, h, starts.accepted, layout.offsets, bins)
    if (left := looped.outside) is not None:
        starts = drafts.every_start(left.cut(layout.ahead), left.offsets, *limits)
        _curve(plot, 1, h[left.rows], starts.accepted, left.prompts, bins)
    plot.ax.set(xlabel="draft entropy H(q) of the first token, nats", ylabel="accepted tokens, a")
    plot.ax.set_ylim(0)
    plot.below(2)
    plot.caption(
        "Accepted length by the draft's entropy",
        f"Drafts of {how_many(longest, 'token')} from all {how_many(len(h), 'position')} of"
        f" {plot.prompts},"
        f" {plot.sampling}; bars: 95% CI over prompts. {looped.share:.0%} of the positions"
        " lie in verbatim loops.",
    )


def _curve(
    plot: Plot, k: int, h: np.ndarray, accepted: np.ndarray, offsets: np.ndarray, bins: int
) -> None:
    """Accepted tokens of all positions, or of those outside of loops."""
    end = ("", ", outside of loops")[k]
    found = binned.curve(h, accepted, offsets, bins)
    rank = correlation.correlation(h, accepted, offsets)
    label = ("mean, Spearman ρ {}", "outside of loops, ρ {}")[k].format(text(rank, ".2f"))
    facts = {"series": f"accepted{end}"}
    plot.curve(found, facts, "entropy_nats", "tokens", label=label, **look(k))
    plot.rows.append({"series": f"spearman{end}", "rows": len(h)} | cells(rank, "tokens"))
