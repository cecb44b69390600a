"""Logs of engines: what a request's steps drafted and accepted, as a log of steps.

Records of vLLM and AIPerf name the same counts alike; each is compared with the others, and all
with the laws of `simkit.importers.laws`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from simkit.errors import ImporterError
from simkit.importers import faults, jsonl, laws
from simkit.importers.acceptance import LoggedSteps
from simkit.importers.ledger import current
from simkit.importers.step_times import StepTimes, live
from traces import reading
from traces.arrays import count_up
from traces.drafters.passes import Passes
from traces.manifest import SourceInfo
from traces.memory import from_steps
from traces.messages import how_many
from traces.trace import Trace


class LoggedRequest(NamedTuple):
    """One request of a log.

    Attributes:
        id: None if it has none.
        n_prompt: 0 if it is not known.
        steps: without what the last one emitted behind the output's end.
        n_completion: tokens of its output.
        finish_reason: "length" or "unknown".
        behind: tokens that its last step emitted behind the output's end.
        times: of its steps, where the log has them.
    """

    id: str | None
    n_prompt: int
    steps: LoggedSteps
    n_completion: int
    finish_reason: str
    behind: int
    times: StepTimes | None = None

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


@dataclass
class Seen:
    """What the lines of a file say besides their steps.

    Attributes:
        left_out: how many lines were left out, by the reason.
        unknown: fields that are not known.
        marks: known faults that the importer has seen itself, see `faults.LoggedCounts`.
    """

    left_out: Counter[str] = field(default_factory=Counter)
    unknown: set[str] = field(default_factory=set)
    marks: dict[str, str] = field(default_factory=dict)

    def notes(self) -> Iterator[str]:
        """What to say of lines that were left out, and of fields."""
        for why, n in self.left_out.items():
            yield f"{how_many(n, 'line is', 'lines are')} left out: {why}"
        if self.unknown:
            words = "fields {} are" if len(self.unknown) > 1 else "field {} is"
            yield f"the {words.format(', '.join(sorted(self.unknown)))} not known: left alone"


def request(
    record: jsonl.Record,
    name: str,
    steps: LoggedSteps,
    usage: tuple[int, int],
    ended: Any = None,
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
        ended: why it ended, as the engine has it: "length", or what is not told apart.
        inside: the object that has the output's tokens.
        uncounted: see `laws.check_completion`.

    Raises:
        ImporterError: see there.
    """
    n_prompt, n = usage
    finish_reason = "length" if ended == "length" else "unknown"
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
    seen: Seen,
    none: str,
    notes: Iterable[str] = (),
) -> Imported:
    """A log of steps from requests.

    Args:
        requests: of the file.
        file: that they come from.
        drafts: of its drafter.
        seen: what its lines say besides.
        none: the complaint where there is no request.
        notes: what else is to be said.

    Raises:
        ImporterError: there is no request, or one is refused as it is read.
    """
    every = list(requests)
    if not every:
        raise ImporterError(f"{file}: {none}")
    said = [*_notes(every, seen.marks), *seen.notes(), *notes]
    steps = [request.steps for request in every]
    counts = np.array([len(own.drafted) for own in steps])
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
            "drafted": np.array([d for own in steps for d in own.drafted], np.int32),
            "accepted": np.array([a for own in steps for a in own.accepted], np.int32),
        },
        SourceInfo(Path(file).name, reading.file_hash(file, ImporterError), notes=tuple(said)),
        room=jsonl.ROOM,
        shared_path=drafts.shared_path,
        unordered=not all(own.ordered for own in steps),
        totals=any(own.totals for own in steps),
        draft_passes=drafts.passes,
        live=live(every),
    )
    return Imported(trace, said)


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
        yield record.inside(f"data[{k}]" if isinstance(data, list) else "data", body)


def choices(record: jsonl.Record) -> list[dict[str, Any]]:
    """The choices of a response, of which one that is no object has no fields."""
    found = record.fields.get("choices")
    every = found if isinstance(found, list) else []
    return [choice if isinstance(choice, dict) else {} for choice in every]


def _notes(requests: list[LoggedRequest], marks: Mapping[str, str]) -> Iterator[str]:
    every = [own.steps for own in requests]
    surplus = [max(0, own.n_completion - own.steps.n_emitted) for own in requests]
    if any(surplus):
        yield (
            f"{how_many(sum(surplus), 'token')} came from steps without a draft, which the log does"
            " not count: left out"
        )
    log = faults.LoggedCounts(
        [own.drafted for own in every],
        [own.accepted for own in every],
        [own.behind for own in requests],
        surplus,
        all(own.ordered for own in every),
        any(own.totals for own in every),
        marks,
    )
    if max(log.behind, default=0) == 1:  # an accepted EOS, behind which no token is the target's
        yield faults.behind(log)
    if any(not own.n_prompt for own in requests):
        yield "the length of some prompts is not in the log: costs take it for 0"
    ids = [own.id for own in requests if own.id is not None]
    if twice := len(ids) - len(set(ids)):
        records = how_many(twice, "record has", "records have")
        yield f"{records} the id of an earlier one: each counts as a request"
    if log.totals:
        yield (
            "the sums of each request alone are in the log: what a step accepted, and where drafts"
            " began, is not known"
        )
    elif not log.ordered:
        yield "the order of steps is not in the log: nothing is known of where drafts began"
    ledger = current()
    for fault, seen in faults.found(log):
        if ledger is not None:
            ledger.found.append((fault.name, seen))
        yield faults.note(fault, seen)
