"""An engine's answers against the replay: tokens up to the first tie, then every step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from simkit.engines.run.answers import Conventions, EngineAnswer
from simkit.engines.run.recorded import RecordedRequest, ReplayedStep, as_counted
from simkit.simulator.arguments import FIRST

Explain = Callable[["Difference"], str]


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
    step, n = None, 0
    for k, own in enumerate(expected):
        if tie is not None and own[0] + own[1] > last:
            break
        theirs = seen[k] if k < len(seen) else (own[0], 0, -1)
        if not _same(own, theirs):
            step = Difference(request, own[0], replayed=replayed[k], seen=theirs[1:])
            break
        n += 1
    own = Sums(len(expected), sum(row[1] for row in expected), sum(row[2] for row in expected))
    theirs = Sums(len(seen), sum(row[1] for row in seen), sum(row[2] for row in seen))
    if answer.counted is not None:
        theirs = Sums(len(seen), *answer.counted)
    elif any(row[1] < 0 for row in seen):
        theirs = theirs._replace(drafted=-1)
    return Compared(request.sequence, tie, step, theirs, own, n)


def _same(own: tuple[int, int, int], theirs: tuple[int, int, int]) -> bool:
    """Whether a step is the replay's, as far as the engine says what it did."""
    return own == theirs or (theirs[1] < 0 and own[::2] == theirs[::2])


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
