"""A real engine against the replay: every step, and the speed at several lengths."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from simkit.engines.run import explained
from simkit.engines.run.answers import EngineAnswer
from simkit.engines.run.arms import EngineArm
from simkit.engines.run.counted import ArmCounts
from simkit.engines.run.recorded import RecordedPart
from simkit.simulator import FirstToken, replay
from simkit.statistics.interval import ratio_interval

CONFIDENCE = 0.95
MEDIAN_BAR, WORST_BAR = 0.05, 0.10
"""Errors of predicted speedups, at most."""


class EngineSpeed(NamedTuple):
    """One setting on the clock.

    Attributes:
        policy: its spec.
        predicted: speedup over the target alone, by the cost of the engine's own passes.
        measured: by the medians over rounds, summed over prompts.
        low: end of the interval of `measured` over prompts.
        high: see `low`.
        tokens_s: output tokens a second.
    """

    policy: str
    predicted: float
    measured: float
    low: float
    high: float
    tokens_s: float

    @property
    def error(self) -> float:
        """Predicted over measured, less 1."""
        return self.predicted / self.measured - 1


class Explained(NamedTuple):
    """A difference in words.

    Attributes:
        policy: of the setting.
        prompt: its name.
        position: 1-based, of the token, or of the step's first one.
        what: "token" or "step".
        why: in words.
    """

    policy: str
    prompt: str
    position: int
    what: str
    why: str


@dataclass(frozen=True)
class EngineFidelity:
    """What an engine did, and what the replay said.

    Attributes:
        engine: its name.
        counts: of each setting.
        differences: all of them, in words.
        speeds: of each setting; empty where nothing was timed.
        control: seconds of the setting that was asked twice, the second time over the first; NaN
            where nothing was timed.
    """

    engine: str
    counts: list[ArmCounts]
    differences: list[Explained]
    speeds: list[EngineSpeed]
    control: float

    @property
    def errors(self) -> tuple[float, float]:
        """The median of absolute errors of the predicted speedups, and the worst."""
        found = np.abs([speed.error for speed in self.speeds])
        return float(np.median(found)), float(found.max())

    @property
    def unexplained(self) -> int:
        """Differences that nothing explains."""
        bad = (explained.UNEXPLAINED, "no tie")
        return sum(one.why.startswith(bad) for one in self.differences)

    @property
    def passes(self) -> bool:
        """Whether all differences are explained, and the errors are within the bars."""
        if self.unexplained:
            return False
        if not self.speeds:
            return True
        median, worst = self.errors
        return median <= MEDIAN_BAR and worst <= WORST_BAR


def differences(
    counts: Sequence[ArmCounts],
    arms: Sequence[EngineArm],
    models: tuple[explained.NextToken, explained.NextToken | None],
    eos: Sequence[int],
    bits: int = 0,
) -> list[Explained]:
    """Every difference, in words.

    Args:
        counts: of each setting.
        arms: the settings.
        models: the target and the draft, asked for the next token; no draft: lookups.
        eos: tokens that end outputs.
        bits: see `explained.of_step`.
    """
    found = []
    for arm, count in zip(arms, counts, strict=True):
        for one in count.requests:
            if one.tie is not None:
                why = explained.of_token(one.tie, models[0])
                name = one.tie.request.name
                found.append(Explained(arm.name, name, one.tie.position, "token", why))
            if one.step is not None:
                why = explained.of_step(one.step, models[1], arm.policy, eos, bits)
                name = one.step.request.name
                found.append(Explained(arm.name, name, one.step.position, "step", why))
    return found


def predictions(
    part: RecordedPart, arms: Sequence[EngineArm], first_token: FirstToken
) -> list[float]:
    """Speedups of the settings by the part's own timing samples.

    Args:
        part: with samples of the engine's passes.
        arms: the settings.
        first_token: see `simkit.replay`.
    """
    policies = [arm.policy for arm in arms]
    runs = replay(part.trace, policies, first_token=first_token, cost="measured(dips=true)").runs
    found = []
    for run in runs:
        assert run.seconds is not None
        found.append(float(run.seconds["baseline_s"].sum() / run.total_s.sum()))
    return found


def speeds(
    arms: Sequence[EngineArm],
    predicted: Sequence[float],
    alone: list[list[EngineAnswer]],
    answers: Sequence[list[list[EngineAnswer]]],
) -> list[EngineSpeed]:
    """Predicted and measured speedups.

    Args:
        arms: the settings.
        predicted: of each.
        alone: answers of the target alone, by prompt and round.
        answers: of each setting likewise.
    """
    baseline_s = medians(alone)
    found = []
    for arm, value, own in zip(arms, predicted, answers, strict=True):
        own_s = medians(own)
        low, high = ratio_interval(baseline_s, own_s, CONFIDENCE, 0)
        tokens = sum(len(some[0].tokens) for some in own)
        measured = float(baseline_s.sum() / own_s.sum())
        speed = tokens / float(own_s.sum())
        found.append(EngineSpeed(arm.name, value, measured, low, high, speed))
    return found


def medians(answers: list[list[EngineAnswer]]) -> np.ndarray:
    """Seconds of each prompt, the median over rounds, (P,)."""
    return np.array([np.median([one.seconds for one in some]) for some in answers])
