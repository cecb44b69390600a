"""One prompt's output under a policy, token by token: accepted, the target's own, rejected."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from simkit.drafters.layout import Layout
from simkit.policies import Concurrent, Policy, Sequential
from simkit.simulator.steps import Steps
from traces.errors import TraceError

Kind = Literal["accepted", "rejected", "own"]
DRAFT_TOKEN = "draft_token"
SIGNALS = {
    "entropy": ("draft_entropy",),
    "probability": ("draft_prob_raw", "draft_prob"),
    "acceptance": ("overlap", "accept_prob"),
}
"""What is shown beside the text: the first of these columns that the trace has."""


@dataclass(frozen=True)
class Token:
    """A token of the output, or one that was drafted and thrown away.

    Attributes:
        kind: accepted; rejected, or not sent to the target; or the target's own: the bonus after a
            whole draft, the correction of a rejected token, or a step without a draft.
        token: its id; None if it is not known.
        step: 1-based number of its step.
        position: 1-based, in the output; of a rejected one, where it was drafted for.
        depth: 1-based, in its draft; 0 if it was not drafted.
        signals: what the draft said of it, see `SIGNALS`; NaN where that was not recorded.
    """

    kind: Kind
    token: int | None
    step: int
    position: int
    depth: int
    signals: tuple[float, ...]


@dataclass(frozen=True, eq=False)
class Text:
    """An output as a policy's steps made it.

    Attributes:
        tokens: in the order in which they were made; rejected ones before the target's own.
        thrown: of each step, how many drafted tokens were not accepted and are not in `tokens`,
            because the trace or the replay does not say where they belong.
    """

    tokens: list[Token]
    thrown: list[int]

    def count(self, kind: Kind) -> int:
        """How many tokens are of a kind; those of `thrown` are rejected ones."""
        there = sum(token.kind == kind for token in self.tokens)
        return there + (sum(self.thrown) if kind == "rejected" else 0)


class Drafts:
    """What the drafts of a layout held, row by row: tokens and signals."""

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self.columns = {name: first_of(layout, names) for name, names in SIGNALS.items()}
        trace = layout.trace
        whole = trace.manifest.tokens != "ends"  # else those off the path were left out
        there = layout.by_start or trace.has("branches", DRAFT_TOKEN) or not trace.n_branch_rows
        self.knows_tokens = whole and there and _has(layout, DRAFT_TOKEN)

    def tokens(self, row: int, length: int) -> list[int] | None:
        """Ids of the first tokens of the draft from a row; None if they are not known."""
        if not self.knows_tokens:
            return None
        found = self._values(DRAFT_TOKEN, row, length)
        return None if np.isnan(found).any() else found.astype(int).tolist()

    def signals(self, row: int, length: int) -> np.ndarray:
        """See `SIGNALS`; (length, 3), NaN where nothing was recorded."""
        none = np.full(length, np.nan)
        parts = [self._values(c, row, length) if c else none for c in self.columns.values()]
        return np.stack(parts, axis=1) if length else np.empty((0, len(parts)))

    def _values(self, column: str, row: int, length: int) -> np.ndarray:
        """A column over the draft from a row, (length,) float64."""
        layout, trace = self.layout, self.layout.trace
        out = np.full(length, np.nan)
        if layout.by_start:
            found = layout.columns((column,)).starts[0][row, :length]
            out[: len(found)] = found
            return out
        m = row + int(layout.ahead[row])  # the rejected one, or the row behind the output
        rejects = m < len(layout.ahead)
        found = trace.positions(column)[row : m + 1]
        if rejects and len(found) < length and trace.has("branches", column):
            behind = trace.branches(column)[slice(*layout.branch[m : m + 2])]
            found = np.concatenate([found, behind])
        found = found[:length]
        out[: len(found)] = found
        return out


def first_of(layout: Layout, names: tuple[str, ...]) -> str | None:
    """The first of some columns that drafts have; None if they have none."""
    return next((name for name in names if _has(layout, name)), None)


def _has(layout: Layout, name: str) -> bool:
    if not layout.by_start:
        return layout.trace.has("positions", name)
    try:
        layout.columns((name,))
    except (TraceError, KeyError):
        return False
    return True


def text_of(policy: Policy, drafts: Drafts, steps: Steps, index: int, output: list[int]) -> Text:
    """The output of one sequence.

    Args:
        policy: that was replayed.
        drafts: of the trace.
        steps: of the sequence, or of more that it is among.
        index: of the sequence in the trace.
        output: ids of its tokens; empty if they are not known.
    """
    origin = int(drafts.layout.offsets[index])
    text = Text([], [])
    position = steps.first
    begin, end = steps.offsets[index - steps.low : index - steps.low + 2].tolist()
    for number, k in enumerate(range(begin, end), start=1):
        drafted, accepted = int(steps.drafted[k]), int(steps.accepted[k])
        seen = drafted if isinstance(policy, Sequential) else 0  # else a depth is no row
        step = _Step(number, position, drafts.signals(origin + position - 1, seen).tolist(), output)
        text.tokens.extend(step.token("accepted", depth) for depth in range(1, accepted + 1))
        ids = drafts.tokens(origin + position - 1, seen) if seen > accepted else None
        for depth in range(accepted + 1, seen + 1) if ids else ():
            text.tokens.append(step.token("rejected", depth, ids))
        lost = 0 if ids or isinstance(policy, Concurrent) else drafted - accepted
        text.thrown.append(max(0, lost))
        if steps.emitted[k] > accepted:
            text.tokens.append(step.token("own", accepted + 1))
        position += int(steps.emitted[k])
    return text


class _Step(NamedTuple):
    """A step from `start`, as far as its tokens need it."""

    number: int
    start: int
    signals: list[list[float]]
    output: list[int]

    def token(self, kind: Kind, place: int, ids: list[int] | None = None) -> Token:
        """The token at a place behind the step's start, of the draft's ids or of the output."""
        position = self.start + place - 1
        at, known = (place, ids) if ids else (position, self.output)
        seen = kind != "own" and place <= len(self.signals)
        return Token(
            kind,
            known[at - 1] if at <= len(known) else None,
            self.number,
            position,
            place if seen else 0,
            tuple(self.signals[place - 1]) if seen else (math.nan,) * len(SIGNALS),
        )
