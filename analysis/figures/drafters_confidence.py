"""Acceptance against the target's confidence, for every drafter of a recording."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes

from analysis.drafters import side_by_side
from analysis.figures.base import Drawn, caption, cells, figure, frame, ink, missing, points
from analysis.figures.legends import below
from analysis.replays import Replays
from analysis.series_styles import drafters_of
from analysis.stats import binned, clusters, correlation
from analysis.study import MissingError, Study
from simkit.drafters.lattice import LatticeLayout
from traces.trace import Trace

CONFIDENCE = "target_token_prob_raw"


@figure("PARD-2 Fig. 2b, several drafters", drafters=True)
def drafters_confidence(study: Study, ax: Axes, bins: int = 10) -> Drawn:
    """Share of drafts whose first token is accepted, by the target's probability of the output's.

    From every position outside of verbatim loops from which there is a draft; those of a rule
    from tokens are few. ρ: Spearman's, of single positions.

    Args:
        study: of a recording that drafters were attached to.
        ax: to draw on; None makes one.
        bins: of equal width in [0, 1].
    """
    found, looks = side_by_side(study), drafters_of(study.trace)
    sure = confidence(study.trace.recording or study.trace)
    left = study.loops.outside
    rows, said = [], []
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
        points(ax, curve.x, curve.y, label=label, **looks[name].line)
        said += missing(curve.y, [name] * len(curve.y))
        for at_x, e, n in zip(curve.x, curve.y, curve.rows, strict=True):
            row = {"drafter": name, "series": "accepted", "confidence": float(at_x)}
            rows.append(row | {"rows": int(n)} | cells(e))
        rows.append({"drafter": name, "series": "spearman", "rows": len(x)} | cells(rank))
    ax.plot([0, 1], [0, 1], ":", color=ink(), linewidth=0.8)
    ax.set(xlabel="target's probability of the output's token", ylabel="first token accepted")
    ax.set(xlim=(0, 1.02), ylim=(0, 1.05))
    below(ax)
    apart = "" if left is None else " outside of verbatim loops"
    caption(
        ax,
        "The target's confidence and acceptance, by drafter",
        f"Positions{apart} from which there is a draft, {study.trace.n_sequences} prompts; bars:"
        " 95% over prompts; dotted: acceptance = confidence.",
    )
    return Drawn("drafters_confidence", frame(rows), ax, tuple(said + found.gone))


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
