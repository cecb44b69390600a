"""What a comparison comes to, in one sentence that its rows support."""

from __future__ import annotations

from typing import TYPE_CHECKING

from analysis.compare.measures import Measured
from analysis.compare.ranks import Ranked, Ranking

if TYPE_CHECKING:
    from analysis.compare.result import Pair

TARGET = "times the target alone"


def answer(pair: Pair) -> str:
    """The fastest policy on each side; without times, the first statistic that differs.

    Policies that were tuned count before those with the arguments given.
    """
    ranked = [one for one in pair.rankings if one.rows]
    return _of_policies(pair, ranked[-1]) if ranked else _of_acceptance(pair)


def _of_policies(pair: Pair, found: Ranking) -> str:
    one, other = pair.names
    first = max(found.rows, key=lambda row: _value(row.first.value))
    second = max(found.rows, key=lambda row: _value(row.second.value))
    speeds = f"{first.first.text('.3f')} {TARGET} on {one}{_unsure(first, 0)}"
    theirs = f"{second.second.text('.3f')} on {other}{_unsure(second, 1)}"
    if first is not second:
        return f"The fastest policy is {first.name} ({speeds}) or {second.name} ({theirs})."
    if len(found.rows) == 1:
        return f"{first.name} reaches {speeds} and {theirs}; the two {_apart(first)}."
    return (
        f"{first.name} is the fastest policy on both: {speeds}, {theirs}; the two {_apart(first)}."
    )


def _value(found: float | None) -> float:
    return float("-inf") if found is None else found


def _unsure(row: Ranked, side: int) -> str:
    """The ranks that resamples of prompts allow, where there are others than the first."""
    rank = row.ranks[side]
    return f" (rank {rank.lo} to {rank.hi})" if rank.hi is not None and rank.hi > 1 else ""


def _apart(row: Ranked) -> str:
    """Whether the speedups on both sides differ."""
    low, high = row.ratio.lo, row.ratio.hi
    if low is None or high is None:
        return "have no interval to compare by"
    return "differ" if low > 1 or high < 1 else "do not differ measurably"


def _of_acceptance(pair: Pair) -> str:
    one, other = pair.names
    differ = [m for m in pair.measures if _differs(m)]
    if not differ:
        return f"No statistic of {one} and {other} differs measurably."
    first = differ[0]
    way = "higher" if _value(first.difference.value) > 0 else "lower"
    by = first.difference.text(f"+{first.form}")
    return f"There are no times; {first.name} is {way} on {other} than on {one}, by {by}."


def _differs(one: Measured) -> bool:
    low, high = one.difference.lo, one.difference.hi
    return low is not None and high is not None and (low > 0 or high < 0)
