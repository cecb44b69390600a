"""What a sweep or a tuning comes to, in one sentence that its rows support."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from simkit.format_ratio import ratio
from traces.messages import how_many

if TYPE_CHECKING:
    from simkit.sweeps.grid import Sweep
    from simkit.sweeps.tuning import Choice

TARGET = "the target alone"


def of_sweep(found: Sweep) -> str:
    """The fastest setting, of each task if rows are by task."""
    if not found.timed or not found.best()["speedup"].is_not_null().any():
        return "There are no times, so no setting is the fastest: give a cost."
    rows = [row for row in found.best().to_dicts() if row["speedup"] is not None]
    said = ", ".join(_fastest(row) for row in rows)
    n = len(found.policies)
    if n == 1:
        return f"The only setting is {said}."
    end = "; they were compared on the same prompts, simkit tune judges settings on others"
    return f"The fastest of {how_many(n, 'setting')} is {said}{end}."


def _fastest(row: dict[str, Any]) -> str:
    low, high = row["speedup_lo"], row["speedup_hi"]
    task = f" on {row['task']}" if row.get("task") else ""
    said = f"{ratio(row['speedup'], low, high)} times as fast as {TARGET}"
    unsure = low is not None and high is not None and low <= 1 <= high
    return f"{row['policy']}{task} ({said}{', not measurably different' if unsure else ''})"


def of_tuned(choices: list[Choice], reference: str) -> str:
    """The fastest family on held-out prompts, and whether it differs from the reference.

    Args:
        choices: one for each family and task, without the union of all families.
        reference: spec of the family that others are compared with.
    """
    tasks = list(dict.fromkeys(choice.task for choice in choices))
    groups = [[c for c in choices if c.task == task] for task in tasks]
    return f"On held-out prompts {'; '.join(_of_group(some, reference) for some in groups)}."


def _of_group(some: list[Choice], reference: str) -> str:
    base = next(c for c in some if c.spec == reference)
    task = base.task
    best = max((c for c in some if c is not base), key=lambda c: c.speedup, default=base)
    on = f"of {task} " if task else ""
    end = f"{ratio(best.speedup, best.speedup_lo, best.speedup_hi)} times as fast as {TARGET}"
    if best.chosen == base.chosen:
        return f"{on}{base.chosen} is {end}, and no family chose a faster setting"
    against = ratio(best.against, best.against_lo, best.against_hi)
    verdict = f"{_verdict(best)} {base.chosen} ({against} times its speed)"
    return f"{on}{best.chosen} {verdict} and is {end}"


def _verdict(choice: Choice) -> str:
    """How a family compares with the tuned reference, by its interval."""
    if math.isnan(choice.against_lo):
        return "is compared, without an interval, with"
    if choice.against_lo > 1:
        return "is faster than"
    return "is slower than" if choice.against_hi < 1 else "does not differ measurably from"
