"""What steps of policies draft and accept outside of verbatim loops of the output.

In a loop a draft is accepted whole, or fails at the same place of each round, so that tokens a step
tell of the loop. Whole outputs are decoded all the same: times have no part outside of loops.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from analysis.replays import Replayed, Replays, means
from analysis.stats.accepted_runs import runs_of_prompts
from analysis.stats.loops import Outside
from analysis.study import MissingError
from simkit.simulator.run import Run
from simkit.steps.steps import Steps


def stretches(at: Replays) -> Outside:
    """What lies outside of loops.

    Raises:
        MissingError: there are no loops, or nothing lies outside; or outputs are not known.
    """
    found = at.study.loops.outside
    if found is None:
        raise MissingError("no part of the outputs repeats a loop, or all of them do")
    return found


def counts(at: Replays, one: Replayed) -> dict[str, np.ndarray]:
    """Counts of each prompt, (S,) each, over the steps that begin outside of loops.

    Tokens that a step proposes or accepts behind the stretch's end, which lie in a loop, are not
    counted: the loop's first token ends a draft as an output's end does.

    Args:
        at: what was replayed.
        one: a policy, or a family with its choices.

    Returns:
        Steps, proposed and accepted, by the names that `Replayed.counts` has.

    Raises:
        MissingError: see `stretches`.
    """
    shares = one.shares or (np.ones(at.trace.n_sequences),)
    runs = one.runs or (at.run(policy) for policy in one.choices or (one.policy,))
    return means([_sums(at, each) for each in runs], shares)


def if_any(at: Replays, found: Mapping[str, Replayed]) -> dict[str, dict[str, np.ndarray]]:
    """The `counts` of several, by label; none where there are no loops to be outside of."""
    try:
        stretches(at)
    except MissingError:
        return {}
    return {label: counts(at, one) for label, one in found.items()}


def accepted_runs(at: Replays, spec: str) -> np.ndarray:
    """As `Replays.accepted_runs`, of steps outside of loops; a run ends where a loop begins.

    Raises:
        MissingError: see `stretches`.
    """
    parts = [
        runs_of_prompts(steps, (left := room(at, steps)) > 0, steps.accepted.clip(max=left))
        for steps, _ in at.run(spec).pieces()
    ]
    return np.concatenate(parts)


def room(at: Replays, steps: Steps) -> np.ndarray:
    """Tokens from each step's start to the stretch's end, (N,) int64; none in a loop.

    Raises:
        MissingError: see `stretches`.
    """
    return stretches(at).room(at.trace.position_offsets[steps.sequence] + steps.start - 1)


def _sums(at: Replays, each: Run) -> dict[str, np.ndarray]:
    sums = {name: np.zeros(at.trace.n_sequences) for name in ("steps", "proposed", "accepted")}
    for piece, _ in each.pieces():
        left = room(at, piece)
        most = {"steps": 1, "proposed": piece.proposed, "accepted": piece.accepted}
        for name, here in most.items():
            sums[name] += np.bincount(piece.sequence, np.minimum(here, left), at.trace.n_sequences)
    return sums
