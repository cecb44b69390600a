"""From an estimate and what a claim predicts to a verdict: the one rule for all claims."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from analysis.stats import Estimate
from simkit.statistics.enough import FOR_VERDICT


class Verdict(StrEnum):
    """What a trace says of a claim."""

    HOLDS = "holds"
    FAILS = "does not hold"
    OPEN = "not distinguishable"
    NO_EXAMPLE = "no example here"
    THEOREM = "by construction"
    SETTING = "a setting, not judged"
    UNTESTED = "cannot be tested"


UNJUDGED = (Verdict.UNTESTED, Verdict.THEOREM, Verdict.SETTING)
# Of the verdicts on a claim's statistics the first of these that is among them decides.
DECISIVE = (Verdict.FAILS, Verdict.UNTESTED, Verdict.OPEN, Verdict.HOLDS)


@dataclass(frozen=True)
class Allowed:
    """Values that a claim allows its statistic; the ends are not among them."""

    lo: float = -math.inf
    hi: float = math.inf

    def __str__(self) -> str:
        if self.hi == math.inf:
            return f"> {self.lo:g}"
        return f"< {self.hi:g}" if self.lo == -math.inf else f"{self.lo:g} to {self.hi:g}"


ABOVE_1, BELOW_1 = Allowed(lo=1), Allowed(hi=1)
ABOVE_0, BELOW_0 = Allowed(lo=0), Allowed(hi=0)
MOST = Allowed(lo=0.5)  # more than half of something
STRONG = 0.5  # of a correlation that a paper calls strong, whichever paper and sign


def judge(found: Estimate, expected: Allowed) -> Verdict:
    """The verdict on one statistic.

    It holds if the interval lies inside the range, does not hold if it lies outside, and is not
    distinguishable if an end of the range lies in it. Without an interval, or with one over fewer
    than `FOR_VERDICT` prompts, nothing is tested.

    Args:
        found: with its interval over prompts.
        expected: what the claim predicts.
    """
    if found.lo is None or found.hi is None or found.n_prompts < FOR_VERDICT:
        return Verdict.UNTESTED
    if expected.lo < found.lo and found.hi < expected.hi:
        return Verdict.HOLDS
    if found.hi < expected.lo or expected.hi < found.lo:
        return Verdict.FAILS
    return Verdict.OPEN


def overall(verdicts: Iterable[Verdict]) -> Verdict:
    """The verdict on a claim that predicts several statistics, all of which must hold.

    One that does not hold refutes the claim, whatever the others say; one that cannot be tested
    leaves it untested; one that is not distinguishable leaves it so.
    """
    found = set(verdicts)
    return next((verdict for verdict in DECISIVE if verdict in found), Verdict.UNTESTED)


def against_print(found: Estimate, printed: tuple[float, float] | None) -> str:
    """Where the interval lies beside the paper's numbers: below, above, or as printed.

    Args:
        found: with its interval over prompts.
        printed: the least and the greatest that the paper prints; None if it prints none.

    Returns:
        Empty where there is nothing to compare.
    """
    if printed is None or found.lo is None or found.hi is None:
        return ""
    if found.hi < printed[0]:
        return "below"
    return "above" if found.lo > printed[1] else "as printed"
