"""Several settings of an engine in turns, prompt by prompt, so that a drift meets all of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack

from simkit.engines.run.answers import EngineAnswer
from simkit.engines.run.arms import EngineArm
from simkit.engines.run.host import EngineHost
from simkit.engines.run.recorded import RecordedPart

Rounds = list[list[list[EngineAnswer]]]
"""Answers by arm, prompt and round."""


def in_rounds(
    host: EngineHost,
    arms: Sequence[EngineArm],
    part: RecordedPart,
    rounds: int,
    on_answer: Callable[[], None] = lambda: None,
) -> Rounds:
    """Start an engine for each setting, and ask all of them every prompt in every round.

    Which one is first changes by one from prompt to prompt and from round to round. Before that
    each decodes a prompt that does not count.

    Args:
        host: the engine.
        arms: the settings; one that stands here twice is started once and asked twice.
        part: whose prompts.
        rounds: how often.
        on_answer: called after each answer.

    Raises:
        EngineError: see `RunningEngine`.
    """
    found: Rounds = [[[] for _ in part.requests] for _ in arms]
    with ExitStack() as stack:
        engines = {}
        for arm in arms:
            if arm.name not in engines:
                engines[arm.name] = stack.enter_context(host.start(arm))
                first = part.requests[0]
                engines[arm.name].ask(first.prompt, min(16, part.max_new_tokens))
        for turn in range(rounds):
            for p, request in enumerate(part.requests):
                for k in range(len(arms)):
                    which = (k + p + turn) % len(arms)
                    engine = engines[arms[which].name]
                    answer = engine.ask(request.prompt, part.max_new_tokens)
                    found[which][p].append(answer)
                    on_answer()
    return found
