"""Training and test rows of the heads that score a row by itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from simkit.drafters.path import PathLayout
from simkit.heads import registry
from simkit.heads.states import States
from traces.trace import Trace


@dataclass(frozen=True)
class Labelled:
    """States, and what became of the tokens that they are to judge.

    Attributes:
        state: (n, H) float16.
        label: (n,) float32, 0 to 1.
    """

    state: np.ndarray
    label: np.ndarray

    def __add__(self, other: Labelled) -> Labelled:
        return Labelled(
            np.concatenate([self.state, other.state]), np.concatenate([self.label, other.label])
        )


def on_path(
    kind: str, options: Mapping[str, Any], layout: PathLayout, states: States, wanted: np.ndarray
) -> tuple[Labelled, np.ndarray]:
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
        return Labelled(states.path[rows], label[rows]), rows
    accepted = layout.trace.positions("accepted")[rows]
    last = np.isin(rows + 1, layout.offsets)
    first, end = layout.branch[rows], layout.branch[rows + 1]
    keep = np.where(accepted, ~last, end > first)
    rows, accepted, first = rows[keep], accepted[keep], first[keep]
    state = np.empty((len(rows), states.width), np.float16)
    state[accepted] = states.path[rows[accepted] + 1]
    state[~accepted] = states.branches[first[~accepted]]
    return Labelled(state, label[rows]), rows


def to_train_on(
    kind: str, options: Mapping[str, Any], layout: PathLayout, states: States, wanted: np.ndarray
) -> Labelled:
    """All rows of some sequences that a head is trained on.

    Those on the path; those of mixed texts, if recorded; for a head without a lag also branches
    that the target has seen, if recorded. A head that trains on mixed texts only, as the acceptance
    head's paper does, takes the first only where the second are missing.
    """
    mixed = on_mixed(kind, options, layout, states, wanted)
    if options.get("lag") and len(mixed.label) and registry.get(kind).mixed_only:
        return mixed
    rows = on_path(kind, options, layout, states, wanted)[0] + mixed
    trace = layout.trace
    if trace.has("branches", "accepted") and not options.get("lag"):
        mine = np.isin(trace.branches("sequence"), _numbers(trace, wanted))
        rows += Labelled(states.branches[mine], _label(kind, trace, "branches")[mine])
    return rows


def on_mixed(
    kind: str, options: Mapping[str, Any], layout: PathLayout, states: States, wanted: np.ndarray
) -> Labelled:
    """Rows of mixed texts; none where the trace has none.

    Without a lag: what the draft would propose behind every token of the text. With a lag of one:
    the tokens of the text that are the draft's own, each from the state that has consumed it there,
    with the label that it has behind the target's own prefix, where it was proposed (acceptance
    head, section 2.3).
    """
    trace = layout.trace
    if not trace.has("mixed", "state"):
        return Labelled(states.path[:0], np.zeros(0, np.float32))
    mine = np.isin(trace.column("mixed", "sequence"), _numbers(trace, wanted))
    state = trace.column("mixed", "state")
    if not options.get("lag"):
        return Labelled(state[mine], _label(kind, trace, "mixed")[mine])
    own = trace.column("mixed", "from_draft") & mine
    own &= trace.column("mixed", "token") == trace.positions("draft_token")
    last = np.zeros_like(own)
    last[layout.offsets[1:] - 1] = True
    judged = np.flatnonzero(own & ~last)
    return Labelled(state[judged + 1], _label(kind, trace, "positions")[judged])


def _numbers(trace: Trace, wanted: np.ndarray) -> np.ndarray:
    return trace.sequences["sequence"].to_numpy()[wanted]


def _label(kind: str, trace: Trace, table: str) -> np.ndarray:
    return trace.column(table, registry.get(kind).label).astype(np.float32)
