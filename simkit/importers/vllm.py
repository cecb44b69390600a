"""vLLM's per-request acceptance metrics, as a log of steps.

A server that was started with `--per-request-spec-decode-metrics detailed` (vLLM pull request
48915, in 0.29.0 and not in 0.28.0) puts `metrics.speculative_decoding` into each response with one
choice, or into the last chunk of a stream with `stream_options.include_usage`: counts, a dense
histogram, and for each verification `per_step_accepted` and `per_step_drafted`. Drafts that a
grammar made invalid are taken off before. The level `summary` has no steps. A step without any
draft is not counted at all.

A record here is one such response or chunk, a line each; a stream's lines may be as they were sent
(`data: {…}`), and an object may hold its response as `data`. Offline a line is an output with
`spec_decode_metrics`, the engine's own counts (`num_spec_tokens`, `histogram`, `num_draft_tokens`,
`per_step_accepted`, `per_step_drafted`) or those of the server, and `token_ids`.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from simkit.importers import acceptance, jsonl, laws, steps
from simkit.importers.ledger import each

_ASK = "start the server with --per-request-spec-decode-metrics detailed (vLLM 0.29.0 or later)"
_NAME = "metrics.speculative_decoding"
_OFFLINE = "spec_decode_metrics"


def load(file: str | Path, drafts: steps.LoggedDrafts = steps.UNKNOWN) -> steps.Imported:
    """A log of steps.

    Args:
        file: JSON lines.
        drafts: what the file does not say of its drafter.

    Raises:
        ImporterError: the file cannot be read, or a record has wrong fields or none of these.
    """
    seen = steps.Seen()
    requests = each(jsonl.read(file, events=True), lambda line: _requests(line, seen))
    return steps.imported(requests, file, drafts, seen, f"no line has {_NAME}: {_ASK}")


def _requests(line: jsonl.Record, seen: steps.Seen) -> Iterator[steps.LoggedRequest]:
    for record in steps.bodies(line):
        choices = steps.choices(record)
        if any("speculative_decoding_stats" in choice for choice in choices):
            raise record.error("speculative_decoding_stats is of no release: " + _ASK)
        if (offline := _offline(record)) is not None:
            yield from _of_output(record, *offline, seen)
            continue
        metrics = record.fields.get("metrics")
        found = metrics.get("speculative_decoding") if isinstance(metrics, dict) else None
        if found is None:  # vLLM has null for several choices, and where nothing was drafted
            seen.left_out[f"no {_NAME}"] += 1
            continue
        if len(choices) > 1:
            raise record.error(f"{_NAME} is of {len(choices)} choices: vLLM gives it for one only")
        own = acceptance.steps_of(record, _NAME, found, seen.unknown)
        usage = laws.usage(record, record.fields.get("usage"), "usage")
        ended = choices[0].get("finish_reason") if choices else None  # a chunk may not say
        yield steps.request(record, "id", own, usage, ended, inside="usage")


def _offline(record: jsonl.Record) -> tuple[Any, dict[str, Any]] | None:
    """`spec_decode_metrics` of an offline output, and the object with its tokens."""
    outputs = record.fields.get("outputs")
    only = outputs[0] if isinstance(outputs, list) and len(outputs) == 1 else None
    for where in (only, record.fields):
        if isinstance(where, dict) and "spec_decode_metrics" in where:
            tokens = only if isinstance(only, dict) and "token_ids" in only else where
            return where["spec_decode_metrics"], tokens
    return None


def _of_output(
    record: jsonl.Record, found: Any, output: dict[str, Any], seen: steps.Seen
) -> Iterator[steps.LoggedRequest]:
    if found is None:
        seen.left_out[f"no {_OFFLINE}"] += 1
        return
    inner = jsonl.Record(f"{record.where}: {_OFFLINE}", found if isinstance(found, dict) else {})
    if "histogram" in inner.fields:
        found = _filled(inner)
        if not found["num_spec_steps"]:
            seen.left_out["no step was verified"] += 1
            return
    own = acceptance.steps_of(record, _OFFLINE, found, seen.unknown)
    tokens = record.whole("token_ids", output.get("token_ids"), 0)
    prompt = record.fields.get("prompt_token_ids")
    n_prompt = len(record.whole("prompt_token_ids", prompt, 0)) if prompt is not None else 0
    usage, ended = (n_prompt, len(tokens)), output.get("finish_reason")
    yield steps.request(record, "request_id", own, usage, ended, inside="token_ids")


def _filled(inner: jsonl.Record) -> dict[str, Any]:
    """The engine's own counts with what the server works out from them."""
    counts = inner.whole("histogram", inner.get("histogram"), 0)
    n, accepted = sum(counts), sum(a * m for a, m in enumerate(counts))
    drafted = inner.count("num_draft_tokens")
    rest = {k: v for k, v in inner.fields.items() if k != "histogram" and v not in (None, [])}
    return rest | {
        "acceptance_histogram": counts,
        "num_spec_steps": n,
        "num_accepted_draft_tokens": accepted,
        "mean_acceptance_length": 1 + accepted / n if n else 1.0,
        "draft_acceptance_rate": accepted / drafted if drafted else 0.0,
    }
