"""How many prompts are enough, for what; and what is said where there are fewer."""

from __future__ import annotations

from collections.abc import Collection, Mapping

# From so many prompts on ...
FOR_INTERVAL = 12  # an interval covers what it says, see docs/statistics.md
FOR_VERDICT = 6  # a claim is judged by an interval; over fewer it misses the truth too often
FOR_AGREEMENT = 5  # equal arms of a run can be known to agree; with fewer their spread is not known


def few(n_prompts: int) -> str:
    """What to say of an interval over so many prompts; empty if there are enough, or none."""
    if n_prompts == 1:
        return "one prompt: no interval"
    if n_prompts == 2:  # resamples are of one prompt, of the other or of both
        return "2 prompts give no usable interval"
    if 0 < n_prompts < FOR_INTERVAL:
        return f"only {n_prompts} prompts: the interval may be too narrow"
    return ""


def few_among(n_prompts: Collection[int]) -> list[str]:
    """What to say of intervals over such numbers of prompts, each thing once."""
    said = dict.fromkeys(few(n) for n in sorted(n_prompts) if n < 3)
    weak = [n for n in n_prompts if 2 < n < FOR_INTERVAL]
    if weak and min(weak) < max(weak):
        said[f"only {min(weak)} to {max(weak)} prompts: intervals may be too narrow"] = None
    elif weak:
        said[few(weak[0])] = None
    return [line for line in said if line]


def few_below(n_prompts: Mapping[str | None, int]) -> list[str]:
    """What to say of them below a table: one line, or none if there are enough everywhere.

    Args:
        n_prompts: behind the intervals of each task; the key None stands for all prompts.
    """
    said: dict[str, list[str]] = {}
    for task, n in n_prompts.items():
        said.setdefault(few(n), []).extend([task] if task else [])
    said.pop("", None)
    lines = [f"{note} ({', '.join(tasks)})" if tasks else note for note, tasks in said.items()]
    return ["; ".join(lines)] if lines else []
