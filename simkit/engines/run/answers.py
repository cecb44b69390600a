"""What an engine said of one request, and what is asked of every engine that runs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import NamedTuple

from simkit.simulator import FirstToken


class EngineStep(NamedTuple):
    """One verification, as the engine reports it.

    Attributes:
        drafted: tokens that were verified; below 0 where the engine does not say.
        accepted: of them.
        emitted: output tokens that came out of it.
        seconds: from the end of the step before to the end of this one; NaN where the engine does
            not say.
        merged: it may be several steps, the first of which were not reported.
        target_s: seconds of the target's pass, within `seconds`; NaN where the engine does not say.
    """

    drafted: int
    accepted: int
    emitted: int
    seconds: float
    merged: bool = False
    target_s: float = float("nan")


class EngineAnswer(NamedTuple):
    """One request's answer.

    Attributes:
        tokens: output token ids, the EOS among them.
        steps: all of them; empty where the engine says nothing of steps.
        prefill_s: seconds of the prompt's pass; NaN where the engine does not say.
        seconds: from the request to its end, on the engine's clock where it has one.
        processor_s: CPU seconds of the engine's process meanwhile; NaN where it is not ours.
        ended: "eos" or "length".
        counted: tokens drafted and accepted as the engine sums them up; None: as its steps do.
        is_whole: whether all ids were streamed.
    """

    tokens: list[int]
    steps: list[EngineStep]
    prefill_s: float
    seconds: float
    processor_s: float
    ended: str
    counted: tuple[int, int] | None = None
    is_whole: bool = True


class Conventions(NamedTuple):
    """How an engine counts, where that is not as a replay does.

    Attributes:
        omits_last: its counters leave out the last step.
        drafts_past_eos: drafts go on behind a drafted EOS; where one is accepted that is not the
            draft's last token, it counts as the token that was sampled, not as accepted.
        says_steps: it reports steps at all.
        times_target: it says how long the target's pass of each step took.
        first_token: see `simkit.replay`.
    """

    omits_last: bool = False
    drafts_past_eos: bool = False
    says_steps: bool = True
    times_target: bool = False
    first_token: FirstToken = "prefill"


class RunningEngine(ABC):
    """An engine that is ready to be asked; a context manager, which ends it if it is ours.

    Attributes:
        conventions: how it counts.
    """

    conventions: Conventions = Conventions()

    @abstractmethod
    def ask(self, prompt: Sequence[int], max_new_tokens: int) -> EngineAnswer:
        """Decode greedily from a prompt.

        Args:
            prompt: token ids.
            max_new_tokens: T_max.

        Raises:
            EngineError: it refuses, says nothing in time, or has ended.
        """

    @abstractmethod
    def close(self) -> None:
        """End it, if it is ours; again is nothing."""

    def __enter__(self) -> RunningEngine:
        return self

    def __exit__(self, *failed: object) -> None:
        self.close()
