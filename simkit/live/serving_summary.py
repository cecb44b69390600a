"""What a log of a live server says: throughput, with intervals. Arrays in and out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from simkit.live.served import ServedRun
from simkit.live.summary import CONFIDENCE, Drift, drifts_of
from simkit.statistics.interval import ratio_interval


@dataclass(frozen=True)
class Arms:
    """What each arm took, the median over rounds.

    A request's share of the time is that of its iterations, each divided among the requests that
    were in it: shares add up to all of the time.

    Attributes:
        runs: (A,) numbers of the arms.
        names: (A,) controllers.
        share_s: (A, Q) of each request.
        policy_s: (A,) of which the controller took, all in all.
        tokens: (A, Q) that came out.
        steps: (A, Q).
        token_s: (A, Q) time per output token behind the first ones; NaN where none came.
        iterations: (A,).
    """

    runs: np.ndarray
    names: list[str]
    share_s: np.ndarray
    policy_s: np.ndarray
    tokens: np.ndarray
    steps: np.ndarray
    token_s: np.ndarray
    iterations: np.ndarray

    @property
    def seconds(self) -> np.ndarray:
        """(A,) of all requests."""
        return self.share_s.sum(1)

    @property
    def tokens_s(self) -> np.ndarray:
        """(A,) tokens a second, all requests together."""
        return self.tokens.sum(1) / self.seconds

    def interval(self, row: int, against: int = 0) -> tuple[float, float]:
        """Of an arm's throughput over another's; a bootstrap over requests."""
        factors = self.tokens[row].sum() / self.tokens[against].sum()
        low, high = ratio_interval(self.share_s[against], self.share_s[row], CONFIDENCE, seed=0)
        return low * factors, high * factors

    def drifts(self) -> list[Drift]:
        """Each arm that was run again, against the first of its kind."""
        return drifts_of(self.names, self.share_s)


def summary(runs: Sequence[ServedRun]) -> Arms:
    """What the runs of some arms on the same requests come to."""
    numbers = sorted({run.run for run in runs})
    mine = [[run for run in runs if run.run == number] for number in numbers]
    each = [[_of_requests(run) for run in some] for some in mine]
    share_s, tokens, steps, token_s = (
        np.stack([np.median([found[k] for found in some], axis=0) for some in each])
        for k in range(4)
    )
    policy = [
        np.median([sum(row.policy_s for row in run.iterations) for run in some]) for some in mine
    ]
    return Arms(
        np.array(numbers),
        [some[0].controller for some in mine],
        share_s,
        np.array(policy),
        tokens,
        steps,
        token_s,
        np.array([len(some[0].iterations) for some in mine]),
    )


def _of_requests(run: ServedRun) -> np.ndarray:
    """Share of the time, tokens, steps and time per token of each request, (4, Q).

    Requests are admitted in their order, so that those whose prompts an iteration reads are the
    next ones.
    """
    requests = sum(row.prefilling for row in run.iterations)
    found = np.zeros((4, requests))
    first = np.full((2, requests), np.nan)  # when the first tokens came, and how many
    last = np.zeros(requests)
    admitted, now_s = 0, 0.0
    for row in run.iterations:
        now_s += row.seconds
        coming = range(admitted, admitted + row.prefilling)
        admitted += row.prefilling
        inside = [*(step.request for step in row.steps), *coming]
        found[0, inside] += row.seconds / max(len(inside), 1)
        for step in row.steps:
            if np.isnan(first[0, step.request]):
                # the prompt's own token, where its pass emits one, comes an iteration earlier
                first[:, step.request] = now_s, step.start - 1 + step.emitted
            found[1, step.request] = step.start - 1 + step.emitted
            found[2, step.request] += 1
            last[step.request] = now_s
    behind = found[1] - first[1]
    found[3] = np.where(behind > 0, (last - first[0]) / np.maximum(behind, 1), np.nan)
    return found
