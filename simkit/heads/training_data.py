"""What heads learn from: rows of a recording, or tokens that an attached drafter has read."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from simkit.drafters.path import PathLayout
from simkit.errors import HeadError
from simkit.heads import examples, registry
from simkit.heads.examples import Labelled
from simkit.heads.states import States
from traces.record.drafters.consumed import Consumed


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
        """See `Material`."""
        return examples.to_train_on(kind, options, self.layout, self.states, wanted)

    def asked(self, kind: str, options: Mapping[str, Any], wanted: np.ndarray) -> AskedRows:
        """See `Material`."""
        rows, judged = examples.on_path(kind, options, self.layout, self.states, wanted)
        signals = {name: values[judged] for name, values in said(self.layout, False).items()}
        accepted = self.layout.trace.positions("accepted")
        signals["depth"] = _depth(accepted, self.layout.offsets)[judged]
        return AskedRows(rows, accepted[judged], signals)


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
