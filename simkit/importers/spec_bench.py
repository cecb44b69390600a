"""Results of Spec-Bench (arXiv:2401.07851): what can be had of live runs, without a trace.

A record holds `question_id`, `category` and `choices`, each with one number a turn in
`decoding_steps`, `new_tokens` and `wall_time` (seconds), and in `accept_lengths`, all turns end to
end, the tokens that each step emitted: its accepted tokens and the target's own. Where a step
started is known, but neither how much it drafted nor what another draft would have done, so no
policy can be replayed on it.

An answer has as many steps as lengths, and as many new tokens as they sum up to; but each method's
own code counts, and some count otherwise (in its repository's commit eace32d EAGLE's gives the
index of the last step, prompt lookup's the new tokens less one). Such answers are kept and counted.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from simkit.importers import jsonl

SCHEMA = pa.schema(
    {
        "category": pa.string(),  # null: all of them
        "questions": pa.int64(),
        "answers": pa.int64(),
        "repeated": pa.int64(),  # questions whose question_id an earlier line has
        "mismatches": pa.int64(),  # answers whose steps or new tokens accept_lengths contradicts
        "steps": pa.int64(),
        "new_tokens": pa.int64(),
        "wall_time_s": pa.float64(),
        "tokens_per_s": pa.float64(),
        "accepted_per_step": pa.float64(),
        "depth": pa.int64(),
        "reached": pa.int64(),  # steps that accepted depth - 1 tokens or more
        "accepted": pa.int64(),  # steps that accepted depth tokens or more
        "conditional": pa.float64(),  # accepted / reached
        "marginal": pa.float64(),  # accepted / steps
    }
)


@dataclass
class _Sums:
    """What is added up over the questions of a category."""

    questions: int = 0
    answers: int = 0
    repeated: int = 0
    mismatches: int = 0
    new_tokens: int = 0
    wall_time_s: float = 0.0
    emitted: list[int] = field(default_factory=list)


def read(file: str | Path) -> pa.Table:
    """Acceptance by depth, and live speeds, of each category and of all, as `SCHEMA`.

    The speeds of a category stand in each of its rows. `marginal` is P(a >= depth); `conditional`
    is P(a >= depth | a >= depth - 1): since lengths of drafts are not in the file, a draft that
    ended there counts as one whose next token was rejected.

    Raises:
        ImporterError: the file cannot be read, or a record has wrong fields.
    """
    whole, categories, ids = _Sums(), {}, set()
    for record in jsonl.read(file):
        category = record.text("category")
        question = json.dumps(record.get("question_id"))
        choices = record.get("choices")
        if not isinstance(choices, list) or not choices:
            raise record.error("choices must be a list of at least one object")
        for sums in (whole, categories.setdefault(category, _Sums())):
            sums.questions += 1
            sums.repeated += question in ids
        ids.add(question)
        for k, choice in enumerate(choices):
            name = f"choices[{k}]"
            inner = jsonl.Record(f"{record.where}: {name}", choice)
            steps, new_tokens, wall_time_s, emitted = _choice(inner)
            for sums in (whole, categories[category]):
                sums.answers += 1
                sums.mismatches += (steps, new_tokens) != (len(emitted), sum(emitted))
                sums.new_tokens += new_tokens
                sums.wall_time_s += wall_time_s
                sums.emitted += emitted
    groups = [(None, whole), *sorted(categories.items())]
    return pa.Table.from_pylist([row for group in groups for row in _rows(*group)], schema=SCHEMA)


def _choice(choice: jsonl.Record) -> tuple[int, int, float, list[int]]:
    """Steps, new tokens and seconds of all turns, as it says, and the tokens of each step."""
    turns = {
        name: choice.whole(name, choice.get(name), 0) for name in ("decoding_steps", "new_tokens")
    }
    times = choice.get("wall_time")
    if not isinstance(times, list) or not all(map(jsonl.is_seconds, times)):
        raise choice.error(
            f"wall_time must be a list of seconds above 0, up to {jsonl.LONGEST_S:g}"
        )
    if len({len(times), *map(len, turns.values())}) > 1:
        raise choice.error("decoding_steps, new_tokens and wall_time must have one entry a turn")
    emitted = choice.whole("accept_lengths", choice.get("accept_lengths"), 1, jsonl.LONGEST_DRAFT)
    steps, new_tokens = (sum(counts) for counts in turns.values())
    return steps, new_tokens, float(sum(times)), emitted


def _rows(category: str | None, sums: _Sums) -> Iterator[dict[str, Any]]:
    accepted = np.array(sums.emitted, np.int64) - 1
    steps = len(accepted)
    about = {
        "category": category,
        "questions": sums.questions,
        "answers": sums.answers,
        "repeated": sums.repeated,
        "mismatches": sums.mismatches,
        "steps": steps,
        "new_tokens": sums.new_tokens,
        "wall_time_s": sums.wall_time_s,
        "tokens_per_s": _ratio(sums.new_tokens, sums.wall_time_s),
        "accepted_per_step": _ratio(int(accepted.sum()), steps),
    }
    for depth in range(1, max(1, int(accepted.max(initial=0))) + 1):
        reached, passed = int((accepted >= depth - 1).sum()), int((accepted >= depth).sum())
        yield {
            **about,
            "depth": depth,
            "reached": reached,
            "accepted": passed,
            "conditional": _ratio(passed, reached),
            "marginal": _ratio(passed, steps),
        }


def _ratio(top: float, bottom: float) -> float | None:
    return top / bottom if bottom > 0 else None
