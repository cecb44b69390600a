"""Logs of engines: what a request's steps drafted and accepted, as a log of steps.

Records of vLLM and AIPerf name the same counts alike; each is held against the others.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from simkit.importers import jsonl
from traces.arrays import count_up
from traces.drafters.passes import Passes
from traces.manifest import SourceInfo
from traces.memory import from_steps
from traces.trace import Trace

_ROOM = 64  # tokens of budget behind the longest output: no draft of up to so many is cut by it
_LONGEST = 4096  # tokens of a draft
_MOST_PROMPT = 2**24  # tokens
FIELDS = (
    "mean_acceptance_length",
    "draft_acceptance_rate",
    "acceptance_histogram",
    "num_spec_steps",
    "num_accepted_draft_tokens",
    "num_draft_tokens",
    "num_spec_tokens",
    "per_step_accepted",
    "per_step_drafted",
)


class Request(NamedTuple):
    """One request of a log.

    Attributes:
        id: None if it has none.
        n_prompt: 0 if it is not known.
        drafted: of each step.
        accepted: of each step.
        ordered: whether the steps stand in their order.
        n_completion: tokens of its output.
        finish_reason: "length" or "unknown".
    """

    id: str | None
    n_prompt: int
    drafted: list[int]
    accepted: list[int]
    ordered: bool
    n_completion: int
    finish_reason: str = "unknown"

    @property
    def n_emitted(self) -> int:
        """Tokens of the prefill and of all steps."""
        return 1 + sum(self.accepted) + len(self.accepted)

    @property
    def n_output(self) -> int:
        """Tokens up to the end of its output, without those of steps that are not in the log."""
        last = self.accepted[-1] + 1 if self.accepted and self.ordered else 1
        return min(self.n_emitted, max(self.n_completion, self.n_emitted - last + 1))


class Imported(NamedTuple):
    """What a log gives.

    Attributes:
        trace: a log of steps, in memory.
        notes: what a reader should know of it, one line each.
    """

    trace: Trace
    notes: list[str]


class Drafts(NamedTuple):
    """What a log does not say of its drafter; see `traces.manifest.Manifest`."""

    shared_path: bool = False
    passes: Passes = "token"


UNKNOWN = Drafts()


def imported(
    requests: Iterable[Request], file: str | Path, drafts: Drafts, notes: Iterable[str] = ()
) -> Imported:
    """A log of steps from requests.

    Args:
        requests: one at least.
        file: that they come from.
        drafts: of its drafter.
        notes: what else is to be said.
    """
    every = list(requests)
    counts = np.array([len(request.drafted) for request in every])
    columns = {
        name: np.array([x for request in every for x in getattr(request, name)], np.int32)
        for name in ("drafted", "accepted")
    }
    trace = from_steps(
        {
            "id": [request.id for request in every],
            "n_prompt": [request.n_prompt for request in every],
            "n_output": [request.n_output for request in every],
            "finish_reason": [request.finish_reason for request in every],
        },
        {
            "sequence": np.repeat(np.arange(len(every)), counts).astype(np.int32),
            "step": count_up(counts).astype(np.int32),
            **columns,
        },
        SourceInfo(Path(file).name, jsonl.file_hash(file)),
        room=_ROOM,
        shared_path=drafts.shared_path,
        unordered=not all(request.ordered for request in every),
        draft_passes=drafts.passes,
    )
    return Imported(trace, [*_notes(every), *notes])


def steps_of(record: jsonl.Record, fields: Any, name: str, known: Collection[str] = FIELDS) -> Any:
    """The steps of a record of acceptance: what each drafted and accepted, and whether in order.

    Where there are sums alone, the steps are known, but not their order, if all drafted as much.

    Args:
        record: for complaints.
        fields: the record's object.
        name: of that object.
        known: its fields.

    Returns:
        drafted and accepted, a list each, and whether they stand in their order.

    Raises:
        ImporterError: a field is missing, unknown or wrong, or contradicts another.
    """
    if not isinstance(fields, dict):
        raise record.error(f"{name} must be an object")
    inner = jsonl.Record(f"{record.where}: {name}", fields)
    for field in fields:
        if field not in known:
            raise inner.error(f"unknown field {field}: a log of another version")
    whole = {
        field: inner.whole(field, [inner.get(field)], 0)[0]
        for field in ("num_spec_steps", "num_accepted_draft_tokens", "num_draft_tokens")
    }
    for field in ("mean_acceptance_length", "draft_acceptance_rate"):
        check_number(inner, field)
    histogram = _histogram(inner)
    ordered = fields.get("per_step_accepted") is not None
    if ordered:
        drafted, accepted = _per_step(inner)
    else:
        drafted, accepted = _from_sums(inner, whole, histogram)
    if fields.get("num_spec_tokens") is not None:
        most = inner.whole("num_spec_tokens", [fields["num_spec_tokens"]], 0, _LONGEST)[0]
        if max(drafted, default=0) > most:
            raise inner.error(f"per_step_drafted is above num_spec_tokens, {most}")
    found = {
        "num_spec_steps": len(drafted),
        "num_accepted_draft_tokens": sum(accepted),
        "num_draft_tokens": sum(drafted),
    }
    for field, value in found.items():
        if whole[field] != value:
            raise inner.error(f"{field} is {whole[field]}, but its steps come to {value}")
    if histogram != {a: accepted.count(a) for a in set(accepted)}:
        raise inner.error("acceptance_histogram contradicts per_step_accepted")
    return drafted, accepted, ordered


def lines_left_out(counted: Mapping[str, int]) -> list[str]:
    """What to say of lines that were left out, by the reason."""
    return [f"{n:,} lines are left out: {why}" for why, n in counted.items()]


def check_number(record: jsonl.Record, name: str) -> None:
    """Refuse a field that is no number, or not finite.

    Raises:
        ImporterError: as said, or it is missing.
    """
    value = record.get(name)
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not (number and math.isfinite(value)):
        raise record.error(f"{name} must be a finite number, not {value!r}")


def count(record: jsonl.Record, where: Any, name: str, most: int = _MOST_PROMPT) -> int | None:
    """A whole number of tokens in an object that may lack it; None then.

    Raises:
        ImporterError: it is there, and is none.
    """
    if not isinstance(where, dict) or where.get(name) is None:
        return None
    return record.whole(name, [where[name]], 0, most)[0]


def n_completion(record: jsonl.Record, where: Any, inside: str) -> int:
    """Tokens of the output.

    Raises:
        ImporterError: they are missing, or no whole number.
    """
    found = count(record, where, "completion_tokens")
    if found is None:
        raise record.error(f"{inside}.completion_tokens is missing: where the output ends")
    return found


def _per_step(inner: jsonl.Record) -> tuple[list[int], list[int]]:
    accepted, drafted = (
        inner.whole(name, inner.get(name), 0, _LONGEST)
        for name in ("per_step_accepted", "per_step_drafted")
    )
    if len(accepted) != len(drafted):
        raise inner.error("per_step_accepted and per_step_drafted differ in length")
    for k, (a, d) in enumerate(zip(accepted, drafted, strict=True)):
        if a > d:
            raise inner.error(f"per_step_accepted[{k}] is {a}, but {d} were drafted")
    return drafted, accepted


def _from_sums(
    inner: jsonl.Record, whole: dict[str, int], histogram: dict[int, int]
) -> tuple[list[int], list[int]]:
    most = inner.fields.get("num_spec_tokens")
    if most is None or whole["num_draft_tokens"] != whole["num_spec_steps"] * most:
        raise inner.error(
            "it has no per_step_accepted (vLLM's level detailed has), and not all steps drafted as"
            " much: what each of them drafted is not known"
        )
    accepted = [a for a, steps in sorted(histogram.items()) for _ in range(steps)]
    if max(accepted, default=0) > most:
        raise inner.error(f"acceptance_histogram goes beyond num_spec_tokens, {most}")
    return [most] * len(accepted), accepted


def _histogram(inner: jsonl.Record) -> dict[int, int]:
    """Steps by what they accepted: of a dense list, or of an object with whole numbers as keys."""
    given, name = inner.get("acceptance_histogram"), "acceptance_histogram"
    if isinstance(given, dict):
        if not all(key.isdecimal() and int(key) <= _LONGEST for key in given):
            raise inner.error(f"the keys of {name} must be whole numbers up to {_LONGEST}")
        counts = inner.whole(name, list(given.values()), 0)
        pairs = zip(map(int, given), counts, strict=True)
    else:
        pairs = enumerate(inner.whole(name, given, 0))
    return {a: steps for a, steps in pairs if steps}


def _notes(requests: list[Request]) -> list[str]:
    notes = []
    surplus = sum(max(0, request.n_completion - request.n_emitted) for request in requests)
    if surplus:
        notes.append(
            f"{surplus:,} tokens came from steps without a draft, which the log does not count:"
            " they are left out"
        )
    early = sum(request.n_completion < request.n_output for request in requests if request.ordered)
    if early:
        notes.append(
            f"{early:,} outputs end before their last step began, in words at which they were cut:"
            " they count as ending in its first token"
        )
    if any(not request.n_prompt for request in requests):
        notes.append("the length of some prompts is not in the log: costs take it for 0")
    if not all(request.ordered for request in requests):
        notes.append("the order of steps is not in the log: nothing is known of where drafts began")
    return notes
