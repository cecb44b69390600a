"""What kind of number a claim's statistic is, in a word or two, by how its definition begins."""

from __future__ import annotations

import re

RULES = (
    (r"^(Spearman|Pearson)'s", "correlation"),
    (r"^Slope", "slope"),
    (r"\bless\b", "difference"),
    (r"^Share", "share"),
    (r" - 1 over", "relative gain"),
    (r"^1 - .*÷", "skill score"),
    (r"÷ all seconds", "share of time"),
    (r"^Draft seconds ÷", "ratio of times"),
    (r"^(Seconds|Speed|Tokens a second)\b.*÷", "ratio of speeds"),
    (r"^(Draft|Target) passes.*÷", "ratio of passes"),
    (r"^Accepted tokens a step, and speed.*÷", "ratio of tokens a step, and of speeds"),
    (r"^(Accepted tokens a step|τ).*÷", "ratio of tokens a step"),
    (r"^Variance.*÷", "ratio of variances"),
    (r"^Brier score.*÷", "ratio of Brier scores"),
    (r"^Accepted ÷.*over|: P\(.*÷", "ratio of shares"),
    (r"gain.*÷", "ratio of gains"),
    (r"^Drafted tokens.*÷", "ratio of tokens"),
    (r"÷", "ratio"),
)
"""What is said of statistics whose first sentence is like this; the first rule that fits counts."""
OTHER = "number"


def measure(statistic: str) -> str:
    """What kind of number a statistic is; "number" where no rule fits.

    Args:
        statistic: its definition.
    """
    first = re.split(r"\. (?=[A-Z])", statistic)[0]
    return next((said for pattern, said in RULES if re.search(pattern, first)), OTHER)


def referred(statistic: str) -> str | None:
    """The claim whose statistic this one is, if its definition says no more than that."""
    found = re.match(r"As (\w+),", statistic)
    return found[1] if found else None
