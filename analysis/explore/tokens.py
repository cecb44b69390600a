"""One prompt's output under a policy, token by token: accepted, the target's own, rejected."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from simkit.drafters.layout import Layout
from simkit.policies import Policy
from simkit.steps.family import family_of
from simkit.steps.steps import Steps
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
class ShownToken:
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
class TokenText:
    """An output as a policy's steps made it.

    Attributes:
        tokens: in the order in which they were made; rejected ones before the target's own.
        thrown: of each step, how many drafted tokens were not accepted and are not in `tokens`,
            because the trace or the replay does not say where they belong.
    """

    tokens: list[ShownToken]
    thrown: list[int]

    def count(self, kind: Kind) -> int:
        """How many tokens are of a kind; those of `thrown` are rejected ones."""
        there = sum(token.kind == kind for token in self.tokens)
        return there + (sum(self.thrown) if kind == "rejected" else 0)


class TokenDrafts:
    """What the drafts of a layout held, row by row: tokens and signals."""

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self.columns = {name: first_of(layout, names) for name, names in SIGNALS.items()}
        trace = layout.trace
        whole = trace.manifest.tokens != "ends"  # else those off the path were left out
        there = layout.by_start or trace.has("branches", DRAFT_TOKEN) or not trace.n_branch_rows
        self.knows_tokens = whole and there and _has(layout, DRAFT_TOKEN)

    def tokens(self, rows: np.ndarray, lengths: np.ndarray) -> np.ndarray | None:
        """Ids of the first tokens of drafts, one behind another; None if some are not known.

        Args:
            rows: (N,) of the on-path rows from which the drafts start.
            lengths: (N,) tokens of each.
        """
        if not self.knows_tokens:
            return None
        found = self._values(DRAFT_TOKEN, rows, lengths)
        return None if np.isnan(found).any() else found.astype(np.int64)

    def signals(self, rows: np.ndarray, lengths: np.ndarray) -> np.ndarray:
        """See `SIGNALS` and `tokens`; (tokens, 3), NaN where nothing was recorded."""
        none = np.full(int(lengths.sum()), np.nan)
        parts = [self._values(c, rows, lengths) if c else none for c in self.columns.values()]
        return np.stack(parts, axis=1)

    def greatest(self, signal: str) -> float:
        """The greatest value of a signal in all drafts; 1 where there is none."""
        name = self.columns[signal]
        if name is None:
            return 1.0
        read = self.layout.columns((name,))
        parts = (*read.path, *read.branches, *read.starts)
        values = [
            float(np.nanmax(part)) for part in parts if part.size and not np.isnan(part).all()
        ]
        return max(values, default=0.0) or 1.0

    def _values(self, column: str, rows: np.ndarray, lengths: np.ndarray) -> np.ndarray:
        """A column over drafts, one behind another, float64."""
        layout, trace = self.layout, self.layout.trace
        row = np.repeat(rows, lengths)
        depth = np.arange(len(row)) - np.repeat(np.cumsum(lengths) - lengths, lengths)  # from 0
        out = np.full(len(row), np.nan)
        if layout.by_start:
            starts = layout.columns((column,)).starts[0]
            there = depth < starts.shape[1]
            out[there] = starts[row[there], depth[there]]
            return out
        path = trace.positions(column)
        m = row + layout.ahead[row]  # the rejected one, or the row behind the output
        at = row + depth
        there = (at <= m) & (at < len(path))
        out[there] = path[at[there]]
        if trace.has("branches", column):
            at = layout.branch[m] + depth - layout.ahead[row] - 1
            there = (depth > layout.ahead[row]) & (at < layout.branch[np.minimum(m + 1, len(path))])
            out[there] = trace.branches(column)[at[there]]
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


def text_of(
    policy: Policy, drafts: TokenDrafts, steps: Steps, index: int, output: list[int]
) -> TokenText:
    """The output of one sequence.

    Args:
        policy: that was replayed.
        drafts: of the trace.
        steps: of the sequence, or of more that it is among.
        index: of the sequence in the trace.
        output: ids of its tokens; empty if they are not known.
    """
    text = TokenText([], [])
    begin, end = steps.offsets[index - steps.low : index - steps.low + 2].tolist()
    emitted = steps.emitted[begin:end].astype(np.int64)
    rows = drafts.layout.offsets[index] + steps.first - 1 + np.cumsum(emitted) - emitted
    drafted = steps.drafted[begin:end].astype(np.int64)
    seen = drafted if family_of(policy).by_row else 0 * drafted
    ids = drafts.tokens(rows, seen)
    signals = list(map(tuple, drafts.signals(rows, seen).tolist()))
    known = [] if ids is None else ids.tolist()
    ends = np.cumsum(seen).tolist()
    position = steps.first
    for k, accepted in enumerate(steps.accepted[begin:end].tolist()):
        part = slice(ends[k] - int(seen[k]), ends[k])
        step = _Step(k + 1, position, signals[part], known[part], output)
        text.tokens.extend(step.tokens(accepted, int(emitted[k])))
        lost = 0 if step.ids or not policy.takes_turns else int(drafted[k]) - accepted
        text.thrown.append(max(0, lost))
        position += int(emitted[k])
    return text


class _Step(NamedTuple):
    """A step from position `start`: what its draft held, as far as that is known."""

    number: int
    start: int
    signals: list[tuple[float, ...]]
    ids: list[int]
    output: list[int]

    def tokens(self, accepted: int, emitted: int) -> Iterator[ShownToken]:
        """Those accepted, those rejected, the target's own."""
        for depth in range(1, accepted + 1):
            yield self._token("accepted", self._known(depth), depth)
        for depth in range(accepted + 1, len(self.ids) + 1):
            yield self._token("rejected", self.ids[depth - 1], depth)
        if emitted > accepted:
            position = self.start + accepted
            yield ShownToken("own", self._known(accepted + 1), self.number, position, 0, _NOTHING)

    def _token(self, kind: Kind, token: int | None, depth: int) -> ShownToken:
        seen = depth <= len(self.signals)
        signals = self.signals[depth - 1] if seen else _NOTHING
        position = self.start + depth - 1
        return ShownToken(kind, token, self.number, position, depth if seen else 0, signals)

    def _known(self, place: int) -> int | None:
        at = self.start + place - 2
        return self.output[at] if at < len(self.output) else None


_NOTHING = (math.nan,) * len(SIGNALS)
