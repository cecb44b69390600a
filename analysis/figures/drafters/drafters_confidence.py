"""Acceptance against the target's confidence, for every drafter of a recording."""

from __future__ import annotations

import numpy as np

from analysis.drafters import side_by_side
from analysis.figures.base import Plot, figure
from analysis.figures.drawing.styles import ink
from analysis.figures.rows import cells
from analysis.replays import Replays
from analysis.series_styles import drafters_of
from analysis.stats import binned, clusters, correlation
from analysis.study import MissingError
from simkit.drafters.lattice import LatticeLayout
from traces.trace import Trace

CONFIDENCE = "target_token_prob_raw"


@figure("PARD-2 Fig. 2b, several drafters", drafters=True)
def drafters_confidence(plot: Plot, bins: int = 10) -> None:
    """How often a draft's first token is accepted, by the target's probability of the output token.

    From every position outside of verbatim loops from which there is a draft; those of a rule
    from tokens are few. ρ: Spearman's, of single positions.

    Args:
        bins: of equal width in [0, 1].
    """
    found, looks = side_by_side(plot.study), drafters_of(plot.trace)
    plot.gone += found.gone
    sure, left = confidence(plot.trace.recording or plot.trace), plot.study.loops.outside
    edges = np.linspace(0, 1, bins + 1)
    for name, at in found.replays.items():
        there, accepted = first_tokens(at)
        there &= True if left is None else left.rows
        sums = clusters.by_prompt(at.trace.position_offsets, lambda rows, t=there: [t[rows]])
        offsets = np.concatenate([[0], np.cumsum(sums[:, 0])]).astype(np.int64)
        x, y = sure[there], accepted[there]
        curve = binned.curve(x, y, offsets, edges)
        rank = correlation.correlation(x, y, offsets)
        label = name if rank.value is None else f"{name}, ρ = {rank.value:.2f}"
        row = {"drafter": name, "series": "accepted"}
        drawn = {"of": [name] * len(curve.y), "label": label, **looks[name].line}
        plot.curve(curve, row, "confidence", **drawn)
        plot.rows.append(row | {"series": "spearman", "rows": len(x)} | cells(rank))
    plot.ax.plot([0, 1], [0, 1], ":", color=ink(), linewidth=0.8)
    plot.ax.set(xlabel="target's probability of the output's token", ylabel="first token accepted")
    plot.ax.set(xlim=(0, 1.02), ylim=(0, 1.05))
    plot.below()
    apart = "" if left is None else " outside of verbatim loops"
    plot.caption(
        "The target's confidence and acceptance, by drafter",
        f"Positions{apart} at which a draft starts; {plot.prompts}; bars:"
        " 95% CI over prompts; dotted: acceptance = confidence.",
    )


def confidence(recording: Trace) -> np.ndarray:
    """The target's probability of each output token, (R,).

    Raises:
        MissingError: the recording has none, as a log of chats.
    """
    for table in ("positions", "target"):
        if recording.has(table, CONFIDENCE):
            return recording.column(table, CONFIDENCE)
    raise MissingError("the target's probability of the outputs is not known")


def first_tokens(at: Replays) -> tuple[np.ndarray, np.ndarray]:
    """From which positions there is a draft, and whether its first token is accepted; (R,) bool."""
    layout = at.study.layout
    accepted = np.asarray(layout.ahead) > 0
    if isinstance(layout, LatticeLayout):
        return layout.recorded > 0, accepted
    return np.ones(len(accepted), bool), accepted
