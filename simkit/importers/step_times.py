"""Times that a log has of its steps, as the rows of live runs (`traces.schema.LIVE`)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa

from simkit.importers import jsonl
from traces import schema

if TYPE_CHECKING:
    from simkit.importers.steps import LoggedRequest

_SPEC = "logged"  # where a policy's spec stands in live runs


class StepTimes(NamedTuple):
    """Seconds of a request.

    Attributes:
        prefill_s: of the prompt's pass.
        steps_s: of each step, or of its target's pass where `is_pass`.
        is_pass: see there.
        drafts_s: of each draft pass, by step; empty: not known.
    """

    prefill_s: float
    steps_s: list[float]
    is_pass: bool = False
    drafts_s: list[list[float]] = []


def seconds(record: jsonl.Record, name: str, value: Any, unit_s: float) -> float:
    """A time in some unit, as seconds.

    Raises:
        ImporterError: it is no number from 0 on, or longer than any run.
    """
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or not 0 <= value <= jsonl.LONGEST_S / unit_s:  # a whole one may be beyond floats
        raise record.error(f"{name} must be a time from 0 on, not {value!r:.40}")
    return value * unit_s


def live(requests: Sequence[LoggedRequest]) -> pa.Table | None:
    """The rows of all requests; None where none has times."""
    if not any(request.times for request in requests):
        return None
    rows = [row for k, request in enumerate(requests) for row in _rows(k, request)]
    return pa.Table.from_pylist(rows, schema=schema.LIVE)


def _rows(sequence: int, request: LoggedRequest) -> Iterator[dict[str, Any]]:
    times = request.times
    if times is None:
        return
    common = {"run": 0, "round": 0, "policy": _SPEC, "sequence": sequence, "batch_size": 1}
    first = {"step": 0, "start": 1, "accepted": 0, "depth": 0, "context_len": 0}
    whole = {"kind": "prefill", "component": "target", "tokens_in": request.n_prompt}
    yield {**common, **first, **whole, "seconds": times.prefill_s}
    start = 2
    pairs = zip(request.steps.drafted, request.steps.accepted, strict=True)
    for k, (drafted, accepted) in enumerate(pairs):
        emitted = min(accepted + 1, request.n_output - start + 1)
        behind = request.n_prompt + start - 2  # tokens in the cache: without the last one's
        here = {**common, "step": k + 1, "start": start, "accepted": accepted}
        drafts_s = times.drafts_s[k] if times.drafts_s else []
        for depth, one_s in enumerate(drafts_s, start=1):
            yield here | {
                **{"kind": "draft", "component": "draft", "depth": depth, "tokens_in": 1},
                **{"context_len": behind + depth - 1, "seconds": one_s},
            }
        if times.is_pass:
            of_step = {"kind": "verify", "component": "target", "depth": 0}
            of_step |= {"tokens_in": max(drafted, len(drafts_s)) + 1, "context_len": behind}
        else:
            of_step = {"kind": "step", "component": "", "depth": drafted}
            of_step |= {"tokens_in": emitted, "context_len": 0}
        yield here | of_step | {"seconds": times.steps_s[k]}
        start += emitted
