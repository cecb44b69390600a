"""Whether predicted acceptance comes true."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from matplotlib.axes import Axes

from analysis.figures.base import (
    Drawn,
    FigureError,
    caption,
    cells,
    figure,
    frame,
    ink,
    missing,
    points,
    text,
)
from analysis.figures.legends import below
from analysis.papers import svip
from analysis.scored import Predicted, predicted
from analysis.series_styles import of_policy
from analysis.stats import entropy
from analysis.stats import reliability as stats
from traces.errors import UserError
from traces.trace import Trace

HEADS = {"acceptance head": "acceptance_head", "SpecDec++ head": "specdecpp"}


@figure("new", "accepted", draft_model=True)
def reliability(trace: Trace, ax: Axes, bins: int = 10, c: float = svip.SCALE) -> Drawn:
    """Share of tokens accepted, by what heads and the draft's own signals predict.

    PACER's head predicts something else: that a token and all before it are accepted.

    Args:
        trace: with rows; signals that it lacks are left out.
        ax: to draw on; None makes one.
        bins: of equal width in [0, 1].
        c: of SVIP's estimate 1 - sqrt(c H(q)), here no less than 0; default: that of its code.
    """
    label = f"1 − √({c:g} H(q))"
    signals: dict[str, Callable[[], Predicted]] = {
        label: lambda head=head: predicted(trace, head) for label, head in HEADS.items()
    }
    of = trace.positions("accepted"), trace.position_offsets
    signals["draft's probability"] = lambda: Predicted(trace.positions("draft_prob_raw"), *of)
    signals[label] = lambda: Predicted(
        np.maximum(0, entropy.estimate(trace.positions("draft_entropy"), c)), *of
    )
    rows, said, gone = [], [], []
    looks = dict(zip(signals, map(of_policy, (*HEADS.values(), "confidence", "svip")), strict=True))
    for label, read in signals.items():
        try:
            values = read()
            found = stats.reliability(*values, bins)
        except UserError as error:
            gone.append(f"Without {label}: {error}.")
            continue
        if lost := trace.n_positions - len(values.accepted):
            gone.append(f"{label}: no score for {lost:,} tokens, which no later pass has read.")
        shown = f"{label}: off by {text(found.error, '.2f')}"
        points(ax, found.predicted, found.accepted, label=shown, **looks[label].line)
        said += missing(found.accepted)
        for x, n, e in zip(found.predicted, found.rows, found.accepted, strict=True):
            row = {"signal": label, "predicted": float(x), "rows": int(n)}
            rows.append(row | cells(e, "accepted"))
        whole = {name: getattr(found, name) for name in ("error", "brier", "skill")}
        rows += [{"signal": label} | cells(e, name) for name, e in whole.items()]
    if not rows:
        raise FigureError(" ".join(gone))
    ax.plot([0, 1], [0, 1], ":", color=ink(), linewidth=0.8, label="calibrated")
    ax.set(xlabel="predicted acceptance, mean of a bin", ylabel="share accepted")
    ax.set(xlim=(0, 1.02), ylim=(0, 1.02))
    below(ax, 2)
    caption(
        ax,
        "Does predicted acceptance come true?",
        f"{trace.n_positions:,} positions of {trace.n_sequences} prompts in {bins} bins; bars: 95%"
        " over prompts. Off by: expected calibration error.",
    )
    return Drawn("reliability", frame(rows), ax, tuple(said + gone))
