"""Accepted length by draft length, and what the target's confidence predicts."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from analysis.figures.base import Plot, figure
from analysis.figures.drawing.marks import COLORS, look
from analysis.figures.drawing.styles import FigureError
from analysis.figures.rows import cells, text
from analysis.stats import acceptance_length, drafts, iid
from analysis.stats.acceptance_length import Prediction

LENGTHS = (1, 2, 3, 4, 6, 8, 12, 16)
SERIES = {"accepted": "accepted", "predicted": "Σ Π ĉ, target's confidence"}


class _ExpectedLengths(NamedTuple):
    """Predictions by draft length, of some of the positions, and α there."""

    end: str
    of: list[Prediction]
    alpha: float


@figure("PARD-2 acceptance length, Eqs. 3 and 9", "target_token_prob_raw", "accepted")
def expected_length(plot: Plot) -> None:
    """Mean accepted length of drafts of K tokens, measured and predicted by PARD-2's confidences.

    With verbatim loops of the output and without.
    """
    room = int(plot.study.path.n_output.max(initial=0))
    lengths = np.array([k for k in LENGTHS if k <= plot.trace.max_draft and k < room])
    if not len(lengths):
        raise FigureError("expected_length: outputs are too short for drafts")
    shown = _found(plot, lengths)
    for j, some in enumerate(shown):
        for k, (name, label) in enumerate(SERIES.items()):
            values = [getattr(one, name) for one in some.of]
            facts = [{"series": f"{name}{some.end}", "draft_length": int(k)} for k in lengths]
            drawn = {"label": f"{label}{some.end}", **look(2 * j + k)}
            plot.series(lengths, values, facts, "tokens", **drawn)
        _law(plot, some, lengths, COLORS[7 - j])
        series = {"series": f"correlation{some.end}"}
        plot.rows.append(series | cells(some.of[-1].correlation, "tokens"))
    plot.ax.set(xlabel="draft length K, tokens", ylabel="accepted tokens of a draft")
    plot.ax.set_ylim(0)
    plot.below(2)
    told = "; ".join(f"{text(some.of[-1].correlation, '.2f')}{some.end}" for some in shown)
    plot.caption(
        "Expected acceptance length",
        f"Drafts from every position with K tokens to come; {plot.prompts}; bars: 95% CI over"
        f" prompts. {plot.study.loops.share:.0%} of the positions lie in verbatim loops.",
        f"Correlation of predicted and accepted length at K = {lengths[-1]}: {told}.",
    )


def _found(plot: Plot, lengths: np.ndarray) -> list[_ExpectedLengths]:
    """All positions, and those outside of loops if there are any loops."""
    trace, layout, left = plot.trace, plot.study.path, plot.study.loops.outside
    confidence, accepted = trace.positions("target_token_prob_raw"), trace.positions("accepted")
    alpha = iid.run_lengths(drafts.runs(accepted, layout.offsets)).alpha
    every = confidence, layout.ahead, layout.offsets
    whole = [acceptance_length.prediction(*every, int(k)) for k in lengths]
    found = [_ExpectedLengths("", whole, alpha.value or 0.0)]
    if left is None:
        return found
    apart = confidence[left.rows], left.cut(layout.ahead), left.offsets
    outside = [acceptance_length.prediction(*apart, int(k), by=left.summed) for k in lengths]
    alpha = iid.run_lengths(left.runs(accepted)).alpha
    return [*found, _ExpectedLengths(", outside of loops", outside, alpha.value or 0.0)]


def _law(plot: Plot, some: _ExpectedLengths, lengths: np.ndarray, color: str) -> None:
    """What independent tokens of the same α would give."""
    law = iid.tokens_per_step(some.alpha, lengths) - 1
    label = f"independent, α = {some.alpha:.3f}{some.end}"
    plot.ax.plot(lengths, law, ":", color=color, label=label)
    plot.rows += [
        {"series": f"independent{some.end}", "draft_length": length, "tokens": value}
        for length, value in zip(lengths.tolist(), law.tolist(), strict=True)
    ]
