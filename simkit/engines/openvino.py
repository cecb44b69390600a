"""OpenVINO GenAI: fields of the generation config of a pipeline with a draft model, or lookups.

A pipeline is made with `draft_model(FOLDER)` or with `prompt_lookup=True`, and `generate` takes
these fields (`openvino_genai.GenerationConfig`, 2026.4.1). With greedy decoding the confidence
threshold does nothing unless `logprobs` is at least 1, and drafts under it have no cap. Where
nothing is given, the continuous batching backend drafts 5 tokens.
"""

from __future__ import annotations

from dataclasses import dataclass

from simkit.engines.base import (
    EngineError,
    EngineSetting,
    EngineWriter,
    Schema,
    Written,
    register,
    whole,
)
from simkit.policies import Confidence


@dataclass(frozen=True)
class GenerationConfig(Schema):
    """The fields that are written.

    Raises:
        EngineError: a value is out of range.
    """

    num_assistant_tokens: int | None = None
    assistant_confidence_threshold: float | None = None
    max_ngram_size: int | None = None
    logprobs: int | None = None

    def __post_init__(self) -> None:
        for name in ("num_assistant_tokens", "max_ngram_size"):
            whole(f"openvino: {name}", getattr(self, name), 1)
        threshold = self.assistant_confidence_threshold
        if threshold is not None and not 0 < threshold <= 1:
            raise EngineError("openvino: assistant_confidence_threshold must be in (0, 1]")


@register
class OpenVino(EngineWriter):
    """See the module."""

    name = "openvino"
    version = "GenAI 2026.4.1"
    source = "openvino_genai.GenerationConfig"
    policies = (Confidence,)
    default = "fixed(5)"

    def write(self, plan: EngineSetting) -> Written:
        """See `EngineWriter`."""
        if plan.length < 1:
            raise EngineError("openvino: no drafts at all: make the pipeline without a draft model")
        kind, model, given = plan.drafter
        if kind == "prompt_lookup":
            config = GenerationConfig(plan.length, max_ngram_size=given.get("ngram", 2))
            notes = ["for LLMPipeline(FOLDER, DEVICE, prompt_lookup=True)"]
        elif kind in ("model", ""):
            rule = plan.policy if isinstance(plan.policy, Confidence) else None
            config = GenerationConfig(plan.length)
            if rule:
                config = GenerationConfig(
                    assistant_confidence_threshold=float(rule.threshold), logprobs=1
                )
            named = model or "DRAFT"
            notes = [f"for LLMPipeline(FOLDER, DEVICE, draft_model=draft_model({named!r}, DEVICE))"]
            if rule:
                notes.append(
                    f"its drafts have no cap; the trace's rule has one of {rule.max_draft}"
                )
        else:
            raise EngineError(f"openvino: has no drafter like {kind}")
        if plan.sampled:
            notes.append("openvino drafts the likeliest token; the trace's draft was sampled")
        return Written(config.json(), {}, notes)
