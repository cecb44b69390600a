"""What advice hangs on: the price of a draft pass, how many tokens are accepted, and loops."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from analysis.advise.candidates import NONE, Field, Setting
from analysis.speeds import speedup
from analysis.stats import Estimate
from analysis.study import MissingError
from simkit.statistics.enough import FOR_VERDICT
from traces.loops import MUCH

FAR = 20  # times the price of a draft pass, beyond which nobody asks


class Piece(NamedTuple):
    """Prices of draft passes at which one setting is the fastest.

    Attributes:
        setting: of all that were tried.
        low: from so many times the price that passes have now ...
        high: ... up to so many; infinite for the last one.
    """

    setting: Setting
    low: float
    high: float


def pieces(found: Field) -> list[Piece]:
    """The fastest setting at every price of drafting, from free on.

    With drafts at f times their price a setting takes total_s + (f - 1) draft_s: the fastest ones
    are the lower envelope of these lines. Settings of one family on one drafter that follow each
    other are one piece, which is named by the setting that is best nearest to today's price.
    """
    free_s, slope = found.total_s - found.draft_s, found.draft_s
    now = int(np.lexsort((slope, free_s))[0])
    price, made = 0.0, list[Piece]()
    while True:
        flatter = slope < slope[now]
        if not flatter.any():
            return _joined([*made, Piece(found.settings[now], price, math.inf)])
        with np.errstate(divide="ignore", invalid="ignore"):
            meets = (free_s - free_s[now]) / (slope[now] - slope)
        meets[~flatter] = math.inf
        following = int(np.lexsort((slope, meets))[0])
        high = max(price, float(meets[following]))
        if high > price:
            made.append(Piece(found.settings[now], price, high))
        price, now = high, following


def _joined(some: list[Piece]) -> list[Piece]:
    """Pieces of one family and drafter as one."""
    made: list[Piece] = []
    for one in some:
        before = made[-1] if made else None
        if before is None or before.setting[:2] != one.setting[:2]:
            made.append(one)
            continue
        nearest = before if before.high > 1 else one
        made[-1] = Piece(nearest.setting, before.low, one.high)
    return made


def today(some: Sequence[Piece]) -> int:
    """Which piece today's price lies in."""
    return next(k for k, one in enumerate(some) if one.low <= 1 < one.high)


class BreakEven(NamedTuple):
    """How many tokens a step has to emit.

    Attributes:
        now: tokens a step, a + 1.
        least: below that many the target alone is faster, if a step takes as long as now.
    """

    now: float
    least: float


def break_even(found: Field, setting: Setting) -> BreakEven | None:
    """Where drafting stops to pay; None where nothing is drafted, or prefills take all the time."""
    if setting.family == NONE:
        return None
    one = found.replay(setting)
    tokens = float(one.counts["tokens"].sum() / one.counts["steps"].sum())
    once_s = one.seconds["prefill_s"].sum()  # paid whatever a step emits
    left_s = float(found.baseline_s.sum() - once_s)
    if left_s <= 0:
        return None
    return BreakEven(tokens, tokens * float(one.total_s.sum() - once_s) / left_s)


def without_loops(found: Field, setting: Setting) -> Estimate | None:
    """The advised setting's speedup where no output repeats itself (`traces.loops`).

    None where little repeats, where too few outputs are left, or where nothing is drafted.
    """
    at = found.replays[setting.drafter]
    try:
        rows, offsets = at.study.loops.rows, at.trace.position_offsets
    except MissingError:
        return None
    looped = np.diff(np.concatenate([[0], np.cumsum(rows)])[offsets])
    some = looped < MUCH * np.maximum(np.diff(offsets), 1)
    if setting.family == NONE or looped.sum() < MUCH * offsets[-1] or some.sum() < FOR_VERDICT:
        return None
    return speedup(found.replay(setting), some)


def cost_ratio(found: Field, drafter: str) -> float | None:
    """The cost ratio c of a drafter; None where its drafts take no time."""
    try:
        return found.replays[drafter].cost_ratio()
    except MissingError:
        return None


def alike(found: Field, setting: Setting, some: Sequence[Piece]) -> tuple[str, ...]:
    """Drafters with one cost ratio, the first one first: the cost does not tell them apart.

    The first is the advised drafter, or else the first that would be advised if draft passes took
    less time, down to 1 / `FAR` of today's. Empty where no other drafter has its cost ratio.
    """
    cheaper = [one.setting for one in reversed(some[: today(some)]) if one.high >= 1 / FAR]
    for first in dict.fromkeys(one.drafter for one in (setting, *cheaper) if one.family != NONE):
        mine = cost_ratio(found, first)
        others = [one for one in found.replays if one != first and cost_ratio(found, one) == mine]
        if mine is not None and others:
            return first, *others
    return ()


def by_task(found: Field, setting: Setting, tasks: dict[str, np.ndarray]) -> dict[str, Estimate]:
    """The setting's speedup over the target alone on each task, in the trace's order."""
    one = found.replay(setting)
    return {name: speedup(one, some) for name, some in tasks.items()}
