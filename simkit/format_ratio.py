"""How numbers are written for people: times in three significant digits, ratios in three decimals.

A ratio of speeds is about 1, and two policies may differ by less than a hundredth of it.
"""

from __future__ import annotations

_WHOLE = 100  # from where the digits before the point are enough


def short(value: float | None) -> str:
    """Three significant digits; all digits before the point; nothing for a missing value."""
    if value is None or value != value:
        return ""
    return f"{value:.3g}" if abs(value) < _WHOLE else f"{value:,.0f}"


def ratio(value: float | None, low: float | None = None, high: float | None = None) -> str:
    """Three decimals, with the interval's ends in brackets if there are any."""
    if value is None or value != value:
        return ""
    if low is None or high is None or low != low:
        return f"{value:.3f}"
    return f"{value:.3f} [{low:.3f}, {high:.3f}]"
