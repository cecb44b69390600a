"""Settings of an engine run on prompts of a trace, and counted against their replay."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from simkit.engines.run.answers import Conventions, EngineAnswer, RunningEngine
from simkit.engines.run.arms import EngineArm
from simkit.engines.run.compared import Compared, Sums, compare
from simkit.engines.run.recorded import RecordedPart, RecordedRequest
from simkit.policies import Fixed

Answers = list[tuple[RecordedRequest, EngineAnswer]]


@dataclass(frozen=True)
class ArmCounts:
    """How one setting did what a replay says.

    Attributes:
        name: the policy's spec.
        requests: one each.
        says_steps: whether the engine reports steps.
    """

    name: str
    requests: list[Compared]
    says_steps: bool = True

    @property
    def n_tokens_equal(self) -> int:
        """Prompts whose whole output is the trace's."""
        return sum(one.tie is None for one in self.requests)

    @property
    def n_steps_equal(self) -> int:
        """Prompts whose steps are all the replay's, as far as the outputs are equal."""
        return sum(one.step is None for one in self.requests)

    @property
    def engine(self) -> Sums:
        """Sums of the engine."""
        return _added(one.engine for one in self.requests)

    @property
    def replayed(self) -> Sums:
        """Sums of the replay."""
        return _added(one.replayed for one in self.requests)


class RanArm(NamedTuple):
    """One setting, with what came back."""

    arm: EngineArm
    answers: Answers


def _added(sums: Iterable[Sums]) -> Sums:
    columns = list(zip(*sums, strict=True))
    return Sums(*(-1 if min(column) < 0 else sum(column) for column in columns))


def asked(
    engine: RunningEngine, part: RecordedPart, on_answer: Callable[[], None] = lambda: None
) -> Answers:
    """Send every prompt once.

    Args:
        engine: that is ready.
        part: whose prompts.
        on_answer: called after each.

    Raises:
        EngineError: see `RunningEngine.ask`.
    """
    found = []
    for request in part.requests:
        found.append((request, engine.ask(request.prompt, part.max_new_tokens)))
        on_answer()
    return found


def counted(ran: RanArm, part: RecordedPart, conventions: Conventions) -> ArmCounts:
    """Compare a setting's answers with its replay.

    Args:
        ran: the setting and its answers.
        part: whose prompts were sent.
        conventions: how the engine counts.
    """
    replayed: Mapping[int, list] = part.steps(ran.arm.policy, conventions.first_token)
    policy = ran.arm.policy
    length = policy.length if isinstance(policy, Fixed) and not part.looks_up else None
    how = conventions, length, part.max_new_tokens
    found = [
        compare(request, answer, replayed[request.sequence], *how)
        for request, answer in ran.answers
    ]
    return ArmCounts(ran.arm.name, found, conventions.says_steps)
