"""TensorRT-LLM's acceptance by request: of its responses, and of its performance log.

**Responses.** A choice has `speculative_decoding` (pull request 19311, open in September 2026, of
the PyTorch backend): `num_spec_steps`, `total_accepted_draft_tokens`, `total_draft_tokens`,
`acceptance_rate`, `acceptance_histogram`, `num_spec_tokens` (null under a `draft_len_schedule`),
and beside it `avg_decoded_tokens_per_iter`. There is nothing by step.

**The performance log** (`perf_metrics-*.jsonl`, `tensorrt_llm/serve/perf_metrics.py`) has sums
alone: `perf_metrics.speculative_decoding` with `acceptance_rate`, `total_accepted_draft_tokens` and
`total_draft_tokens`, and the output's length is not in it.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from simkit.importers import acceptance, jsonl, laws, steps
from simkit.importers.ledger import each, hold

_NAME = "speculative_decoding"
_RENAMED = {
    "total_accepted_draft_tokens": "num_accepted_draft_tokens",
    "total_draft_tokens": "num_draft_tokens",
    "acceptance_rate": "draft_acceptance_rate",
}
_NO_END = (
    "the output's length is not in the log: outputs are taken to end with their last step, and the"
    " order of steps and what each accepted is not known"
)


def load(
    file: str | Path, draft_length: int | None = None, drafts: steps.LoggedDrafts = steps.UNKNOWN
) -> steps.Imported:
    """A log of steps.

    Args:
        file: JSON lines: responses, last chunks of streams, or the performance log.
        draft_length: tokens that every step drafted, K, where the file has sums alone.
        drafts: what the file does not say of its drafter.

    Raises:
        ImporterError: the file cannot be read, a record has wrong fields or none of these, or what
            its steps drafted is not known.
    """
    seen = steps.Seen()
    lines = jsonl.read(file, events=True)
    requests = list(each(lines, lambda line: _requests(line, draft_length, seen)))
    notes = [_NO_END] if any(request.steps.totals for request in requests) else []
    none = f"no line has {_NAME} of a choice or of perf_metrics"
    return steps.imported(requests, file, drafts, seen, none, notes)


def _requests(
    line: jsonl.Record, length: int | None, seen: steps.Seen
) -> Iterator[steps.LoggedRequest]:
    for record in steps.bodies(line):
        if (log := _of_log(record)) is not None:
            yield from _summed(record, log, length, seen)
            continue
        choices = steps.choices(record)
        own = [choice for choice in choices if choice.get(_NAME) is not None]
        if not own:
            seen.left_out[f"no {_NAME}"] += 1
            continue
        if len(choices) > 1:
            raise record.error(f"usage is of {len(choices)} choices: their tokens are one sum")
        yield _counted(record, own[0], seen)


def _counted(record: jsonl.Record, choice: dict[str, Any], seen: steps.Seen) -> steps.LoggedRequest:
    given = choice[_NAME]
    if not isinstance(given, dict):
        raise record.error(f"{_NAME} must be an object")
    fields = {_RENAMED.get(name, name): value for name, value in given.items()}
    mean = choice.get("avg_decoded_tokens_per_iter")
    if mean is None:  # what the counts give, where it is not said
        n, accepted = fields.get("num_spec_steps"), fields.get("num_accepted_draft_tokens")
        mean = 1.0
        if isinstance(n, int) and isinstance(accepted, int) and n > 0:
            mean += accepted / n
    fields["mean_acceptance_length"] = mean
    own = acceptance.steps_of(record, f"choices[0].{_NAME}", fields, seen.unknown)
    usage = laws.usage(record, record.fields.get("usage"), "usage")
    return steps.request(record, "id", own, usage, choice.get("finish_reason"), inside="usage")


def _of_log(record: jsonl.Record) -> dict[str, Any] | None:
    """The performance metrics of a line: of the only server, or of that which decodes."""
    decodes = record.fields.get("gen_perf_metrics")
    where = decodes if isinstance(decodes, dict) else record.fields
    found = where.get("perf_metrics")
    return found if isinstance(found, dict) else None


def _summed(
    record: jsonl.Record, log: dict[str, Any], length: int | None, seen: steps.Seen
) -> Iterator[steps.LoggedRequest]:
    given = log.get(_NAME)
    if given is None:  # TensorRT-LLM leaves it out where nothing was drafted
        seen.left_out[f"no {_NAME}"] += 1
        return
    inner = record.inside(f"perf_metrics.{_NAME}", given)
    accepted = inner.count("total_accepted_draft_tokens")
    drafted = inner.count("total_draft_tokens")
    laws.check_agrees(inner, "acceptance_rate", accepted / drafted if drafted else 0.0)
    if not length:
        raise inner.error("it has sums alone: give --draft-length K if every step drafted K tokens")
    n = drafted // length
    own = acceptance.evenly(inner, n, drafted, accepted, length)
    first, last = (laws.count(inner, log, name) for name in ("first_iter", "last_iter"))
    if first is not None and last is not None:
        said = f"its {n} steps do not fit into iterations {first} to {last}"
        hold(inner, "sums", n <= last - first + 1, said)
    yield steps.request(record, "request_id", own, (0, own.n_emitted), inside="perf_metrics")
