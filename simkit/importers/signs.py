"""What a log's counts look like where an engine has filled some of them in.

Past a drafter's context engines hand zeros to the target, at a request's start placeholders, and
some count a token too many. All of it is rejected, so that the counts agree with each other: it can
only be seen that so many rejections in such a place are no chance, if steps are alike elsewhere.
What is found is told, and counts as it stands.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import takewhile

import numpy as np
from scipy.special import bdtrc

from traces.messages import how_many

_CHANCE = 1e-9  # the largest probability of what is told, if steps were alike
_SHARE = 0.9  # of requests, whose first step accepted nothing


def signs(
    drafted: Sequence[Sequence[int]], accepted: Sequence[Sequence[int]], ordered: bool
) -> Iterator[str]:
    """What to say of steps, one line each.

    Args:
        drafted: of each step, by request.
        accepted: as many.
        ordered: whether the steps stand in their order.
    """
    each = [
        np.array([a for d, a in zip(*pair, strict=True) if d], np.int64)
        for pair in zip(drafted, accepted, strict=True)
    ]
    if ordered:
        yield from _at_the_end(each)
        yield from _at_the_start(each)
    yield from _last_token(
        np.array([d for steps in drafted for d in steps], np.int64),
        np.array([a for steps in accepted for a in steps], np.int64),
    )


def _at_the_end(each: list[np.ndarray]) -> Iterator[str]:
    """Runs of steps at an output's end that accepted nothing, longer than any chance would have."""
    runs = [_leading(steps[::-1] == 0) for steps in each]
    inner = [steps[: len(steps) - run] for steps, run in zip(each, runs, strict=True)]
    zeros, n = sum(int((steps == 0).sum()) for steps in inner), sum(map(len, inner))
    overall = _share(zeros, n)
    likely = [max(overall, _share(int((steps == 0).sum()), len(steps))) for steps in inner]
    long = [
        run
        for run, share in zip(runs, likely, strict=True)
        if run and len(each) * share**run < _CHANCE
    ]
    if long:
        yield (
            f"the last {_several(long)} steps with a draft of {how_many(len(long), 'request')}"
            f" accepted nothing{_percent(zeros, n, 'others')}: drafts that are filled with zeros"
            " past the drafter's context look like that, and loops that only the target is in; they"
            " count as rejected"
        )


def _at_the_start(each: list[np.ndarray]) -> Iterator[str]:
    """First steps that accepted nothing in nearly all requests."""
    found, n = 0, 0
    for at in range(max(map(len, each), default=0)):
        these = np.array([steps[at] for steps in each if len(steps) > at + 1])
        rest = np.concatenate([np.empty(0), *(steps[at + 1 :] for steps in each)])
        zeros = int((these == 0).sum())
        share = _share(int((rest == 0).sum()), len(rest))
        chance = bdtrc(zeros - 1, len(these), share) if zeros else 1.0
        if zeros < _SHARE * len(these) or chance > _CHANCE:
            break
        found, n, others = at + 1, zeros, _percent(int((rest == 0).sum()), len(rest), "later ones")
    if found:
        steps = "step" if found == 1 else f"{found} steps"
        yield (
            f"the first {steps} with a draft of {n:,} of {how_many(len(each), 'request')} accepted"
            f" nothing{others}: placeholders in the drafter's place look like that; they count as"
            " rejected"
        )


def _last_token(drafted: np.ndarray, accepted: np.ndarray) -> Iterator[str]:
    """Drafts of one length whose last token was never accepted, though the one before often was."""
    for length in np.unique(drafted[drafted > 1]).tolist():
        own = accepted[drafted == length]
        before, reached = ((own >= depth).sum() for depth in (length - 2, length - 1))
        passed = int((own == length).sum())
        if passed or not reached:
            continue
        rate = reached / before
        if (1 - rate / 2) ** reached < _CHANCE:
            yield (
                f"none of the {how_many(reached, 'step')} that accepted {length - 1} of"
                f" {length} draft tokens accepted the last, but {rate:.0%} of"
                " those that reached the one before accepted it: a log that counts one token too"
                " many a draft looks like that; it counts as rejected"
            )


def _leading(flags: np.ndarray) -> int:
    return sum(1 for _ in takewhile(bool, flags))


def _share(n: int, of: int) -> float:
    """A share, drawn towards a half where little is known."""
    return (n + 1) / (of + 2)


def _percent(n: int, of: int, what: str) -> str:
    return f" ({n / of:.0%} of the {what})" if of else ""


def _several(numbers: list[int]) -> str:
    low, high = min(numbers), max(numbers)
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"
