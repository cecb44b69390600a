"""The replay of draft and target at work at the same time (PEARL).

One step is one pass of the target. It takes the last emitted token and the k drafted tokens that
wait behind it, and so checks those k; if the draft runs meanwhile it checks the first new token
too, and all accepted, the others of the new ones wait for the next step. Pre-verify is k = 0,
post-verify is k = γ - 1 (the last emitted token is then x₁ of the pending x₁…x_γ). A draft that
runs on is the same chain of recorded rows that a draft of any other policy would see, so the steps
follow from where the path's acceptances and the chains end. Where one pass yields a whole draft,
what is drafted meanwhile is another pass, which reads the waiting tokens: the draft from the start
behind them, if they are accepted; else it is thrown away unseen.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from simkit.drafters.layout import Layout, Span
from simkit.policies import PolicyError
from simkit.policies.pearl import PEARL
from simkit.steps.family import Family
from simkit.steps.loop_tables import LayoutArrays, arrays_of
from simkit.steps.steps import Steps
from simkit.steps.work import Meanwhile, Work
from traces.kernels import compiled, compiled_part

_Rule = tuple[int, bool, bool]  # window, pre-verify, post-verify


@dataclass(frozen=True, eq=False)
class ConcurrentSteps(Steps):
    """Steps of one target pass each.

    `drafted` counts all draft tokens of a step, those thrown away too; `proposed` the
    tokens that the target checked, of which `accepted` were accepted. A target pass takes
    1 + k tokens, see `waiting`.

    Attributes:
        alone: int32, tokens drafted before the target's pass; the others are drafted during it.
    """

    alone: np.ndarray

    @property
    def meanwhile(self) -> np.ndarray:
        """Tokens drafted during the target's pass, int32."""
        return self.drafted - self.alone

    @property
    def waiting(self) -> np.ndarray:
        """K, the drafted tokens that the target's pass took, int32; the last emitted one apart."""
        return self.proposed - (self.meanwhile > 0)


class ConcurrentFamily(Family[PEARL, ConcurrentSteps]):
    """See the module."""

    in_pieces = True

    def walk(
        self, policy: PEARL, layout: Layout, first: int, span: Span | None = None
    ) -> ConcurrentSteps:
        """See `Family`.

        Raises:
            PolicyError: it has no window.
        """
        if policy.window is None:
            raise PolicyError(f"{policy} needs times to choose its window: give one, or a cost")
        low, high = span or (0, len(layout.n_output))
        counts = np.empty((5, layout.offsets[high] - layout.offsets[low]), np.int32)
        ends = np.zeros(high - low + 1, np.int64)
        rule = (policy.window, policy.pre_verify, policy.post_verify)
        found = _walk(arrays_of(layout).path, rule, first, low, counts, ends)
        if found[0] >= 0:
            raise layout.outrun(*found)
        drafted, proposed, accepted, emitted, alone = counts[:, : ends[-1]]
        passes = drafted
        if layout.paid != "token":
            passes = layout.passes(alone) + layout.passes(drafted - alone)
        of_steps = (drafted, passes, proposed, accepted, emitted, drafted)
        return ConcurrentSteps(ends, *of_steps, first, alone, low=low)

    def work(self, policy: PEARL, steps: ConcurrentSteps, layout: Layout) -> Work:
        """See `Family`.

        Draft and target communicate in every step, unless they never run at the same time at all.
        """
        return drafting(steps, layout, policy.overlaps, policy.colocated)

    def tokens(self, accepted: Any, steps: Any, emitted: Any) -> Any:
        """See `Family`: what a step emits; there is no bonus token as a rule."""
        return emitted

    def kind(self, policy: PEARL, layout: Layout) -> tuple[Any, ...]:
        """See `Family`."""
        return (type(policy),)


def drafting(
    steps: ConcurrentSteps, layout: Layout, overlaps: bool = True, colocated: bool = False
) -> Work:
    """What steps did; see `Meanwhile`."""
    alone, meanwhile = unread(steps) if layout.reads_back else (1, 1)
    return Work(
        steps.known(layout),
        steps.waiting + 1,
        steps.alone,
        alone,
        np.zeros(len(steps), np.int64),
        beside=Meanwhile(steps.meanwhile, meanwhile, overlaps, colocated),
        reads=lambda: layout.experts.union(steps.row(layout), steps.waiting + 1),
    )


def unread(steps: ConcurrentSteps) -> tuple[np.ndarray, np.ndarray]:
    """Tokens, known or drafted, that the draft has not read as it drafts alone, and meanwhile.

    The tokens that wait behind the last emitted one are read as if they were known; where one of
    them was rejected, the correction is yet to be read.
    """
    start, at = steps.start, steps.start + steps.waiting
    alone, meanwhile = steps.alone > 0, steps.meanwhile > 0
    before = steps.read_before(np.where(meanwhile, at, np.where(alone, start, -1)))
    then = np.where(alone, start, before)
    return np.maximum(start - before, 1), np.maximum(at - then, 1)


