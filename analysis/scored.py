"""What a head predicts of the tokens on the path, and what became of them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from analysis.study import MissingError
from traces import scores
from traces.trace import Trace


class Predicted(NamedTuple):
    """Predictions of positions, prompt after prompt.

    Attributes:
        probability: (R,) of being accepted.
        accepted: (R,) bool.
        offsets: (S + 1,), where prompts start.
    """

    probability: np.ndarray
    accepted: np.ndarray
    offsets: np.ndarray


def predicted(trace: Trace, head: str) -> Predicted:
    """A head's scores of the rows on the path, where there are any: see `traces.scores.RowScores`.

    Raises:
        MissingError: there are none of that head, or they are not by row.
        TraceError: see `traces.scores.load`.
    """
    if scores.facts(trace, head) is None:
        raise MissingError(scores.lack(trace, head))
    found = scores.load(trace, head)
    if not isinstance(found, scores.RowScores):
        raise MissingError(f"the scores of {head} are not by row")
    there = ~np.isnan(found.path)
    before = np.concatenate([[0], np.cumsum(there)])
    accepted = trace.positions("accepted")[there]
    return Predicted(found.path[there], accepted, before[trace.position_offsets])
