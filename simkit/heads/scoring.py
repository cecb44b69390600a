"""Score every draft token of a trace with a head."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import torch

from simkit.drafters.path import PathLayout
from simkit.errors import HeadError
from simkit.heads.drafts import StartDrafts, drafts
from simkit.heads.files import Head, check_width
from simkit.heads.starts import StartHead
from simkit.heads.states import States
from traces.scores import RowScores, Scores, StartScores, followed

_DRAFTS = 8  # of one pass: their attention weights then stay in a core's cache
_ROWS = 8192


def score(
    head: Head,
    layout: PathLayout,
    states: States,
    max_draft: int = 40,
    on_sequence: Callable[[], None] = lambda: None,
) -> Scores:
    """A head's acceptance probability for every draft token.

    Args:
        head: of the width of the states.
        layout: of the trace.
        states: of the trace.
        max_draft: deepest token that a head by (start, depth) scores.
        on_sequence: told when a sequence is scored.

    Raises:
        HeadError: another width, deeper than the head's embedding, or a score is not a number.
    """
    check_width(head, states.width, str(layout.trace.path or "the trace"))
    before = torch.get_num_threads()
    torch.set_num_threads(1)  # sequences run beside each other, not their matrix products
    try:
        if not head.by_start:
            own = RowScores(score_rows(head, states.path), score_rows(head, states.branches))
            return _lagged(layout, own) if head.lag else own
        return _by_start(head, layout, states, max_draft, before, on_sequence)
    finally:
        torch.set_num_threads(before)


def score_drafts(module: StartHead, rows: StartDrafts) -> np.ndarray:
    """Probabilities (T, D) of one sequence's drafts, NaN where a draft has ended; float32."""
    out = np.full(rows.index.shape, np.nan, np.float32)
    with torch.inference_mode():
        encoded = module.encode(torch.from_numpy(rows.rows).float())
        index, n_prefix = torch.from_numpy(rows.index), torch.from_numpy(rows.n_prefix)
        for first in range(0, len(index), _DRAFTS):
            some = slice(first, first + _DRAFTS)
            deep = int(rows.length[some].max())
            logits = module.score(*encoded, index[some, :deep], n_prefix[some])
            out[some, :deep] = logits.sigmoid().numpy()
    recorded = rows.recorded
    _check(out[recorded])
    out[~recorded] = np.nan
    return out


def score_rows(head: Head, states: np.ndarray) -> np.ndarray:
    """Probabilities (n,) float32 of states (n, H), by a head that scores rows."""
    module = head.network()
    out = np.empty(len(states), np.float32)
    with torch.inference_mode():
        for first in range(0, len(states), _ROWS):
            some = slice(first, first + _ROWS)
            logits = module(torch.from_numpy(states[some]).double())
            out[some] = logits.sigmoid().float().numpy()
    _check(out)
    return out


def _lagged(layout: PathLayout, own: RowScores) -> RowScores:
    """Scores of the tokens that entered the states, where `own` holds those of the states' rows.

    A draft's last recorded token entered none: it has no score. A rule that lags never reads it.
    """
    path, off = np.full_like(own.path, np.nan), np.full_like(own.branches, np.nan)
    rows = followed(layout.trace)
    path[rows.path] = own.path[rows.path + 1]
    path[rows.opening] = own.branches[layout.branch[rows.opening]]
    off[rows.branches] = own.branches[rows.branches + 1]
    return RowScores(path, off, lag=1)


def _by_start(
    head: Head,
    layout: PathLayout,
    states: States,
    max_draft: int,
    threads: int,
    on_sequence: Callable[[], None],
) -> StartScores:
    module = head.network()
    assert isinstance(module, StartHead)
    if not 1 <= max_draft <= module.max_depth:
        raise HeadError(
            f"max_draft must be from 1 to {module.max_depth}, the head's depths, not {max_draft}"
        )

    def one(sequence: int) -> np.ndarray:
        values = score_drafts(module, drafts(layout, states, sequence, max_draft))
        on_sequence()
        return values

    with ThreadPoolExecutor(threads) as pool:
        parts = list(pool.map(one, range(len(layout.n_output))))
    return StartScores(np.concatenate(parts))


def _check(values: np.ndarray) -> None:
    if not np.isfinite(values).all():
        raise HeadError("the head gives scores that are NaN: its weights or the states are broken")
