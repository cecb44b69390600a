"""Tables of an engine's run: for a terminal, for a page, for a program."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

from simkit.engines.run.compared import Sums
from simkit.engines.run.counted import ArmCounts
from simkit.fidelity.engine import MEDIAN_BAR, WORST_BAR, EngineFidelity

COUNT_HEADS = (
    "policy",
    "tokens equal",
    "steps equal",
    "engine: steps / drafted / accepted",
    "replay",
)
SPEED_HEADS = ("policy", "predicted", "measured", "95% interval", "error", "tokens/s")


def count_row(count: ArmCounts) -> tuple[str, ...]:
    """A setting's counts."""
    n = len(count.requests)
    steps = f"{count.n_steps_equal}/{n}" if count.says_steps else "–"
    own = _sums(count.engine) if count.says_steps else "–"
    return count.name, f"{count.n_tokens_equal}/{n}", steps, own, _sums(count.replayed)


def speed_rows(found: EngineFidelity) -> list[tuple[str, ...]]:
    """Each setting's speeds."""
    return [
        (
            one.policy,
            f"{one.predicted:.3f}",
            f"{one.measured:.3f}",
            f"{one.low:.3f} – {one.high:.3f}",
            f"{one.error:+.1%}",
            f"{one.tokens_s:.1f}",
        )
        for one in found.speeds
    ]


def verdict(found: EngineFidelity) -> list[str]:
    """What it comes to, in lines."""
    n = len(found.differences)
    said = [f"{n - found.unexplained} of {n} differences are explained" if n else "no differences"]
    if found.speeds:
        median, worst = found.errors
        bars = f"bars {MEDIAN_BAR:.0%} and {WORST_BAR:.0%}"
        said.append(f"error of the speedup: median {median:.1%}, worst {worst:.1%} ({bars})")
        said.append(f"control: the first setting asked twice: {found.control:.3f} of its time")
    return said


def markdown(found: EngineFidelity, facts: Mapping[str, str]) -> str:
    """A page."""
    lines = [f"# {found.engine}", "", *(f"- {name}: {value}" for name, value in facts.items()), ""]
    lines += _table(COUNT_HEADS, [count_row(count) for count in found.counts])
    if found.speeds:
        lines += ["", *_table(SPEED_HEADS, speed_rows(found))]
    lines += ["", *(f"- {line}" for line in verdict(found))]
    lines += [
        f"- `{one.policy}`, prompt {one.prompt}, position {one.position}, {one.what}: {one.why}"
        for one in found.differences
    ]
    return "\n".join(lines) + "\n"


def as_json(found: EngineFidelity, facts: Mapping[str, str]) -> str:
    """The same for a program."""
    counts = [
        {
            "policy": count.name,
            "prompts": len(count.requests),
            "tokens_equal": count.n_tokens_equal,
            "steps_equal": count.n_steps_equal,
            "engine": count.engine._asdict(),
            "replay": count.replayed._asdict(),
        }
        for count in found.counts
    ]
    whole: dict[str, Any] = {
        "engine": found.engine,
        "facts": dict(facts),
        "counts": counts,
        "differences": [one._asdict() for one in found.differences],
        "speeds": [{**one._asdict(), "error": one.error} for one in found.speeds],
        "control": None if math.isnan(found.control) else found.control,
    }
    return json.dumps(whole, indent=1) + "\n"


def _sums(sums: Sums) -> str:
    return " / ".join("–" if value < 0 else f"{value:,}" for value in sums)


def _table(heads: tuple[str, ...], rows: list[tuple[str, ...]]) -> list[str]:
    rule = "|".join("---" for _ in heads)
    lines = [" | ".join((f"`{row[0]}`", *row[1:])) for row in rows]
    return [f"| {' | '.join(heads)} |", f"|{rule}|", *(f"| {line} |" for line in lines)]
