"""Settings as they are run: each policy as `simkit export` writes it for the engine."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from typing import NamedTuple

from simkit.engines.base import ENGINES, EngineDrafter, EngineError, EngineSetting
from simkit.engines.export import Exported, export
from simkit.policies import (
    Autoregressive,
    Confidence,
    ConfidenceAdaptive,
    Fixed,
    Policy,
    parse,
)
from traces.trace import Trace


class EngineArm(NamedTuple):
    """One setting.

    Attributes:
        policy: as it is replayed.
        written: the engine's configuration; None: no speculation.
    """

    policy: Policy
    written: Exported | None

    @property
    def name(self) -> str:
        """The policy's spec."""
        return str(self.policy)

    @property
    def length(self) -> int:
        """Tokens of its longest draft."""
        if self.written is None:
            return 0
        params = getattr(self.policy, "params", None)
        return int(getattr(self.policy, "length", getattr(params, "max_draft", 0)))


ALONE = EngineArm(Autoregressive(), None)


def arms_of(trace: Trace, engine: str, specs: Sequence[str], draft: str | None) -> list[EngineArm]:
    """The settings, none of which is replaced by another.

    Args:
        trace: that they were found on.
        engine: its name.
        specs: of policies.
        draft: what the engine loads as the draft model; None: there is none.

    Raises:
        EngineError: the engine has no such rule, so it would run another.
        PolicyError: a spec cannot be read.
    """
    if not specs:
        raise EngineError("there is no policy to run: give --policy")
    made, writer = [], ENGINES[engine]()
    for policy in dict.fromkeys(map(parse, specs)):
        if isinstance(policy, Autoregressive) or getattr(policy, "length", None) == 0:
            made.append(ALONE)
            continue
        if not isinstance(policy, Fixed) and not writer.runs(policy):
            raise EngineError(
                f"{engine} cannot run {policy}: give fixed(K), or one of the engine's own rules"
            )
        _check_adapts(engine, policy)
        made.append(EngineArm(policy, export(trace, engine, policy, draft=draft)))
    return made


def _check_adapts(engine: str, policy: Policy) -> None:
    """Refuse a threshold of transformers' that it would run as another rule.

    Raises:
        EngineError: thresholds adapt where scikit-learn is installed, and nowhere else.
    """
    if engine != "transformers" or not isinstance(policy, Confidence | ConfidenceAdaptive):
        return
    adapts = find_spec("sklearn") is not None
    if adapts != isinstance(policy, ConfidenceAdaptive):
        state, rule = ("", "confidence_adaptive") if adapts else ("not ", "confidence")
        raise EngineError(f"scikit-learn is {state}installed: transformers would run {rule}(…)")


def lookup_arms(engine: str, lengths: Sequence[int]) -> list[EngineArm]:
    """Settings that look the last token up and draft what followed it, without a draft model.

    Their passes are timed; what they draft is not compared with a replay.
    """
    writer, kinds = ENGINES[engine](), {"llama.cpp": "ngram_simple"}
    made = []
    for m in lengths:
        kind = kinds.get(engine, "prompt_lookup")
        drafter = EngineDrafter(kind, None, {"n": 1, "m": m, "ngram": 1})
        text = writer.write(EngineSetting(m, drafter)).text
        made.append(EngineArm(Fixed(m, max_draft=m), Exported(text, {}, [], [])))
    return made
