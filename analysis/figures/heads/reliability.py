"""Whether predicted acceptance comes true."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from analysis.figures.base import Plot, figure
from analysis.figures.drawing.styles import FigureError, ink
from analysis.figures.rows import cells, text
from analysis.papers import svip
from analysis.scored import Predicted, predicted
from analysis.series_styles import of_policy
from analysis.stats import entropy
from analysis.stats import reliability as stats
from traces.errors import UserError
from traces.messages import how_many
from traces.trace import Trace

HEADS = {"acceptance head": "acceptance_head", "SpecDec++ head": "specdecpp"}


@figure("new", "accepted", draft_model=True)
def reliability(plot: Plot, bins: int = 10, c: float = svip.SCALE) -> None:
    """Share of tokens accepted, by the prediction of heads and of the draft's own signals.

    PACER's head predicts something else: that a token and all before it are accepted. Signals that
    the trace lacks are left out.

    Args:
        bins: of equal width in [0, 1].
        c: of SVIP's estimate 1 - sqrt(c H(q)), here no less than 0; default: that of its code.
    """
    trace, signals = plot.trace, _signals(plot.trace, c)
    policies = (*HEADS.values(), "confidence", "svip")
    for (label, read), policy in zip(signals.items(), policies, strict=True):
        try:
            values = read()
            found = stats.reliability(*values, bins)
        except UserError as error:
            plot.gone.append(f"Without {label}: {error}.")
            continue
        if lost := trace.n_positions - len(values.accepted):
            plot.gone.append(
                f"{label}: no score for {how_many(lost, 'token')}, because no later pass read them."
            )
        facts = [
            {"signal": label, "predicted": float(x), "rows": int(n)}
            for x, n in zip(found.predicted, found.rows, strict=True)
        ]
        shown = {"label": f"{label}: off by {text(found.error, '.2f')}", **of_policy(policy).line}
        plot.series(found.predicted, found.accepted, facts, "accepted", **shown)
        for name in ("error", "brier", "skill"):
            plot.rows.append({"signal": label} | cells(getattr(found, name), name))
    if not plot.rows:
        raise FigureError(" ".join(plot.gone))
    plot.ax.plot([0, 1], [0, 1], ":", color=ink(), linewidth=0.8, label="calibrated")
    plot.ax.set(xlabel="predicted acceptance, mean of a bin", ylabel="share accepted")
    plot.ax.set(xlim=(0, 1.02), ylim=(0, 1.02))
    plot.below(2)
    plot.caption(
        "Does predicted acceptance come true?",
        f"{how_many(trace.n_positions, 'position')} of {plot.prompts} in"
        f" {how_many(bins, 'bin')}; bars: 95%"
        " CI over prompts. “Off by” is the expected calibration error.",
    )


def _signals(trace: Trace, c: float) -> dict[str, Callable[[], Predicted]]:
    """What predicts acceptance, by label; read when it is asked for."""
    of = trace.positions("accepted"), trace.position_offsets
    heads = {label: lambda head=head: predicted(trace, head) for label, head in HEADS.items()}
    return {
        **heads,
        "draft's probability": lambda: Predicted(trace.positions("draft_prob_raw"), *of),
        f"1 − √({c:g} H(q))": lambda: Predicted(
            np.maximum(0, entropy.estimate(trace.positions("draft_entropy"), c)), *of
        ),
    }