def mean_accepted(steps: Steps) -> float:
    """MAT: draft tokens accepted between two rejections, the mean over all such runs.

    A run begins at a sequence's first step or behind a rejection, and ends at the next rejection; a
    rejection right away makes a run of none. The output's end ends a run too, if it has any token.
    Tokens of the target's own are not counted, and a bonus token ends no run. This is PEARL's MAT;
    for vanilla speculative decoding its Table 7 prints accepted tokens a step instead.

    Returns:
        NaN if there are no runs.
    """
    rejected = steps.accepted < steps.proposed
    ends = rejected.copy()
    ends[steps.offsets[1:][steps.counts > 0] - 1] = True
    length = np.bincount(np.cumsum(ends) - ends, steps.accepted)
    length = length[rejected[ends] | (length > 0)]
    return float(length.mean()) if len(length) else float("nan")


@compiled
def _walk(
    path: LayoutArrays, rule: _Rule, first: int, low: int, counts: np.ndarray, ends: np.ndarray
) -> tuple[int, int, int]:
    """Fill in the steps of the sequences from `low` on.

    Returns:
        (-1, 0, 0), or the sequence, start and depth not recorded.
    """
    for n in range(len(ends) - 1):
        ends[n + 1], start, depth = _sequence(path, rule, first, low + n, counts, ends[n])
        if start > 0:
            return low + n, start, depth
    return -1, 0, 0


@compiled_part
def _sequence(
    path: LayoutArrays, rule: _Rule, first: int, s: int, counts: np.ndarray, count: int
) -> tuple[int, int, int]:
    """Fill in the steps of sequence s, in columns `count` and on of `counts`.

    A draft that runs on over steps is the draft from the row where it began, `origin`; where drafts
    are made anew, that of the pending tokens is.

    Returns:
        The column behind them, and where a row was missing (start and depth, 0 if none).
    """
    window, pre_verify, post_verify = rule
    ahead, tail = path.ahead, path.tail
    before, end = path.offsets[s], path.offsets[s + 1]
    anew = path.by_start and path.deepest >= 0
    row = origin = before + first - 1
    pending = 0  # the last emitted token and the tokens that wait behind it, if any was drafted
    while row < end:
        origin = row if pending == 0 else origin
        left = path.max_new_tokens - (row - before + 1)
        m = origin + ahead[origin]
        chain, behind = _chain(path, row, origin, m, end)
        alone = window if pending == 0 and not pre_verify else 0
        waiting = alone if pending == 0 else pending - 1
        meanwhile = window if post_verify or (pre_verify and pending == 0) else 0
        if behind < 0 and min(waiting + (0 if anew else meanwhile), left) > chain:
            if path.by_start:
                return count, int(origin - before) + 1, int(-behind)
            return count, int(row - before) + 1, int(chain) + 1
        alone, waiting = min(alone, chain, left), min(waiting, chain, left)
        begin = row + waiting
        if not anew:
            meanwhile = min(meanwhile, min(chain, left) - waiting)
        elif behind >= 0 and waiting == chain:  # the draft has ended
            meanwhile = 0
        else:
            meanwhile = min(meanwhile, left - waiting)
        if anew and begin <= m and begin < end:  # the waiting tokens are accepted
            recorded = max(tail[begin], -1 - tail[begin])
            if tail[begin] < 0 and meanwhile > recorded:
                return count, int(begin - before) + 1, int(recorded) + 1
            meanwhile = min(meanwhile, recorded)
            m = begin + ahead[begin]
        whole = _step(counts[:, count], alone, waiting, meanwhile, m - row, end - row)
        if whole and anew:
            origin = begin
        pending = meanwhile if whole else 0
        row += counts[3, count]
        count += 1
    return count, 0, 0


@compiled_part
def _chain(path: LayoutArrays, row: int, origin: int, m: int, end: int) -> tuple[int, int]:
    """Tokens of the chain from `origin` that lie behind `row`, and the tail that it ends with."""
    tail = path.tail
    if path.by_start:
        behind = tail[origin]
        return max(behind, -1 - behind) - (row - origin), behind
    behind = tail[m] if m < end else 0
    return m - row + (1 + max(behind, -1 - behind) if m < end else 0), behind


@compiled_part
def _step(
    counts: np.ndarray, alone: int, waiting: int, meanwhile: int, ahead: int, left: int
) -> bool:
    """Fill in a step's counts (5,), `left` tokens before the end.

    Returns:
        Whether all is accepted, what is drafted meanwhile going on.
    """
    checked = waiting + (1 if meanwhile > 0 else 0)
    accepted = min(checked, ahead)
    whole = meanwhile > 0 and accepted == checked
    counts[0] = alone + meanwhile
    counts[1] = checked
    counts[2] = accepted
    counts[3] = accepted if whole else min(accepted + 1, left)
    counts[4] = alone
    return whole


FAMILY = ConcurrentFamily()
