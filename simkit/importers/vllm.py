"""vLLM's per-request acceptance metrics, as a log of steps.

A server that was started with `--per-request-spec-decode-metrics detailed` (vLLM pull request
48915, in 0.29.0 and not in 0.28.0) puts `metrics.speculative_decoding` into each response with one
choice, or into the last chunk of a stream with `stream_options.include_usage`: counts, a dense
histogram, and for each verification `per_step_accepted` and `per_step_drafted`. Drafts that a
grammar made invalid are taken off before. The level `summary` has no steps. A step without any
draft is not counted at all.

A record here is one such response or chunk, a line each; a stream's lines may be as they were sent
(`data: {…}`), and an object may hold its response as `data`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from simkit.errors import ImporterError
from simkit.importers import jsonl, laws, steps

_ASK = "start the server with --per-request-spec-decode-metrics detailed (vLLM 0.29.0 or later)"
_NAME = "metrics.speculative_decoding"


def load(file: str | Path, drafts: steps.LoggedDrafts = steps.UNKNOWN) -> steps.Imported:
    """A log of steps.

    Args:
        file: JSON lines.
        drafts: what the file does not say of its drafter.

    Raises:
        ImporterError: the file cannot be read, or a record has wrong fields or none of these.
    """
    left_out: Counter[str] = Counter()
    unknown: set[str] = set()
    requests = list(_requests(file, left_out, unknown))
    if not requests:
        raise ImporterError(f"{file}: no line has {_NAME}: {_ASK}")
    notes = [*steps.lines_left_out(left_out), *steps.left_alone(unknown)]
    return steps.imported(requests, file, drafts, notes)


def _requests(
    file: str | Path, left_out: Counter[str], unknown: set[str]
) -> Iterator[steps.LoggedRequest]:
    bodies = (body for line in jsonl.read(file, events=True) for body in steps.bodies(line))
    for record in bodies:
        choices = record.fields.get("choices")
        for choice in choices if isinstance(choices, list) else []:
            if isinstance(choice, dict) and "speculative_decoding_stats" in choice:
                raise record.error("speculative_decoding_stats is of no release: " + _ASK)
        metrics = record.fields.get("metrics")
        found = metrics.get("speculative_decoding") if isinstance(metrics, dict) else None
        if found is None:  # vLLM has null for several choices, and where nothing was drafted
            left_out[f"no {_NAME}"] += 1
            continue
        if isinstance(choices, list) and len(choices) > 1:
            raise record.error(f"{_NAME} is of {len(choices)} choices: vLLM gives it for one only")
        own = steps.steps_of(record, _NAME, found, steps.FIELDS, unknown)
        usage = laws.usage(record, record.fields.get("usage"), "usage")
        yield steps.request(record, "id", own, usage, _finish_reason(choices), inside="usage")


def _finish_reason(choices: Any) -> str:
    """Why the output ended: an EOS and a word to stop at look alike, a chunk may not say."""
    only = choices[0] if isinstance(choices, list) and len(choices) == 1 else None
    reason = only.get("finish_reason") if isinstance(only, dict) else None
    return "length" if reason == "length" else "unknown"
