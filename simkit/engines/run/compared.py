"""An engine's answers against the replay: tokens up to the first tie, then every step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from simkit.engines.run.answers import Conventions, EngineAnswer
from simkit.engines.run.recorded import RecordedRequest, ReplayedStep, as_counted
from simkit.simulator.arguments import FIRST


class Difference(NamedTuple):
    """Where an answer is not the trace's for the first time.

    Attributes:
        request: whose answer it is.
        position: of the first token of the step, or of the token, 1-based.
        token: the engine's where the outputs differ; None where a step does.
        replayed: the step of the replay; None where a token differs.
        seen: the engine's, (drafted, accepted); likewise.
    """

    request: RecordedRequest
    position: int
    token: int | None = None
    replayed: ReplayedStep | None = None
    seen: tuple[int, int] | None = None


class Sums(NamedTuple):
    """Steps, and tokens drafted and accepted in them; below 0 where they are not known."""

    steps: int
    drafted: int
    accepted: int


class Compared(NamedTuple):
    """One request.

    Attributes:
        sequence: its number in the trace.
        tie: where the outputs part; None: they are equal.
        step: where the steps part before that; None: they are equal as far as the outputs are.
        engine: sums of the engine's steps.
        replayed: of the replay's, as the engine counts.
        steps_compared: that lie before the outputs part.
    """

    sequence: int
    tie: Difference | None
    step: Difference | None
    engine: Sums
    replayed: Sums
    steps_compared: int


def compare(
    request: RecordedRequest,
    answer: EngineAnswer,
    replayed: Sequence[ReplayedStep],
    conventions: Conventions,
    length: int | None = None,
    budget: int = 0,
) -> Compared:
    """Compare an answer with the replay of its prompt.

    Args:
        request: that was asked.
        answer: of the engine.
        replayed: the steps of the policy on that prompt.
        conventions: how the engine counts.
        length: see `as_counted`.
        budget: see `as_counted`.
    """
    tie = _tie(request, answer)
    last = len(request.output) if tie is None else tie.position - 1  # token that is still equal
    expected = as_counted(replayed, conventions, length, budget)
    seen = _located(answer, FIRST[conventions.first_token])
    if conventions.omits_last:
        expected, seen = expected[:-1], seen[:-1]
    merged = [
        start + one.emitted if one.merged else 0
        for (start, _, _), one in zip(seen, answer.steps, strict=False)
    ]
    step, n, at = None, 0, 0
    while n < len(expected):
        own = expected[n]
        if tie is not None and own[0] + own[1] > last:
            break
        theirs = seen[at] if at < len(seen) else (own[0], 0, -1)
        width = _width(expected[n:], theirs, merged[at] if at < len(seen) else 0)
        if not width:
            step = Difference(request, own[0], replayed=replayed[n], seen=theirs[1:])
            break
        n, at = n + width, at + 1
    own = Sums(len(expected), sum(row[1] for row in expected), sum(row[2] for row in expected))
    theirs = Sums(len(seen), sum(row[1] for row in seen), sum(row[2] for row in seen))
    if answer.counted is not None:
        theirs = Sums(len(seen), *answer.counted)
    elif any(row[1] < 0 for row in seen):
        theirs = theirs._replace(drafted=-1)
    return Compared(request.sequence, tie, step, theirs, own, n)


def _width(
    expected: Sequence[tuple[int, int, int]], theirs: tuple[int, int, int], behind: int
) -> int:
    """How many of the replay's next steps an engine's step is; 0 if it is another one.

    Args:
        expected: the replay's, from that one on.
        theirs: the engine's.
        behind: position behind it where it may be several steps; 0: it is one.
    """
    own = expected[0]
    several = [row for row in expected if row[0] < behind]
    if len(several) > 1:
        sums = own[0], sum(row[1] for row in several), sum(row[2] for row in several)
        return len(several) if sums == theirs else 0
    return int(own == theirs or (theirs[1] < 0 and own[::2] == theirs[::2]))


def _tie(request: RecordedRequest, answer: EngineAnswer) -> Difference | None:
    """Where the outputs part, if they do."""
    for k, (ours, theirs) in enumerate(zip(request.output, answer.tokens, strict=False)):
        if ours != theirs:
            return Difference(request, k + 1, token=theirs)
    short = min(len(request.output), len(answer.tokens))
    if len(request.output) == len(answer.tokens):
        return None
    more = answer.tokens[short] if len(answer.tokens) > short else None
    return Difference(request, short + 1, token=more)


def _located(answer: EngineAnswer, start: int) -> list[tuple[int, int, int]]:
    """Start, drafted and accepted tokens of the engine's steps."""
    found = []
    for step in answer.steps:
        found.append((start, step.drafted, step.accepted))
        start += step.emitted
    return found
