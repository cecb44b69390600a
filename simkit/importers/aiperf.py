"""AIPerf's `profile_export.jsonl` with acceptance by request, as a log of steps.

A line has `metadata`, `metrics`, and, where the server told of speculative decoding,
`spec_decode_acceptance` (ai-dynamo/aiperf, `SpecDecodeAcceptanceRecord`): vLLM's counts with a
sparse histogram, and `per_step_accepted` and `per_step_drafted` only where the engine reports
steps, as vLLM does at the level `detailed`. TensorRT-LLM gives a histogram alone.

AIPerf's own `metrics` of the request (`spec_decode_metrics.py`) repeat these counts.

Its `engine` says whose counts they are. llama.cpp's are sums alone: AIPerf takes the tokens that no
draft gave for steps, the prefill's among them, and spreads the accepted ones evenly over these, or
leaves the histogram out, as later versions do (`llamacpp_adapter.py`). Such a histogram is not
read.

Requests of the warm-up, those that failed, and those without a draft are left out and counted.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from simkit.errors import ImporterError
from simkit.importers import acceptance, jsonl, laws, steps
from simkit.importers.ledger import each, hold
from traces.messages import how_many

_NAME = "spec_decode_acceptance"
_FIELDS = (*acceptance.FIELDS, "engine", "completion_tokens")
_COUNTED = ("vllm", "tensorrt_llm")  # engines whose histograms count steps
_SUMMED = ("llamacpp", "llama_cpp", "llama.cpp")  # engines that report sums alone


def load(file: str | Path, drafts: steps.LoggedDrafts = steps.UNKNOWN) -> steps.Imported:
    """A log of steps.

    Args:
        file: JSON lines.
        drafts: what the file does not say of its drafter.

    Raises:
        ImporterError: the file cannot be read, or a record has wrong fields or none of these.
    """
    seen = _Seen()
    requests = list(each(jsonl.read(file), lambda record: _requests(record, seen)))
    if len(seen.engines) > 1:
        raise ImporterError(
            f"{file}: its lines are of several engines: {', '.join(sorted(seen.engines))}"
        )
    notes = [
        f"the engine {engine} is not known: its histograms are taken for counts"
        for engine in seen.engines - {*_COUNTED, *_SUMMED}  # one at most
    ]
    none = (
        f"no line has {_NAME}: the server must report acceptance (vLLM:"
        " --per-request-spec-decode-metrics detailed)"
    )
    return steps.imported(requests, file, drafts, seen, none, notes)


@dataclass
class _Seen(steps.Seen):
    """And whose counts the lines are."""

    engines: set[str] = field(default_factory=set)


def _requests(record: jsonl.Record, seen: _Seen) -> Iterator[steps.LoggedRequest]:
    metadata, found = record.get("metadata"), record.fields.get(_NAME)
    if not isinstance(metadata, dict):
        raise record.error("metadata must be an object")
    if metadata.get("benchmark_phase", "profiling") != "profiling":
        seen.left_out["of the warm-up"] += 1
        return
    if record.fields.get("error") is not None:
        seen.left_out["the request failed"] += 1
        return
    if found is None:
        seen.left_out[f"no {_NAME}"] += 1
        return
    inner = jsonl.Record(f"{record.where}: {_NAME}", found if isinstance(found, dict) else {})
    _, n_completion = laws.usage(record, found, _NAME)
    engine = inner.text("engine")
    seen.engines.add(engine)
    if engine in _SUMMED and inner.fields.get("per_step_accepted") is None:
        own = _spread(record, found, n_completion, seen)
    else:
        own = acceptance.steps_of(record, _NAME, found, seen.unknown, _FIELDS)
    values = record.fields.get("metrics")
    _check_metrics(record, found, values)
    length = values.get("input_sequence_length") if isinstance(values, dict) else None
    n_prompt = laws.count(record, length, "value") or 0
    request = steps.request(record, "", own, (n_prompt, n_completion), inside=_NAME)
    name = metadata.get("x_request_id")
    yield request._replace(id=name if isinstance(name, str) else None)


def _check_metrics(record: jsonl.Record, found: dict, values: object) -> None:
    """Refuse metrics of the request that are not what its record gives.

    Raises:
        ImporterError: as said.
    """
    taken, accepted, drafted = (
        found[name] for name in ("num_spec_steps", "num_accepted_draft_tokens", "num_draft_tokens")
    )
    verified = drafted + taken
    expected = {
        "spec_decode_acceptance_length": 1 + accepted / taken if taken else 1.0,
        "spec_decode_draft_acceptance_rate": 100 * accepted / drafted if drafted else 0.0,
        "spec_decode_accepted_per_verified": (accepted + taken) / verified if verified else 0.0,
        "spec_decode_steps": taken,
        "spec_decode_accepted_draft_tokens": accepted,
        "spec_decode_draft_tokens": drafted,
    }
    for name, value in expected.items():
        own = values.get(name) if isinstance(values, dict) else None
        if isinstance(own, dict) and own.get("value") is not None:
            laws.check_agrees(record.inside(f"metrics.{name}", own), "value", value)


def _spread(
    record: jsonl.Record, found: object, n_completion: int, seen: _Seen
) -> acceptance.LoggedSteps:
    """The steps behind sums, where all of them drafted as much: how many, and what they sum to.

    Raises:
        ImporterError: they did not, or it is not known.
    """
    inner, whole = acceptance.counts_of(record, _NAME, found, seen.unknown, _FIELDS)
    n, accepted, drafted = whole.values()
    said = (
        f"num_spec_steps is {n}, but {how_many(n_completion - accepted, 'token')} came from no"
        " draft: AIPerf takes these for llama.cpp's steps"
    )
    hold(inner, "output", n == n_completion - accepted, said)
    if inner.fields.get("acceptance_histogram") is not None:
        seen.marks["even_spread"] = "llama.cpp gives no histogram, but its lines have one"
    n -= 1  # the prefill's
    length = acceptance.n_drafted_at_most(inner)
    if length is None or drafted != n * length or accepted > drafted:
        raise inner.error(
            "llama.cpp reports sums alone, over which AIPerf spreads its histogram evenly, and not"
            " all steps drafted num_spec_tokens: what each of them accepted is not known"
        )
    acceptance.check_means(inner, whole)
    if not n:
        return acceptance.LoggedSteps([], [], False, totals=True)
    return acceptance.evenly(inner, n, drafted, accepted, length)
