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
from traces.kernels import compiled


@dataclass(frozen=True, eq=False)
class ConcurrentSteps(Steps):
    """Steps of one target pass each.

    `drafted` counts all draft tokens of a step, those thrown away too; `proposed` the
    tokens that the target checked, of which `accepted` were accepted. A target pass takes
    1 + k tokens, see `waiting`.

    Attributes:
        alone: int32, tokens drafted before the target's pass; the others are drafted during it.
        alone_passes: int32, the draft's passes over them.
    """

    alone: np.ndarray
    alone_passes: np.ndarray

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
        alone_passes, passes = alone, drafted
        if layout.paid != "token":
            alone_passes = layout.passes(alone)
            passes = alone_passes + layout.passes(drafted - alone)
        of_steps = (drafted, passes, proposed, accepted, emitted, drafted)
        return ConcurrentSteps(ends, *of_steps, first, alone, alone_passes, low=low)

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


def model_runs(steps: ConcurrentSteps) -> tuple[int, int]:
    """Passes of the draft and of the target, prefills apart (PEARL Table 11)."""
    return int(steps.draft_passes.sum()), len(steps)


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
    path: LayoutArrays,
    rule: tuple[int, bool, bool],
    first: int,
    low: int,
    counts: np.ndarray,
    ends: np.ndarray,
) -> tuple[int, int, int]:
    """Fill in the steps of the sequences from `low` on.

    A draft that runs on over steps is the draft from the row where it began, `origin`; where drafts
    are made anew, that of the pending tokens is.

    Returns:
        (-1, 0, 0), or the sequence, start and depth not recorded.
    """
    window, pre_verify, post_verify = rule
    offsets, ahead, tail = path.offsets, path.ahead, path.tail
    anew = path.by_start and path.deepest is not None
    count = 0
    for n in range(len(ends) - 1):
        s = low + n
        end = offsets[s + 1]
        row = offsets[s] + first - 1
        origin = row
        pending = 0  # the last emitted token and the tokens that wait behind it, if any was drafted
        while row < end:
            position = row - offsets[s] + 1
            left = path.max_new_tokens - position
            if pending == 0:
                origin = row
            m = origin + ahead[origin]
            if path.by_start:
                behind = tail[origin]
                chain = max(behind, -1 - behind) - (row - origin)
            else:
                behind = tail[m] if m < end else 0
                chain = m - row + (1 + max(behind, -1 - behind) if m < end else 0)
            alone = window if pending == 0 and not pre_verify else 0
            waiting = alone if pending == 0 else pending - 1
            meanwhile = window if post_verify or (pre_verify and pending == 0) else 0
            if behind < 0 and min(waiting + (0 if anew else meanwhile), left) > chain:
                if path.by_start:
                    return s, int(origin - offsets[s]) + 1, int(-behind)
                return s, position, chain + 1
            room = min(chain, left)
            alone, waiting = min(alone, room), min(waiting, room)
            begin = row + waiting
            if anew:
                ended = behind >= 0 and waiting == chain
                meanwhile = 0 if ended else min(meanwhile, left - waiting)
                if begin <= m and begin < end:  # the waiting tokens are accepted
                    recorded = max(tail[begin], -1 - tail[begin])
                    if tail[begin] < 0 and meanwhile > recorded:
                        return s, int(begin - offsets[s]) + 1, int(recorded) + 1
                    meanwhile = min(meanwhile, recorded)
                    m = begin + ahead[begin]
            else:
                meanwhile = min(meanwhile, room - waiting)
            checked = waiting + (1 if meanwhile > 0 else 0)
            accepted = min(checked, m - row)
            whole = meanwhile > 0 and accepted == checked
            if whole and anew:
                origin = begin
            emitted = accepted if whole else min(accepted + 1, end - row)
            pending = meanwhile if whole else 0
            counts[0, count] = alone + meanwhile
            counts[1, count] = checked
            counts[2, count] = accepted
            counts[3, count] = emitted
            counts[4, count] = alone
            count += 1
            row += emitted
        ends[n + 1] = count
    return -1, 0, 0


FAMILY = ConcurrentFamily()
