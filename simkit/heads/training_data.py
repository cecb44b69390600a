"""What heads learn from: rows of a recording, or tokens that an attached drafter has read."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from simkit.drafters.path import PathLayout
from simkit.errors import HeadError
from simkit.heads import registry
from simkit.heads.states import States
from traces.record.drafters.consumed import Consumed


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


class AskedRows(NamedTuple):
    """Draft tokens that a head by row is asked about; n of them.

    Attributes:
        rows: their states and labels.
        accepted: (n,) bool.
        signals: by name, what the draft says of its own tokens, (n,).
    """

    rows: Labelled
    accepted: np.ndarray
    signals: Mapping[str, np.ndarray]


class Material(ABC):
    """What heads that score rows by themselves learn from.

    Attributes:
        width: H, numbers in a state.
        n_sequences: S.
    """

    width: int
    n_sequences: int

    @abstractmethod
    def to_train_on(self, kind: str, options: Mapping[str, Any], wanted: np.ndarray) -> Labelled:
        """Rows of some sequences, (S,) bool, that a head is trained on."""

    @abstractmethod
    def asked(self, kind: str, options: Mapping[str, Any], wanted: np.ndarray) -> AskedRows:
        """Draft tokens behind the target's own text, by which epochs and heads are judged."""


class RecordedRows(Material):
    """Rows of a trace that has the draft model's states.

    Args:
        layout: of the trace.
        states: of the trace.
    """

    def __init__(self, layout: PathLayout, states: States) -> None:
        self.layout, self.states = layout, states
        self.width, self.n_sequences = states.width, len(layout.n_output)

    def to_train_on(self, kind: str, options: Mapping[str, Any], wanted: np.ndarray) -> Labelled:
        """See `Material`: on the path, in mixed texts and, for a head without a lag, branches.

        Of the last those that the target has seen, if they were recorded. A head that trains on
        mixed texts only, as the acceptance head's paper does, takes the first only where the
        second are missing.
        """
        mixed = self.on_mixed(kind, options, wanted)
        if options.get("lag") and len(mixed.label) and registry.get(kind).mixed_only:
            return mixed
        rows = self.on_path(kind, options, wanted)[0] + mixed
        if self.layout.trace.has("branches", "accepted") and not options.get("lag"):
            mine = self._inside("branches", wanted)
            rows += Labelled(self.states.branches[mine], self._label(kind, "branches")[mine])
        return rows

    def asked(self, kind: str, options: Mapping[str, Any], wanted: np.ndarray) -> AskedRows:
        """See `Material`."""
        rows, judged = self.on_path(kind, options, wanted)
        signals = {name: values[judged] for name, values in said(self.layout, False).items()}
        accepted = self.layout.trace.positions("accepted")
        signals["depth"] = _depth(accepted, self.layout.offsets)[judged]
        return AskedRows(rows, accepted[judged], signals)

    def on_path(
        self, kind: str, options: Mapping[str, Any], wanted: np.ndarray
    ) -> tuple[Labelled, np.ndarray]:
        """Rows on the recorded path, and which of the trace's positions they judge, (n,) int64.

        With a lag of one, a row's token is judged from the next state on its own draft's path, into
        which it was fed: that of the next row if it was accepted, else of the first row of its
        branch.
        """
        layout, states, label = self.layout, self.states, self._label(kind, "positions")
        rows = np.flatnonzero(np.repeat(wanted, layout.n_output))
        if not options.get("lag"):
            return Labelled(states.path[rows], label[rows]), rows
        accepted = layout.trace.positions("accepted")[rows]
        last = np.isin(rows + 1, layout.offsets)
        first, end = layout.branch[rows], layout.branch[rows + 1]
        keep = np.where(accepted, ~last, end > first)
        if (~keep & layout.cut[rows]).any():
            raise HeadError(
                f"{layout.trace.path or 'the trace'}: no draft reads a rejected token, so only"
                " accepted ones could be judged: record with --max-draft 2 or more, or give --lag 0"
            )
        rows, accepted, first = rows[keep], accepted[keep], first[keep]
        state = np.empty((len(rows), states.width), np.float16)
        state[accepted] = states.path[rows[accepted] + 1]
        state[~accepted] = states.branches[first[~accepted]]
        return Labelled(state, label[rows]), rows

    def on_mixed(self, kind: str, options: Mapping[str, Any], wanted: np.ndarray) -> Labelled:
        """Rows of mixed texts; none where the trace has none.

        Without a lag: what the draft would propose behind every token of the text. With a lag of
        one: the tokens of the text that are the draft's own, each from the state that has consumed
        it there, with the label that it has behind the target's own prefix, where it was proposed
        (acceptance head, section 2.3).
        """
        trace = self.layout.trace
        if not trace.has("mixed", "state"):
            return Labelled(self.states.path[:0], np.zeros(0, np.float32))
        mine, state = self._inside("mixed", wanted), trace.column("mixed", "state")
        if not options.get("lag"):
            return Labelled(state[mine], self._label(kind, "mixed")[mine])
        own = trace.column("mixed", "from_draft") & mine
        own &= trace.column("mixed", "token") == trace.positions("draft_token")
        last = np.zeros_like(own)
        last[self.layout.offsets[1:] - 1] = True
        judged = np.flatnonzero(own & ~last)
        return Labelled(state[judged + 1], self._label(kind, "positions")[judged])

    def _inside(self, table: str, wanted: np.ndarray) -> np.ndarray:
        """Which rows of a table are of some sequences, (rows,) bool."""
        trace = self.layout.trace
        numbers = trace.sequences["sequence"].to_numpy()[wanted]
        return np.isin(trace.column(table, "sequence"), numbers)

    def _label(self, kind: str, table: str) -> np.ndarray:
        return self.layout.trace.column(table, registry.get(kind).label).astype(np.float32)


