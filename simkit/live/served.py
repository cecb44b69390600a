"""The log of a live server: iterations with their parts, and the steps of their requests."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa

from simkit.live.decoder import Decoded, Facts
from simkit.live.log import LiveRow
from traces import files, outputs, parquet


class ServedStep(NamedTuple):
    """What one request did in one iteration; `start` is 1-based, in its output."""

    request: int
    sequence: int
    start: int
    drafted: int
    proposed: int
    accepted: int
    emitted: int


class Iteration(NamedTuple):
    """One iteration of a server.

    Attributes:
        number: from 0.
        decoding: requests.
        prefilling: requests whose prompts were read.
        prefill_tokens: of their prompts.
        longest_prompt: of these, to which the others are padded.
        drafts_opened: requests whose prompts the draft model read.
        drafts_tokens: of these prompts.
        tokens_in: of each request in the verification, pads included; 0 without one.
        context: known tokens of the requests that decode, the mean.
        prefill_s: of the target.
        open_s: of the draft model's prompts.
        round_s: of each draft round.
        verify_s: of the verification.
        policy_s: of the controller and the statistics that it reads.
        seconds: of all; what no part explains is the loop's.
        steps: of the requests that decode.
    """

    number: int
    decoding: int
    prefilling: int
    prefill_tokens: int
    longest_prompt: int
    drafts_opened: int
    drafts_tokens: int
    tokens_in: int
    context: float
    prefill_s: float
    open_s: float
    round_s: list[float]
    verify_s: float
    policy_s: float
    seconds: float
    steps: list[ServedStep]

    @property
    def emitted(self) -> int:
        """Tokens that came out of steps."""
        return sum(step.emitted for step in self.steps)


def iterations_of(found: Decoded) -> list[Iteration]:
    """The iterations of a decoder, with their times."""
    spans: dict[int, list[LiveRow]] = defaultdict(list)
    for row in found.rows[:-1]:
        spans[row.step].append(row)
    return [_timed(facts, spans[facts.number]) for facts in found.iterations]


def _timed(facts: Facts, spans: list[LiveRow]) -> Iteration:
    def seconds(kind: str, component: str = "") -> list[float]:
        found = (row for row in spans if row.kind == kind)
        return [row.seconds for row in found if component in row.component]

    return Iteration(
        number=facts.number,
        decoding=len(facts.taken),
        prefilling=len(facts.read),
        prefill_tokens=sum(facts.read),
        longest_prompt=max(facts.read, default=0),
        drafts_opened=len(facts.opened),
        drafts_tokens=sum(facts.opened),
        tokens_in=facts.tokens_in,
        context=facts.context,
        prefill_s=sum(seconds("prefill", "target")),
        open_s=sum(seconds("prefill", "draft")),
        round_s=seconds("draft"),
        verify_s=sum(seconds("verify")),
        policy_s=sum(seconds("policy")),
        seconds=sum(seconds("step")),
        steps=[
            ServedStep(
                request=text.number,
                sequence=text.sequence,
                start=start,
                drafted=taken.drafted,
                proposed=taken.proposed,
                accepted=taken.accepted,
                emitted=len(taken.tokens),
            )
            for text, start, taken in facts.taken
        ],
    )


SCHEMA = pa.schema(
    [
        ("run", pa.int32()),  # which arm; one controller may be two arms
        ("round", pa.int32()),
        ("controller", pa.string()),
        ("concurrency", pa.int32()),  # requests in flight
        ("number", pa.int32()),  # of the iteration, from 0
        # prefill: of the target; open: the draft model's prompts; round: of drafting; verify;
        # policy: the controller; iteration: all that passed; step: what a request did in it
        ("kind", pa.string()),
        ("requests", pa.int32()),  # in the pass; of an iteration those that decode
        ("tokens_in", pa.int32()),  # of each of them, pads included
        ("tokens", pa.int32()),  # of all of them, without
        ("context", pa.float64()),  # known tokens of the requests that decode, the mean
        ("seconds", pa.float64()),
        *((name, pa.int32()) for name in ServedStep._fields),  # of a step
    ]
)


class ServedRun(NamedTuple):
    """An arm in one round.

    Attributes:
        run: number of the arm.
        round: see there.
        controller: its spec.
        concurrency: requests in flight.
        iterations: in order.
    """

    run: int
    round: int
    controller: str
    concurrency: int
    iterations: list[Iteration]


def table(runs: Sequence[ServedRun], facts: dict[str, str] | None = None) -> pa.Table:
    """The log of some runs, `SCHEMA`."""
    blank = {field.name: 0.0 if pa.types.is_floating(field.type) else 0 for field in SCHEMA}
    rows = []
    for run in runs:
        who = {name: getattr(run, name) for name in ("run", "round", "controller", "concurrency")}
        for row in run.iterations:
            rows += [{**blank, **who, "number": row.number, **span} for span in _spans(row)]
    return pa.Table.from_pylist(rows, schema=SCHEMA.with_metadata(facts or {}))


def _spans(row: Iteration) -> Iterator[dict]:
    """What differs of each row of an iteration's."""
    inside = {"requests": row.decoding, "context": row.context}
    if row.prefilling:
        counts = {"tokens_in": row.longest_prompt, "tokens": row.prefill_tokens}
        yield {"kind": "prefill", "requests": row.prefilling, "seconds": row.prefill_s, **counts}
    if row.drafts_opened:
        counts = {"requests": row.drafts_opened, "tokens": row.drafts_tokens}
        yield {"kind": "open", "seconds": row.open_s, **counts}
    for seconds in row.round_s:
        yield {"kind": "round", "seconds": seconds, "tokens_in": 1, **inside}
    if row.decoding:
        yield {"kind": "verify", "seconds": row.verify_s, "tokens_in": row.tokens_in, **inside}
        yield {"kind": "policy", "seconds": row.policy_s, **inside}
    for step in row.steps:
        yield {"kind": "step", **inside, **step._asdict()}
    yield {"kind": "iteration", "seconds": row.seconds, "tokens": row.emitted, **inside}


def write(file: Path, log: pa.Table) -> None:
    """Write a log.

    Raises:
        TraceError: the file cannot be written.
    """
    outputs.write_atomic(file, files.encode(parquet.sealed(log))[0])
