"""How much of a result rests on times beyond those that were taken, in words."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from traces.messages import how_many

EXTRAPOLATED = "their times are extrapolated"


class Beyond(NamedTuple):
    """Work that is over more than was timed.

    Attributes:
        of: the policy or controller whose work it is; empty: the same under all of them.
        part: what is counted.
        share: of these, above 0.
        what: is beyond, in words behind "in 5% of its steps", or behind "5% of prompts".
        over: the same in brackets.
    """

    of: str
    part: str
    share: float
    what: str
    over: str

    def __str__(self) -> str:
        some = f"{share_text(self.share)} of {'its ' if self.of else ''}{self.part} {self.what}"
        return f"{self.of}: in {some}" if self.of else some


def of_contexts(share: float, timed: int) -> Beyond:
    """Steps behind longer contexts than were timed, as a share of output positions."""
    what = (
        f"lie behind contexts longer than the longest timed ({how_many(timed, 'token')}): the times"
        " of steps there are extrapolated"
    )
    return Beyond("", "output positions", share, what, _over("contexts", timed))


def of_prompts(share: float, timed: int) -> Beyond:
    """Longer prompts than were timed."""
    what = (
        f"are longer than the longest timed ({how_many(timed, 'token')}): the times of their"
        " prefills are extrapolated"
    )
    return Beyond("", "prompts", share, what, _over("", timed))


def of_passes(of: str, share: float, model: str, timed: int) -> Beyond:
    """Steps in which a model reads more tokens in a pass than was timed."""
    what = f"{more_tokens(model, timed)}: {EXTRAPOLATED}"
    return Beyond(of, "steps", share, what, _over(f"{model} passes", timed))


def of_batched(of: str, share: float, model: str, timed: int) -> Beyond:
    """Iterations in which a model reads more tokens of a request in a pass than was timed."""
    what = f"{more_tokens(model, timed, 'of a request in a pass')}: {EXTRAPOLATED}"
    return Beyond(of, "iterations", share, what, f"{_over(f'{model} passes', timed)} a request")


def of_batched_contexts(of: str, share: float, timed: int) -> Beyond:
    """Iterations behind longer contexts than were timed in batches as large."""
    what = (
        "contexts are longer than the longest timed in batches as large"
        f" ({how_many(timed, 'token')}): {EXTRAPOLATED}"
    )
    return Beyond(of, "iterations", share, what, f"{_over('contexts', timed)} in such batches")


def more_tokens(model: str, timed: int, where: str = "in a pass") -> str:
    """That a model reads more tokens than was timed."""
    return f"the {model} reads more tokens {where} than the most timed ({timed})"


def together(found: Iterable[Beyond]) -> list[str]:
    """What many policies have beyond what was timed: a line for each thing, the largest share."""
    return [
        f"in {share} ({most.of} the most) {most.what}"
        if several
        else f"in {share} of {most.of} {most.what}"
        if most.of
        else str(most)
        for share, most, several in _largest(found)
    ]


def in_short(found: Iterable[Beyond]) -> str:
    """The same in one sentence, for a caption; empty if there is nothing."""
    parts = [f"{share} ({most.over})" for share, most, _ in _largest(found)]
    said = f"times beyond those that were taken are extrapolated: {', '.join(parts)}"
    return said if parts else ""


def _largest(found: Iterable[Beyond]) -> list[tuple[str, Beyond, bool]]:
    """Of each thing that is beyond the largest share, whose it is, and whether others have some."""
    some: dict[tuple[str, str], list[Beyond]] = {}
    for one in found:
        some.setdefault((one.part, one.over), []).append(one)
    largest = []
    for each in some.values():
        most, several = max(each, key=lambda one: one.share), len(set(each)) > 1
        upto = "up to " if several and most.share >= 0.01 else ""  # not "up to under 1%"
        share = f"{upto}{share_text(most.share)} of {most.part}"
        largest.append((share, most, several))
    return largest


def _over(what: str, timed: int) -> str:
    return f"{what} over {how_many(timed, 'token')}".strip()


def share_text(share: float) -> str:
    """A share above 0, in words."""
    return "under 1%" if share < 0.01 else f"{share:.0%}"
