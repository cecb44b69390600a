"""Accepted length by draft length, and what the target's confidence predicts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes

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
from analysis.figures.legends import below
from analysis.stats import acceptance_length, drafts, iid
from analysis.stats.acceptance_length import Prediction
from analysis.stats.loops import Loops
from analysis.study import loops_of, path_layout
from simkit.drafters.path import PathLayout
from traces.trace import Trace

LENGTHS = (1, 2, 3, 4, 6, 8, 12, 16)
SERIES = {"accepted": "accepted", "predicted": "Σ Π ĉ, target's confidence"}


class _ExpectedLengths(NamedTuple):
    """Predictions by draft length, of some of the positions, and α there."""

    end: str
    of: list[Prediction]
    alpha: float


@figure("PARD-2 acceptance length, Eqs. 3 and 9", "target_token_prob_raw", "accepted")
def expected_length(trace: Trace, ax: Axes) -> Drawn:
    """Mean accepted length of drafts of K tokens, and that expected by PARD-2's CAT confidences.

    With verbatim loops of the output and without.

    Args:
        trace: with rows.
        ax: to draw on; None makes one.
    """
    layout, looped = path_layout(trace), loops_of(trace)
    room = int(layout.n_output.max(initial=0))
    lengths = np.array([k for k in LENGTHS if k <= trace.max_draft and k < room])
    if not len(lengths):
        raise FigureError("expected_length: outputs are too short for drafts")
    rows, said, shown = [], [], _found(trace, layout, looped, lengths)
    for j, some in enumerate(shown):
        for k, (name, label) in enumerate(SERIES.items()):
            values = [getattr(one, name) for one in some.of]
            points(ax, lengths, values, label=f"{label}{some.end}", **look(2 * j + k))
            said += missing(values)
            for length, e in zip(lengths, values, strict=True):
                row = {"series": f"{name}{some.end}", "draft_length": int(length)}
                rows.append(row | cells(e, "tokens"))
        rows += _law(ax, some, lengths, COLORS[7 - j])
        series = {"series": f"correlation{some.end}"}
        rows.append(series | cells(some.of[-1].correlation, "tokens"))
    ax.set(xlabel="draft length K, tokens", ylabel="accepted tokens of a draft")
    ax.set_ylim(0)
    below(ax, 2)
    told = "; ".join(f"{text(some.of[-1].correlation, '.2f')}{some.end}" for some in shown)
    caption(
        ax,
        "Expected acceptance length",
        f"Drafts from every position with K tokens behind it; {trace.n_sequences} prompts; bars:"
        f" 95% over prompts. {looped.share:.0%} of the positions repeat a verbatim loop.",
        f"At K = {lengths[-1]}: correlation of predicted and accepted {told}.",
    )
    return Drawn("expected_length", frame(rows), ax, tuple(said))


def _found(
    trace: Trace, layout: PathLayout, looped: Loops, lengths: np.ndarray
) -> list[_ExpectedLengths]:
    """All positions, and those outside of loops if there are any loops."""
    confidence, accepted = trace.positions("target_token_prob_raw"), trace.positions("accepted")
    alpha = iid.run_lengths(drafts.runs(accepted, layout.offsets)).alpha
    whole = [
        acceptance_length.prediction(confidence, layout.ahead, layout.offsets, int(k))
        for k in lengths
    ]
    found, left = [_ExpectedLengths("", whole, alpha.value or 0.0)], looped.outside
    if left is None:
        return found
    apart = confidence[left.rows], left.cut(layout.ahead), left.offsets
    outside = [acceptance_length.prediction(*apart, int(k), by=left.summed) for k in lengths]
    runs = left.by_prompt(drafts.runs(accepted[left.rows], left.offsets))
    alpha = iid.run_lengths(runs).alpha
    return [*found, _ExpectedLengths(", outside of loops", outside, alpha.value or 0.0)]


def _law(
    ax: Axes, some: _ExpectedLengths, lengths: np.ndarray, color: str
) -> Sequence[dict[str, Any]]:
    """What independent tokens of the same α would give."""
    law = iid.tokens_per_step(some.alpha, lengths) - 1
    label = f"independent, α = {some.alpha:.3f}{some.end}"
    ax.plot(lengths, law, ":", color=color, label=label)
    return [
        {"series": f"independent{some.end}", "draft_length": length, "tokens": value}
        for length, value in zip(lengths.tolist(), law.tolist(), strict=True)
    ]
