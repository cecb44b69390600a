"""AIPerf's `profile_export.jsonl` with acceptance by request, as a log of steps.

A line has `metadata`, `metrics`, and, where the server told of speculative decoding,
`spec_decode_acceptance` (ai-dynamo/aiperf, `SpecDecodeAcceptanceRecord`; it names its engine):
vLLM's counts with a sparse histogram, and `per_step_accepted` and `per_step_drafted` only where the
engine reports steps, as vLLM does at the level `detailed`. TensorRT-LLM gives a histogram alone.

Requests of the warm-up, those that failed, and those without a draft are left out and counted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from simkit.errors import ImporterError
from simkit.importers import jsonl, steps

_NAME = "spec_decode_acceptance"
_FIELDS = (*steps.FIELDS, "engine", "completion_tokens")


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
        raise ImporterError(
            f"{file}: no line has {_NAME}: the server must report acceptance (vLLM:"
            " --per-request-spec-decode-metrics detailed)"
        )
    return steps.imported(requests, file, drafts, steps.lines_left_out(left_out))


def _requests(file: str | Path, left_out: Counter[str]) -> Iterator[steps.Request]:
    for record in jsonl.read(file):
        metadata, found = record.get("metadata"), record.fields.get(_NAME)
        if not isinstance(metadata, dict):
            raise record.error("metadata must be an object")
        if metadata.get("benchmark_phase", "profiling") != "profiling":
            left_out["of the warm-up"] += 1
            continue
        if record.fields.get("error") is not None:
            left_out["the request failed"] += 1
            continue
        if found is None:
            left_out[f"no {_NAME}"] += 1
            continue
        drafted, accepted, ordered = steps.steps_of(record, found, _NAME, _FIELDS)
        values = record.fields.get("metrics")
        length = values.get("input_sequence_length") if isinstance(values, dict) else None
        name = metadata.get("x_request_id")
        yield steps.Request(
            name if isinstance(name, str) else None,
            steps.count(record, length, "value") or 0,
            drafted,
            accepted,
            ordered,
            steps.n_completion(record, found, _NAME),
        )
