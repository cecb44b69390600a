"""What served requests come to, in one sentence that its rows support."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING, Any

from simkit.format_ratio import ratio, short

if TYPE_CHECKING:
    from simkit.serving.result import Served

MEASURE = "steady_tokens_s"
_MOST = 3  # groups of loads that one sentence holds
_LOADS = {
    "concurrency": ("with {} in flight", "request"),
    "rate": ("at {} per second", "request"),
    "copies": ("in batches of {}", "copy"),
    "timestamps": ("under these arrivals", ""),
}
_MANY = {"request": "requests", "copy": "copies"}
_NOTHING = "none()"
_TIMES = "{}"  # where ratios will stand; the braces of a spec hold something


def answer(served: Served) -> str:
    """Which controller serves the most tokens under which load, and how many times the first one's.

    Neighbouring loads with the same outcome are said together, with the ratios at both ends. A
    controller is said to gain only if its interval lies above 1; without intervals, that is said.
    """
    by_load: dict[tuple[str, float], list[dict[str, Any]]] = {}
    for row in served.records():
        by_load.setdefault((row["load"], row["value"]), []).append(row)
    found = [_best(served, rows) for _, rows in sorted(by_load.items())]
    groups = [list(some) for _, some in groupby(found, key=lambda one: one[:2])]
    kept = groups if len(groups) <= _MOST else [groups[0], groups[-1]]
    said = "; ".join(_said(some) for some in kept)
    return f"{said[:1].upper()}{said[1:]}."


def _best(served: Served, rows: list[dict[str, Any]]) -> tuple[str, str, dict[str, Any]]:
    """The controller with the most tokens a second, what may be said of it, and its row."""
    first = rows[0]
    more = [row for row in rows[1:] if (row["steady_against_lo"] or 0) > 1]
    best = max(more or rows, key=lambda row: row[MEASURE])
    base = "no drafts" if first["controller"] == _NOTHING else first["controller"]
    if len(rows) == 1:
        return first["controller"], "", first
    low = best["steady_against_lo"]
    if best is first or (low is not None and low <= 1):
        return base, f"no controller serves measurably more tokens than {base}", best
    name = best["controller"]
    others = [row["controller"] for row in rows[1:] if row is not best]
    alike = [other for other in others if not served.surely_more(best, other, MEASURE)]
    said = f"{name} serves the most tokens"
    if low is not None and alike:
        said += f" (not measurably more than {' and '.join(alike)})"
    said += f", {_TIMES} times {base}" + ("" if low is not None else " (no interval)")
    return name, said, best


def _said(group: list[tuple[str, str, dict[str, Any]]]) -> str:
    """A clause about neighbouring loads with the same outcome."""
    rows = [row for _, _, row in group]
    name, outcome, row = group[0]
    ends = list(dict.fromkeys(f"{row['value']:g}" for row in (rows[0], rows[-1])))
    form, noun = _LOADS[row["load"]]
    where = form.format(f"{' to '.join(ends)} {noun if ends == ['1'] else _MANY.get(noun)}")
    if not outcome:
        rates = dict.fromkeys(short(one[MEASURE]) for one in (rows[0], rows[-1]))
        return f"{where} {name} serves {' to '.join(rates)} tokens per second"
    names = ("steady_against", "steady_against_lo", "steady_against_hi")
    ratios = dict.fromkeys(ratio(*(one[n] for n in names)) for one in (rows[0], rows[-1]))
    return f"{where} {outcome.replace(_TIMES, ' to '.join(ratios))}"
