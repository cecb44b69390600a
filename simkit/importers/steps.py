"""Logs of engines: what a request's steps drafted and accepted, as a log of steps.

Records of vLLM and AIPerf name the same counts alike; each is compared with the others, and all
with the laws of `simkit.importers.laws`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from simkit.errors import ImporterError
from simkit.importers import jsonl, laws, signs
from traces import reading
from traces.arrays import count_up
from traces.drafters.passes import Passes
from traces.manifest import SourceInfo
from traces.memory import from_steps
from traces.messages import how_many
from traces.trace import Trace

_ROOM = 64  # tokens of budget behind the longest output: no draft of up to so many is cut by it
_LONGEST = 4096  # tokens of a draft
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


class LoggedSteps(NamedTuple):
    """The steps of a request.

    Attributes:
        drafted: of each step.
        accepted: of each step.
        ordered: whether they stand in their order.
        totals: whether the sums alone are known, which are spread evenly.
    """

    drafted: list[int]
    accepted: list[int]
    ordered: bool
    totals: bool = False

    @property
    def n_emitted(self) -> int:
        """Tokens of the prefill and of all steps."""
        return 1 + sum(self.accepted) + len(self.accepted)


class LoggedRequest(NamedTuple):
    """One request of a log.

    Attributes:
        id: None if it has none.
        n_prompt: 0 if it is not known.
        steps: without what the last one emitted behind the output's end.
        n_completion: tokens of its output.
        finish_reason: "length" or "unknown".
        behind: tokens that its last step emitted behind the output's end.
    """

    id: str | None
    n_prompt: int
    steps: LoggedSteps
    n_completion: int
    finish_reason: str
    behind: int

    @property
    def n_output(self) -> int:
        """Tokens of its output, without those of steps that are not in the log."""
        return min(self.steps.n_emitted, self.n_completion)


class Imported(NamedTuple):
    """What a log gives.

    Attributes:
        trace: a log of steps, in memory; its `source` has the notes.
        notes: what a reader should know of it, one line each.
    """

    trace: Trace
    notes: list[str]


class LoggedDrafts(NamedTuple):
    """What a log does not say of its drafter; see `traces.manifest.Manifest`."""

    shared_path: bool = False
    passes: Passes = "token"


UNKNOWN = LoggedDrafts()


def request(
    record: jsonl.Record,
    name: str,
    steps: LoggedSteps,
    usage: tuple[int, int],
    finish_reason: str = "unknown",
    *,
    inside: str,
    uncounted: int | None = None,
) -> LoggedRequest:
    """A request whose output its steps can have emitted, without what lies behind its end.

    Args:
        record: for complaints; it may have an `id`.
        name: of the field that has it, empty where there is none.
        steps: as they were logged.
        usage: tokens of the prompt and of the output.
        finish_reason: "length" or "unknown".
        inside: the object that has the output's tokens.
        uncounted: see `laws.check_completion`.

    Raises:
        ImporterError: see there.
    """
    n_prompt, n = usage
    laws.check_completion(record, inside, n, steps.accepted, steps.ordered, uncounted)
    behind = max(0, steps.n_emitted - n)
    is_named = name and record.fields.get(name) is not None
    return LoggedRequest(
        record.text(name, numbers=True) if is_named else None,
        n_prompt,
        _within(steps, behind, finish_reason) if behind else steps,
        n,
        finish_reason,
        behind,
    )


def _within(steps: LoggedSteps, behind: int, finish_reason: str) -> LoggedSteps:
    """The steps without tokens behind the output's end, which are no part of it.

    The last step is then one whose draft ended with the output, as a replay's would: at an accepted
    EOS without a token of the target's, or a token before the budget's end. Where the order is not
    known, a step that accepted the most is taken for the last.
    """
    pairs = list(zip(steps.accepted, steps.drafted, strict=True))
    *before, last = pairs if steps.ordered else sorted(pairs)
    inside = last[0] + 1 - behind
    ending = inside - 1 if finish_reason == "length" else inside
    accepted, drafted = zip(*before, (ending, ending), strict=True)
    return steps._replace(drafted=list(drafted), accepted=list(accepted))


def imported(
    requests: Iterable[LoggedRequest],
    file: str | Path,
    drafts: LoggedDrafts,
    notes: Iterable[str] = (),
) -> Imported:
    """A log of steps from requests.

    Args:
        requests: one at least.
        file: that they come from.
        drafts: of its drafter.
        notes: what else is to be said.
    """
    every = list(requests)
    said = [*_notes(every), *notes]
    steps = [request.steps for request in every]
    counts = np.array([len(own.drafted) for own in steps])
    columns = {
        name: np.array([x for own in steps for x in getattr(own, name)], np.int32)
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
        SourceInfo(Path(file).name, reading.file_hash(file, ImporterError), notes=tuple(said)),
        room=_ROOM,
        shared_path=drafts.shared_path,
        unordered=not all(own.ordered for own in steps),
        totals=any(own.totals for own in steps),
        draft_passes=drafts.passes,
    )
    return Imported(trace, said)


def steps_of(
    record: jsonl.Record, name: str, fields: Any, known: Collection[str], unknown: set[str]
) -> LoggedSteps:
    """The steps of a record of acceptance.

    Where there are sums alone, the steps are known, but not their order, if all drafted as much.

    Args:
        record: for complaints.
        name: of the record's object.
        fields: that object.
        known: its fields that are read.
        unknown: takes in the others.

    Raises:
        ImporterError: a field is missing or wrong, or contradicts another.
    """
    inner, whole = counts_of(record, name, fields, known, unknown)
    histogram = _histogram(inner)
    ordered = fields.get("per_step_accepted") is not None
    if ordered:
        drafted, accepted = _per_step(inner)
    else:
        drafted, accepted = _from_sums(inner, whole, histogram)
    most = n_drafted_at_most(inner)
    if most is not None and max(drafted, default=0) > most:
        raise inner.error(f"per_step_drafted is above num_spec_tokens, {most}")
    found = {
        "num_spec_steps": len(drafted),
        "num_accepted_draft_tokens": sum(accepted),
        "num_draft_tokens": sum(drafted),
    }
    for field, value in found.items():
        if whole[field] != value:
            raise inner.error(f"{field} is {whole[field]}, but its steps come to {value}")
    if histogram != Counter(accepted):
        raise inner.error("acceptance_histogram contradicts per_step_accepted")
    dense = fields["acceptance_histogram"]
    if isinstance(dense, list) and most is not None and len(dense) != most + 1:
        said = f"has {how_many(len(dense), 'entry', 'entries')}, but num_spec_tokens is {most}"
        raise inner.error(f"acceptance_histogram {said}")
    check_means(inner, whole)
    return LoggedSteps(drafted, accepted, ordered)


def counts_of(
    record: jsonl.Record, name: str, fields: Any, known: Collection[str], unknown: set[str]
) -> tuple[jsonl.Record, dict[str, int]]:
    """The object of a record of acceptance, and its sums.

    Raises:
        ImporterError: see `steps_of`, whose arguments these are.
    """
    if not isinstance(fields, dict):
        raise record.error(f"{name} must be an object")
    inner = jsonl.Record(f"{record.where}: {name}", fields)
    unknown |= {field for field in fields if field not in known}
    whole = {
        field: inner.whole(field, [inner.get(field)], 0)[0]
        for field in ("num_spec_steps", "num_accepted_draft_tokens", "num_draft_tokens")
    }
    return inner, whole


def check_means(inner: jsonl.Record, whole: Mapping[str, int]) -> None:
    """Refuse a mean or a rate that the sums of a record contradict.

    Raises:
        ImporterError: as said.
    """
    steps, accepted, drafted = whole.values()
    means = (1 + accepted / steps,) if steps else (1.0, 0.0)
    laws.check_agrees(inner, "mean_acceptance_length", *means)
    laws.check_agrees(inner, "draft_acceptance_rate", accepted / drafted if drafted else 0.0)


def n_drafted_at_most(inner: jsonl.Record) -> int | None:
    """The configured length; None where there is none.

    Raises:
        ImporterError: it is no whole number.
    """
    given = inner.fields.get("num_spec_tokens")
    return None if given is None else inner.whole("num_spec_tokens", [given], 0, _LONGEST)[0]


def bodies(record: jsonl.Record) -> Iterator[jsonl.Record]:
    """The responses of a line: itself, or those that its `data` holds, as some clients write them.

    Raises:
        ImporterError: `data` holds something else.
    """
    data = record.fields.get("data")
    if data is None or record.fields.keys() & {"choices", "metrics", "meta_info", "usage"}:
        yield record
        return
    for k, body in enumerate(data if isinstance(data, list) else [data]):
        name = f"data[{k}]" if isinstance(data, list) else "data"
        if not isinstance(body, dict):
            raise record.error(f"{name} must be an object")
        yield jsonl.Record(f"{record.where}: {name}", body)


def lines_left_out(counted: Mapping[str, int]) -> list[str]:
    """What to say of lines that were left out, by the reason."""
    return [f"{how_many(n, 'line is', 'lines are')} left out: {why}" for why, n in counted.items()]


def left_alone(unknown: Collection[str]) -> list[str]:
    """What to say of fields that are not known."""
    many = len(unknown) > 1
    words = f"fields {', '.join(sorted(unknown))} are" if many else f"field {''.join(unknown)} is"
    return [f"the {words} not known: left alone"] if unknown else []


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
    inner: jsonl.Record, whole: dict[str, int], histogram: Mapping[int, int]
) -> tuple[list[int], list[int]]:
    most = n_drafted_at_most(inner)
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


def _notes(requests: list[LoggedRequest]) -> Iterator[str]:
    surplus = sum(max(0, own.n_completion - own.steps.n_emitted) for own in requests)
    if surplus:
        yield (
            f"{how_many(surplus, 'token')} came from steps without a draft, which the log does not"
            " count: left out"
        )
    yield from _behind([own for own in requests if own.behind], requests)
    if any(not own.n_prompt for own in requests):
        yield "the length of some prompts is not in the log: costs take it for 0"
    ids = [own.id for own in requests if own.id is not None]
    if twice := len(ids) - len(set(ids)):
        records = how_many(twice, "record has", "records have")
        yield f"{records} the id of an earlier one: each counts as a request"
    every = [own.steps for own in requests]
    if any(own.totals for own in every):
        yield (
            "the sums of each request alone are in the log: what a step accepted, and where drafts"
            " began, is not known"
        )
        return
    ordered = all(own.ordered for own in every)
    if not ordered:
        yield "the order of steps is not in the log: nothing is known of where drafts began"
    yield from signs.signs([o.drafted for o in every], [o.accepted for o in every], ordered)


def _behind(cut: list[LoggedRequest], requests: list[LoggedRequest]) -> Iterator[str]:
    """What to say of outputs that end inside their last draft."""
    if not cut:
        return
    ordered = all(own.steps.ordered for own in cut)
    taken = "; which was the last is not in the log: one that accepted the most is taken for it"
    outputs = how_many(len(cut), "output ends inside what its", "outputs end inside what their")
    tokens = how_many(sum(own.behind for own in cut), "token")
    yield f"{outputs} last step emitted: left out {tokens} behind{'' if ordered else taken}"
    stepped = [own for own in requests if own.steps.accepted]
    if all(own.behind == len(own.steps.accepted) > 1 for own in stepped):
        yield (
            "every output ends as many tokens before the end of its steps as it has steps: a log"
            " that counts the target's own token as accepted looks like that"
        )
