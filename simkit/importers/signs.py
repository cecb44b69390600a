"""What a log's counts look like where an engine has filled some of them in.

Past a drafter's context engines hand zeros to the target, at a request's start placeholders, and
some count a token too many. All of it is rejected, so that the counts agree with each other: it can
only be seen that so many rejections in such a place are no chance, if steps are alike elsewhere.
The same holds for drafts that are all accepted in a loop, and for histograms that were made up.
What is found is told, and counts as it stands; `simkit.importers.faults` says what each looks like.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby, takewhile

import numpy as np
from scipy.special import bdtrc

from traces.messages import how_many

_CHANCE = 1e-9  # the largest probability of what is told, if steps were alike
_SHARE = 0.9  # of requests, whose first step accepted nothing
_FEWEST = 4  # steps of a request, of which it can be seen that they are alike


Steps = Sequence[Sequence[int]]


def at_the_end(drafted: Steps, accepted: Steps) -> Iterator[str]:
    """Runs of steps at an output's end that accepted nothing, longer than any chance would have."""
    each = _with_drafts(drafted, accepted)
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
            f" accepted nothing{_percent(zeros, n, 'others')}"
        )


def at_the_start(drafted: Steps, accepted: Steps) -> Iterator[str]:
    """First steps that accepted nothing in nearly all requests."""
    each = _with_drafts(drafted, accepted)
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
            f" nothing{others}"
        )


def last_token(drafted: Steps, accepted: Steps) -> Iterator[str]:
    """Drafts of one length whose last token was never accepted, though the one before often was."""
    every, taken = _flat(drafted), _flat(accepted)
    for length in np.unique(every[every > 1]).tolist():
        own = taken[every == length]
        before, reached = ((own >= depth).sum() for depth in (length - 2, length - 1))
        passed = int((own == length).sum())
        if passed or not reached:
            continue
        rate = reached / before
        if (1 - rate / 2) ** reached < _CHANCE:
            yield (
                f"none of the {how_many(reached, 'step')} that accepted {length - 1} of"
                f" {length} draft tokens accepted the last, but {rate:.0%} of"
                " those that reached the one before accepted it"
            )


def evenly(drafted: Steps, accepted: Steps) -> Iterator[str]:
    """Steps of a request that all accepted as much, or one more: far from any chance.

    The chance is that of steps whose tokens are accepted alike, with the request's own mean.
    """
    chance, n = 0.0, 0
    for own, taken in zip(drafted, accepted, strict=True):
        counts, length = _flat([taken]), max(own, default=0)
        steps = counts[_flat([own]) == length]  # without what the output's end cut short
        if len(steps) < _FEWEST or length < 2:
            continue
        low = int(steps.min())
        if steps.max() > low + 1:
            return
        chance += len(steps) * np.log(_share_of_two(low, length, float(steps.mean())))
        n += 1
    if n and chance < np.log(_CHANCE):
        yield (
            f"all steps of each of {how_many(n, 'request')} accepted as many tokens, or one more"
        )


def loops(drafted: Steps, accepted: Steps) -> Iterator[str]:
    """Runs of whole drafts that were accepted, longer than any chance would have."""
    whole = [
        np.array([a == d for d, a in zip(*pair, strict=True) if d], bool)
        for pair in zip(drafted, accepted, strict=True)
    ]
    runs = [max((len(list(g)) for same, g in groupby(own) if same), default=0) for own in whole]
    n, passed = sum(map(len, whole)), sum(int(own.sum()) for own in whole)
    long = []
    for own, run in zip(whole, runs, strict=True):
        likely = max(_share(passed - run, n - run), _share(int(own.sum()) - run, len(own) - run))
        if run and n * likely**run < _CHANCE:
            long.append(run)
    if long:
        others = _percent(passed - sum(long), n - sum(long), "others")
        yield (
            f"{_several(long)} whole drafts in a row were accepted in"
            f" {how_many(len(long), 'request')}{others}"
        )


def _share_of_two(low: int, length: int, mean: float) -> float:
    """P(a is low or low + 1) where each token is accepted alike, so often that a has that mean."""
    below, above = 0.0, 1.0
    for _ in range(60):
        rate = (below + above) / 2
        if sum(rate**depth for depth in range(1, length + 1)) < mean:
            below = rate
        else:
            above = rate
    return above**low - (above ** (low + 2) if low + 1 < length else 0.0)


def _with_drafts(drafted: Steps, accepted: Steps) -> list[np.ndarray]:
    """What each step with a draft accepted, by request."""
    return [
        np.array([a for d, a in zip(*pair, strict=True) if d], np.int64)
        for pair in zip(drafted, accepted, strict=True)
    ]


def _flat(steps: Steps) -> np.ndarray:
    return np.array([x for own in steps for x in own], np.int64)


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
