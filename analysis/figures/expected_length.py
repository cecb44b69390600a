"""Accepted length by draft length, and what the target's confidence foretells."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes

from analysis.figures.arms import below
from analysis.figures.base import (
    COLORS,
    Drawn,
    FigureError,
    caption,
    cells,
    figure,
    frame,
    look,
    missing,
    points,
    text,
)
from analysis.stats import acceptance_length, drafts, iid
from analysis.study import path_layout
from traces.trace import Trace

LENGTHS = (1, 2, 3, 4, 6, 8, 12, 16)


@figure("PARD-2 Fig. 2a, acceptance length", "target_token_prob_raw", "accepted")
def expected_length(trace: Trace, ax: Axes) -> Drawn:
    """Mean accepted length of drafts of K tokens, and that expected by PARD-2's CAT confidences.

    Args:
        trace: with rows.
        ax: to draw on; None makes one.
    """
    layout = path_layout(trace)
    confidence = trace.positions("target_token_prob_raw")
    room = int(layout.n_output.max(initial=0))
    lengths = np.array([k for k in LENGTHS if k <= trace.max_draft and k < room])
    if not len(lengths):
        raise FigureError("expected_length: outputs are too short for drafts")
    found = [
        acceptance_length.prediction(confidence, layout.ahead, layout.offsets, int(k))
        for k in lengths
    ]
    alpha = iid.run_lengths(drafts.runs(trace.positions("accepted"), layout.offsets)).alpha
    rows, said = [], []
    for k, (name, label) in enumerate(
        (("accepted", "accepted"), ("predicted", "Σ Π ĉ, target's confidence"))
    ):
        some = [getattr(one, name) for one in found]
        points(ax, lengths, some, label=label, **look(k))
        said += missing(some)
        for length, e in zip(lengths, some, strict=True):
            rows.append({"series": name, "draft_length": int(length)} | cells(e, "tokens"))
    law = iid.tokens_per_step(alpha.value or 0.0, lengths) - 1
    ax.plot(lengths, law, ":", color=COLORS[7], label=f"independent, α = {alpha.value or 0:.3f}")
    for length, value in zip(lengths.tolist(), law.tolist(), strict=True):
        rows.append({"series": "independent", "draft_length": length, "tokens": value})
    ax.set(xlabel="draft length K, tokens", ylabel="accepted tokens of a draft")
    ax.set_ylim(0)
    below(ax)
    last = found[-1]
    caption(
        ax,
        "Expected acceptance length",
        f"Drafts from every position with K tokens behind it; {trace.n_sequences} prompts; bars:"
        f" 95% over prompts. At K = {lengths[-1]}: correlation of predicted and accepted "
        f"{text(last.correlation, '.2f')}.",
        *list(dict.fromkeys(said))[:2],
    )
    rows.append({"series": "correlation"} | cells(last.correlation, "tokens"))
    return Drawn("expected_length", frame(rows), ax, tuple(said))