class ReadDrafts(Material):
    """Tokens that a drafter of trees has read.

    Args:
        on_text: behind the target's own text.
        mixed: inside mixed texts.
        n_sequences: S.
    """

    def __init__(self, on_text: Consumed, mixed: Consumed, n_sequences: int) -> None:
        self.on_text, self.mixed = on_text, mixed
        self.width, self.n_sequences = on_text.state.shape[1], n_sequences

    def to_train_on(self, kind: str, options: Mapping[str, Any], wanted: np.ndarray) -> Labelled:
        """See `Material`: those of mixed texts; of heads that take more, the others too."""
        mixed = _labelled(kind, options, self.mixed, wanted)
        if registry.get(kind).mixed_only and len(mixed.label):
            return mixed
        return _labelled(kind, options, self.on_text, wanted) + mixed

    def asked(self, kind: str, options: Mapping[str, Any], wanted: np.ndarray) -> AskedRows:
        """See `Material`."""
        rows = _labelled(kind, options, self.on_text, wanted)
        mine = wanted[self.on_text.sequence]
        found = {
            "entropy": self.on_text.entropy,
            "top-1 probability": self.on_text.top1,
            "margin top-1 - top-2": self.on_text.top1 - self.on_text.top2,
        }
        signals = {name: values[mine] for name, values in found.items()}
        return AskedRows(rows, self.on_text.accepted[mine], signals)


def _labelled(
    kind: str, options: Mapping[str, Any], given: Consumed, wanted: np.ndarray
) -> Labelled:
    if not options.get("lag"):
        raise HeadError(
            "for a drafter of trees, tokens are judged from the state that has consumed them: give"
            " --lag 1"
        )
    mine = wanted[given.sequence]
    label = getattr(given, registry.get(kind).label).astype(np.float32)
    return Labelled(given.state[mine], label[mine])


def said(layout: PathLayout, with_branches: bool) -> dict[str, np.ndarray]:
    """What the draft says of its own tokens, of positions and, behind them, of branches."""

    def column(name: str) -> np.ndarray:
        path = layout.trace.positions(name)
        if not with_branches or not layout.trace.n_branch_rows:
            return path
        return np.concatenate([path, layout.trace.branches(name)])

    top1, top2 = column("draft_top1_prob"), column("draft_top2_prob")
    return {
        "entropy": column("draft_entropy"),
        "top-1 probability": top1,
        "margin top-1 - top-2": top1 - top2,
        "token's probability": column("draft_prob_raw"),
    }


def _depth(accepted: np.ndarray, offsets: np.ndarray) -> np.ndarray:
    """Depth of each row in the draft that began after the rejection before it, from 1."""
    rows = np.arange(len(accepted))
    begin = np.zeros(len(accepted), np.int64)
    begin[offsets[:-1]] = offsets[:-1]
    after = np.flatnonzero(~accepted[:-1]) + 1
    begin[after] = after
    return rows - np.maximum.accumulate(begin) + 1
