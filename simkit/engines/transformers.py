"""Hugging Face transformers: fields of the assistant's generation config.

`AssistedCandidateGenerator` reads `num_assistant_tokens`, `num_assistant_tokens_schedule` and
`assistant_confidence_threshold` of `assistant_model.generation_config` and of nothing else: given
to the target's `generate` they are ignored (`generation/candidate_generator.py`, transformers
5.23.0). Their defaults are 20, "constant" and 0.4; a threshold above 0 adapts by itself where
scikit-learn is installed. Prompt lookup is of the target's config: `prompt_lookup_num_tokens` and
`max_matching_ngram_size`.
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
from simkit.policies import Confidence, ConfidenceAdaptive, Heuristic


@dataclass(frozen=True)
class GenerationConfig(Schema):
    """The fields that are written.

    Raises:
        EngineError: a value is out of range.
    """

    num_assistant_tokens: int | None = None
    num_assistant_tokens_schedule: str | None = None
    assistant_confidence_threshold: float | None = None
    prompt_lookup_num_tokens: int | None = None
    max_matching_ngram_size: int | None = None

    def __post_init__(self) -> None:
        for name in ("num_assistant_tokens", "prompt_lookup_num_tokens", "max_matching_ngram_size"):
            whole(f"transformers: {name}", getattr(self, name), 1)
        threshold = self.assistant_confidence_threshold
        if threshold is not None and not 0 <= threshold <= 1:
            raise EngineError("transformers: assistant_confidence_threshold must be in [0, 1]")


@register
class Transformers(EngineWriter):
    """See the module."""

    name = "transformers"
    version = "5.23.0"
    source = "generation/candidate_generator.py, generation/configuration_utils.py"
    replaced = frozenset({"ngram"})
    policies = (Confidence, ConfidenceAdaptive, Heuristic)
    default = "confidence(threshold=0.4, max_draft=20)"

    def write(self, plan: EngineSetting) -> Written:
        """See `EngineWriter`."""
        if plan.length < 1:
            raise EngineError("transformers: no drafts at all: give generate no assistant")
        kind, _, given = plan.drafter
        if kind in ("prompt_lookup", "ngram"):
            config = GenerationConfig(
                prompt_lookup_num_tokens=plan.length,
                max_matching_ngram_size=given.get("ngram", given.get("most", 2)),
            )
            place = "these belong to the target's generation config: generate(**config)"
            return Written(config.json(), {}, [place])
        if kind not in ("model", ""):
            raise EngineError(f"transformers: has no drafter like {kind}")
        config, notes = _assistant(plan)
        return Written(config.json(), {}, notes)


def _assistant(plan: EngineSetting) -> tuple[GenerationConfig, list[str]]:
    policy = plan.policy
    notes = [
        "these belong to the assistant: assistant.generation_config.update(**config); given to"
        " generate they are ignored"
    ]
    length, schedule, threshold = plan.length, "constant", 0.0
    if isinstance(policy, Heuristic):
        length = policy.initial
        schedule = "heuristic" if policy.schedule == "heuristic" else "heuristic_transient"
        if policy.feedback == "nominal":
            notes.append("transformers 5 compares with the tokens really drafted, not with n")
        notes.append(f"the trace's rule has a ceiling of {policy.max_draft}, transformers has none")
    elif isinstance(policy, Confidence | ConfidenceAdaptive):
        threshold = float(policy.threshold)
        notes.append(
            "with scikit-learn the threshold adapts by itself (confidence_adaptive), without it it"
            " is fixed (confidence)"
        )
    return GenerationConfig(length, schedule, threshold), notes
