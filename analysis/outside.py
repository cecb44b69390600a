"""What steps of policies accept outside of verbatim loops of the output.

In a loop a draft is accepted whole, or fails at the same place of each round, so that tokens a step
tell of the loop. Whole outputs are decoded all the same: times have no part outside of loops.
"""

from __future__ import annotations

import numpy as np

from analysis.replays import Replayed, Replays
from analysis.stats.accepted_runs import runs_of_prompts
from analysis.stats.loops import Outside
from analysis.study import MissingError
from simkit.policies import Policy
from simkit.simulator.run import run
from simkit.simulator.steps import Steps
from simkit.sweeps.folds import mean_of


def stretches(at: Replays) -> Outside:
    """What lies outside of loops.

    Raises:
        MissingError: there are no loops, or nothing lies outside; or outputs are not known.
    """
    found = at.study.loops.outside
    if found is None:
        raise MissingError("no part of the outputs repeats a loop, or all of them do")
    return found


def accepted_a_step(at: Replays, one: Replayed) -> tuple[np.ndarray, np.ndarray]:
    """Accepted tokens and steps of each prompt, (S,) each, of steps that begin outside of loops.

    Tokens behind the stretch's end, which are in a loop, are not counted.

    Args:
        at: what was replayed.
        one: a policy, or a family with its choices.

    Raises:
        MissingError: see `stretches`.
    """
    left = stretches(at)
    policies, shares = one.choices or (one.policy,), one.shares or (np.ones(_prompts(at)),)
    found = [_sums(at, policy, left) for policy in policies]
    return mean_of([some[0] for some in found], shares), mean_of([s[1] for s in found], shares)


def accepted_runs(at: Replays, spec: str) -> np.ndarray:
    """As `Replays.accepted_runs`, of steps outside of loops; a run ends where a loop begins.

    Raises:
        MissingError: see `stretches`.
    """
    left = stretches(at)
    parts = [
        runs_of_prompts(steps, *_counted(at, steps, left)) for steps, _ in at.run(spec).pieces()
    ]
    return np.concatenate(parts)


def _sums(at: Replays, policy: Policy, left: Outside) -> tuple[np.ndarray, np.ndarray]:
    accepted, steps = np.zeros(_prompts(at)), np.zeros(_prompts(at))
    for piece, _ in run(policy, *at.where).pieces():
        some, mine = _counted(at, piece, left)
        accepted += np.bincount(piece.sequence, mine, len(accepted))
        steps += np.bincount(piece.sequence, some, len(steps))
    return accepted, steps


def _counted(at: Replays, steps: Steps, left: Outside) -> tuple[np.ndarray, np.ndarray]:
    """Which steps begin outside of loops, (N,) bool, and the accepted tokens that lie there."""
    every = len(left.rows)
    room = np.zeros(every, np.int64)  # tokens up to the stretch's end; none in a loop
    room[left.rows] = left.cut(np.full(every, every))
    here = room[at.layout.offsets[steps.sequence] + steps.start - 1]
    return here > 0, np.minimum(steps.accepted, here)


def _prompts(at: Replays) -> int:
    return at.trace.n_sequences
