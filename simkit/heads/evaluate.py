"""A head's figures on prompts that it has not seen, beside those of simple signals."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from simkit.drafters.path import PathLayout
from simkit.heads import metrics
from simkit.heads.drafts import check_deep, drafts
from simkit.heads.files import Head
from simkit.heads.scoring import score_drafts, score_rows
from simkit.heads.starts import StartHead
from simkit.heads.states import States
from simkit.heads.training import Split
from simkit.heads.training_data import Material, RecordedRows, said
from simkit.reliability import reliability

HEAD = "head"
REFITTED = "head, refitted"


class Judged(NamedTuple):
    """Draft tokens, what became of them, and what foretold it; arrays of one length.

    Attributes:
        accepted: bool; in PACER's case with all tokens before it.
        reached: bool, whether all draft tokens before it were accepted.
        score: the head's probability.
        signals: by name.
    """

    accepted: np.ndarray
    reached: np.ndarray
    score: np.ndarray
    signals: Mapping[str, np.ndarray]


def evaluate(head: Head, material: Material, parts: Split) -> dict[str, Any]:
    """Judge a head on the test prompts.

    All figures are about the same draft tokens: for a head that scores rows, those on the path; for
    PACER, those of the drafts from every start, as deep as its embedding goes.

    Args:
        head: that was trained on the training prompts.
        material: on which.
        parts: its prompts. Signals get a monotone fit on the training prompts, and so does the
            head's own score on the validation prompts ("head, refitted").

    Returns:
        `tokens`, their share `accepted`, `signals`: for each its AUC, log loss (nats) and expected
        calibration error, and the head's `reliability` curve. For PACER also `auc_reached`: over
        the tokens up to each draft's first rejected one.
    """
    train, validation, test = (judge(head, material, part) for part in parts)
    found = {HEAD: test.score}
    found[REFITTED] = metrics.fit(validation.score, validation.accepted)(test.score)
    for name, values in train.signals.items():
        found[name] = metrics.fit(values, train.accepted)(test.signals[name])
    signals = {name: metrics.quality(test.accepted, p) for name, p in found.items()}
    if head.by_start:
        for name, p in found.items():
            seen = test.accepted[test.reached], p[test.reached]
            signals[name]["auc_reached"] = metrics.auc(*seen)
    return {
        "tokens": len(test.accepted),
        "accepted": float(test.accepted.mean()),
        "signals": signals,
        "reliability": reliability(test.accepted, test.score),
    }


def judge(head: Head, material: Material, wanted: np.ndarray) -> Judged:
    """What a head and simple signals say of the draft tokens of some sequences, (S,) bool."""
    if head.by_start:
        assert isinstance(material, RecordedRows)
        return _by_start(head, material.layout, material.states, wanted)
    rows, accepted, signals = material.asked(head.kind, head.options, wanted)
    score = score_rows(head, rows.state)
    return Judged(accepted, np.ones(len(accepted), bool), score, signals)


def _by_start(head: Head, layout: PathLayout, states: States, wanted: np.ndarray) -> Judged:
    module = head.network()
    assert isinstance(module, StartHead)
    check_deep(layout, module.max_depth)
    columns = said(layout, True)
    parts: dict[str, list[np.ndarray]] = {}
    for sequence in np.flatnonzero(wanted):
        rows = drafts(layout, states, int(sequence), module.max_depth)
        recorded = rows.recorded
        top1 = np.where(recorded, columns["top-1 probability"][rows.source], 1)
        before = np.cumsum(~rows.accepted, 1) - ~rows.accepted
        found = {name: values[rows.source] for name, values in columns.items()}
        found["depth"] = np.broadcast_to(np.arange(1, module.max_depth + 1), recorded.shape)
        found["product of top-1"] = np.cumprod(top1, 1)
        found |= {"_accepted": rows.accepted, "_reached": before == 0}
        found["_score"] = score_drafts(module, rows)
        for name, values in found.items():
            parts.setdefault(name, []).append(values[recorded])
    flat = {name: np.concatenate(values) for name, values in parts.items()}
    return Judged(flat.pop("_accepted"), flat.pop("_reached"), flat.pop("_score"), flat)
