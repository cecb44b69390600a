"""llama.cpp: flags of `llama-server` and `llama-cli`.

Names change. From pull request 22397 (April 2026) on they are `--spec-draft-n-max`, `-n-min` and
`-p-min`; from 22964 (May 2026) on a draft model is `--spec-type draft-simple`. Build 11434 has
all of them, and `simkit.engines.run` runs it. Builds before have
`--draft-max`, `--draft-min` and `--draft-p-min`, of which the newer ones refuse the first two. The
default of p-min was 0.75 before and is 0 since (issue 26100), so it is always written.

The rule is `llamacpp`'s: stop before a token whose probability, renormalised over the ten
likeliest, is below p-min; drafts shorter than n-min are thrown away.
"""

from __future__ import annotations

from dataclasses import dataclass

from simkit.engines.base import (
    LOOKUPS,
    EngineError,
    EngineSetting,
    EngineWriter,
    Schema,
    Written,
    refuse_unknown,
    register,
    unnamed,
    whole,
)
from simkit.policies import LlamaCpp

OLDER = {  # before pull request 22397
    "spec_draft_model": "model_draft",
    "spec_draft_n_max": "draft_max",
    "spec_draft_n_min": "draft_min",
    "spec_draft_p_min": "draft_p_min",
}
_DRAFT = "DRAFT.gguf"


@dataclass(frozen=True)
class Flags(Schema):
    """The flags that are written.

    Raises:
        EngineError: llama.cpp would refuse a value.
    """

    spec_type: str | None = None
    spec_draft_model: str | None = None
    spec_draft_n_max: int | None = None
    spec_draft_n_min: int | None = None
    spec_draft_p_min: float | None = None
    spec_ngram_simple_size_n: int | None = None
    spec_ngram_simple_size_m: int | None = None
    spec_synth_rates: str | None = None

    def __post_init__(self) -> None:
        for name, least in (("spec_draft_n_max", 1), ("spec_draft_n_min", 0)):
            whole(f"llama.cpp: {name}", getattr(self, name), least)
        if self.spec_draft_p_min is not None and not 0 <= self.spec_draft_p_min <= 1:
            raise EngineError("llama.cpp: p-min must be in [0, 1]")


@register
class LlamaCppEngine(EngineWriter):
    """See the module."""

    name = "llama.cpp"
    version = "builds with pull request 22964 (May 2026)"
    source = "pull requests 22397, 22964; issue 26100; build 11434"
    policies = (LlamaCpp,)
    replaced = frozenset({"prompt_lookup", "ngram", "suffix", "parallel"})
    default = "llamacpp(version=2026)"
    takes = frozenset({"rates"})

    def write(self, plan: EngineSetting) -> Written:
        """See `EngineWriter`."""
        if plan.length < 1:
            raise EngineError("llama.cpp: no drafts at all: leave the flags out")
        kind, model, given = plan.drafter
        refuse_unknown(self.name, plan.drafter, ("model", "feature", "parallel", *LOOKUPS))
        if kind == "ngram_simple":
            return _ngram_simple(plan)
        if kind in ("prompt_lookup", "ngram", "suffix"):
            size = given.get("most", given.get("ngram", 2))
            flags = Flags(
                spec_type="ngram-simple",
                spec_ngram_simple_size_n=size,
                spec_ngram_simple_size_m=plan.length,
            )
            note = (
                "ngram-simple looks n-grams of one size up: drafts will differ from the trace's;"
                " attach the drafter ngram_simple, which is that rule"
            )
            return Written(flags.flags(), {}, [note])
        words = {"feature": "draft-eagle3", "parallel": "draft-dflash"}
        rule = plan.policy if isinstance(plan.policy, LlamaCpp) else None
        flags = Flags(
            spec_type=words.get(kind, "draft-simple"),
            spec_draft_model=model if model and model.endswith(".gguf") else _DRAFT,
            spec_draft_n_max=plan.length,
            spec_draft_n_min=rule.n_min if rule else 0,
            spec_draft_p_min=rule.p_min if rule else 0.0,
            spec_synth_rates=",".join(f"{rate:g}" for rate in plan.rates) or None,
        )
        notes = unnamed(plan, _DRAFT)
        if model and not model.endswith(".gguf"):
            notes.append(f"llama.cpp loads GGUF files alone: {model}, converted, is {_DRAFT} here")
        if kind == "feature":
            notes.append("draft-eagle3 is taken for a chain on the target's features: say which")
        if kind == "parallel":
            notes.append("llama.cpp's parallel drafter is draft-dflash: a PARD model is none")
        if rule and rule.keep:
            notes.append("llama.cpp drops the token below p-min; with keep=true the trace kept it")
        if plan.sampled:
            notes.append("llama.cpp drafts the likeliest token; the trace's draft was sampled")
        notes.append(f"builds before pull request 22397: {flags.flags(OLDER).strip()}")
        return Written(flags.flags(), {}, notes)


def _ngram_simple(plan: EngineSetting) -> Written:
    """Its own rule, of which the longest draft is a part."""
    n, m = plan.drafter.arguments.get("n", 12), plan.drafter.arguments.get("m", 48)
    if plan.length < m:
        raise EngineError(
            f"llama.cpp: ngram_simple(m={m}) drafts up to {m} tokens, not {plan.length}: attach it"
            f" with m={plan.length}"
        )
    flags = Flags("ngram-simple", spec_ngram_simple_size_n=n, spec_ngram_simple_size_m=m)
    return Written(flags.flags(), {}, [])
