"""Training and test rows of the heads that score a row by itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from simkit.drafters.path import PathLayout
from simkit.heads.states import States
from traces.trace import Trace


@dataclass(frozen=True)
class Rows:
    """States, and what became of the tokens that they are to judge.

    Attributes:
        state: (n, H) float16.
        label: (n,) float32, 0 to 1.
    """

    state: np.ndarray
    label: np.ndarray

    def __add__(self, other: Rows) -> Rows:
        return Rows(
            np.concatenate([self.state, other.state]), np.concatenate([self.label, other.label])
        )


def on_path(
    kind: str, options: Mapping[str, Any], layout: PathLayout, states: States, wanted: np.ndarray
) -> tuple[Rows, np.ndarray]:
    """Rows on the recorded path.

    With a lag of one, a row's token is judged from the next state on its own draft's path, into
    which it was fed: that of the next row if it was accepted, else of the first row of its branch.

    Args:
        kind: of the head.
        options: of the head.
        layout: of the trace.
        states: of the trace.
        wanted: (S,) bool, the sequences.

    Returns:
        the rows, and which rows of the trace's positions they judge, (n,) int64.
    """
    label = _label(kind, layout.trace, "positions")
    rows = np.flatnonzero(np.repeat(wanted, layout.n_output))
    if not options.get("lag"):
        return Rows(states.path[rows], label[rows]), rows
    accepted = layout.trace.positions("accepted")[rows]
    last = np.isin(rows + 1, layout.offsets)
    first, end = layout.branch[rows], layout.branch[rows + 1]
    keep = np.where(accepted, ~last, end > first)
    rows, accepted, first = rows[keep], accepted[keep], first[keep]
    state = np.empty((len(rows), states.width), np.float16)
    state[accepted] = states.path[rows[accepted] + 1]
    state[~accepted] = states.branches[first[~accepted]]
    return Rows(state, label[rows]), rows


def off_path(
    kind: str, options: Mapping[str, Any], trace: Trace, states: States, wanted: np.ndarray
) -> Rows:
    """More rows to train on: mixed contexts, and branches that the target has seen, if recorded."""
    rows = Rows(states.path[:0], np.zeros(0, np.float32))
    lag = options.get("lag")
    sequences = trace.sequences["sequence"].to_numpy()[wanted]
    if trace.has("mixed", "state"):
        mine = np.isin(trace.column("mixed", "sequence"), sequences)
        state = trace.column("mixed", "state")[mine]
        label = _label(kind, trace, "mixed")[mine]
        if lag:  # only tokens that were drafted there have a verdict
            position, token, drafted = (
                trace.column("mixed", name)[mine] for name in ("position", "token", "draft_token")
            )
            judged = np.flatnonzero((position[1:] > 1) & (token[:-1] == drafted[:-1]))
            rows += Rows(state[judged + 1], label[judged])
        else:
            rows += Rows(state, label)
    if trace.has("branches", "accepted") and not lag:
        mine = np.isin(trace.branches("sequence"), sequences)
        rows += Rows(states.branches[mine], _label(kind, trace, "branches")[mine])
    return rows


def _label(kind: str, trace: Trace, table: str) -> np.ndarray:
    """min(1, p/q) for the acceptance head (its paper's eq. 9), the verdict for SpecDec++."""
    name = "accept_prob" if kind == "acceptance" else "accepted"
    return trace.column(table, name).astype(np.float32)
