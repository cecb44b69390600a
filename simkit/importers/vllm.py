"""vLLM's per-request acceptance metrics, as a log of steps.

A server that was started with `--per-request-spec-decode-metrics detailed` (vLLM pull request
48915, in 0.29.0 and not in 0.28.0) puts `metrics.speculative_decoding` into each response with one
choice, or into the last chunk of a stream with `stream_options.include_usage`: counts, a dense
histogram, and for each verification `per_step_accepted` and `per_step_drafted`. Drafts that a
grammar made invalid are taken off before. The level `summary` has no steps. A step without any
draft is not counted at all.

A record here is one such response or chunk, a line each.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from simkit.errors import ImporterError
from simkit.importers import jsonl, steps

_ASK = "start the server with --per-request-spec-decode-metrics detailed (vLLM 0.29.0 or later)"
_NAME = "metrics.speculative_decoding"


def load(file: str | Path, drafts: steps.Drafts = steps.UNKNOWN) -> steps.Imported:
    """A log of steps.

    Args:
        file: JSON lines.
        drafts: what the file does not say of its drafter.

    Raises:
        ImporterError: the file cannot be read, or a record has wrong fields or none of these.
    """
    left_out: Counter[str] = Counter()
    requests = list(_requests(file, left_out))
    if not requests:
        raise ImporterError(f"{file}: no line has {_NAME}: {_ASK}")
    return steps.imported(requests, file, drafts, steps.lines_left_out(left_out))


def _requests(file: str | Path, left_out: Counter[str]) -> Iterator[steps.Request]:
    for record in jsonl.read(file):
        choices = record.fields.get("choices")
        for choice in choices if isinstance(choices, list) else []:
            if isinstance(choice, dict) and "speculative_decoding_stats" in choice:
                raise record.error("speculative_decoding_stats is of no release: " + _ASK)
        metrics = record.fields.get("metrics")
        found = metrics.get("speculative_decoding") if isinstance(metrics, dict) else None
        if found is None:  # also of several choices, and where nothing was drafted
            left_out[f"no {_NAME}"] += 1
            continue
        drafted, accepted, ordered = steps.steps_of(record, found, _NAME)
        usage = record.fields.get("usage")
        yield steps.Request(
            record.text("id", numbers=True) if record.fields.get("id") is not None else None,
            steps.count(record, usage, "prompt_tokens") or 0,
            drafted,
            accepted,
            ordered,
            steps.n_completion(record, usage, "usage"),
            _finish_reason(record.fields.get("choices")),
        )


def _finish_reason(choices: Any) -> str:
    """Why the output ended: an EOS and a word to stop at look alike, a chunk may not say."""
    only = choices[0] if isinstance(choices, list) and len(choices) == 1 else None
    reason = only.get("finish_reason") if isinstance(only, dict) else None
    return "length" if reason == "length" else "unknown"
