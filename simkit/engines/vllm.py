"""vLLM: the JSON of `--speculative-config`.

Fields and their ranges are those of the class `SpeculativeConfig` in
`vllm/config/speculative.py` (vllm-project/vllm at commit 002e77c, after 0.28.0; the page
docs.vllm.ai/en/v0.26.0/api/vllm/config/speculative has most of them). The table by batch size is of
pull request 32374: inclusive ranges, the first from 1 on, gaps and what lies behind the last keep
the length before; a length may be 0 (`vllm/v1/spec_decode/dynamic/utils.py`). Which draft tokens
are drawn is `draft_sample_method`: by default the likeliest, whatever the request's temperature.
`enable_adaptive_verification` is for method dspark alone there; at commit 0508485 for every drafter
with a model and for suffixes (`docs/features/speculative_decoding/adaptive_verification.md`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from simkit.engines.base import (
    EngineDrafter,
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

_DRAFT = "DRAFT_MODEL"
_KINDS = ("model", "feature", "parallel", "prompt_lookup", "ngram", "suffix")
_CONFIDENT = ("model", "feature", "parallel", "suffix")  # kinds that it verifies by confidence
_ADAPTIVE = (
    "enable_adaptive_verification is for drafters with a model and for suffixes as of commit"
    " 0508485 (pull request 52228), with Model Runner V2 and full CUDA graphs; vLLM 0.29.0 refuses"
    " it but for dspark. Its budget comes from vLLM's own profile of costs"
)


@dataclass(frozen=True)
class SpeculativeConfig(Schema):
    """The fields that are written, with vLLM's own rules for them.

    Raises:
        EngineError: vLLM would refuse a value.
    """

    method: str | None = None
    model: str | None = None
    num_speculative_tokens: int | None = None
    num_speculative_tokens_per_batch_size: list[list[int]] | None = None
    parallel_drafting: bool | None = None
    prompt_lookup_max: int | None = None
    prompt_lookup_min: int | None = None
    suffix_decoding_max_tree_depth: int | None = None
    suffix_decoding_max_spec_factor: float | None = None
    suffix_decoding_min_token_prob: float | None = None
    draft_sample_method: str | None = None
    rejection_sample_method: str | None = None
    synthetic_acceptance_rates: list[float] | None = None
    enable_adaptive_verification: bool | None = None

    def __post_init__(self) -> None:
        for name in ("num_speculative_tokens", "prompt_lookup_max", "prompt_lookup_min"):
            whole(f"vllm: {name}", getattr(self, name), 1)
        self._check_table()
        self._check_rates()

    def _check_table(self) -> None:
        table, end = self.num_speculative_tokens_per_batch_size, 0
        for k, (low, high, length) in enumerate(table or []):
            name = "vllm: num_speculative_tokens_per_batch_size"
            whole(name, length, 0)
            whole(name, low, end + 1)
            whole(name, high, low)
            if k == 0 and low != 1:
                raise EngineError(f"{name}: the first range must start at 1")
            end = high

    def _check_rates(self) -> None:
        rates = self.synthetic_acceptance_rates
        if (self.rejection_sample_method == "synthetic") != (rates is not None):
            raise EngineError(
                "vllm: synthetic rates need rejection_sample_method synthetic, and the reverse"
            )
        if rates is None:
            return
        falls = all(a >= b for a, b in zip(rates, rates[1:], strict=False))
        inside = all(0 <= rate <= 1 for rate in rates)
        if len(rates) != self.num_speculative_tokens or not (falls and inside):
            raise EngineError(
                "vllm: give one synthetic rate for each draft token, in [0, 1],"
                " none above the one before"
            )


@register
class Vllm(EngineWriter):
    """See the module."""

    name = "vllm"
    version = "0.29.0"
    source = "vllm/config/speculative.py at 002e77c; pull requests 32374, 48915"
    replaced = frozenset({"prompt_lookup", "ngram"})
    takes = frozenset(("by_batch", "rates", "by_confidence"))

    def can(self, what: str, drafter: EngineDrafter) -> bool:
        """See `EngineWriter`; what n-grams propose has no confidence."""
        if what == "by_confidence" and drafter.kind not in _CONFIDENT:
            return False
        return super().can(what, drafter)

    def write(self, plan: EngineSetting) -> Written:
        """See `EngineWriter`."""
        if plan.length < 1:
            raise EngineError(
                "vllm: no drafts at all are no setting: leave --speculative-config out"
            )
        fields, notes = _drafter(plan)
        if plan.by_batch:
            fields["num_speculative_tokens_per_batch_size"] = _table(plan.by_batch)
        if plan.rates:
            fields["rejection_sample_method"] = "synthetic"
            fields["synthetic_acceptance_rates"] = list(plan.rates)
        if plan.sampled and plan.drafter.kind in ("model", "parallel", "feature", ""):
            fields["draft_sample_method"] = "probabilistic"
            notes.append(
                "draft_sample_method is probabilistic, as the trace was recorded: vLLM's default"
                " drafts the likeliest token at any temperature"
            )
        if plan.by_confidence:
            fields["enable_adaptive_verification"] = True
            notes.append(_ADAPTIVE)
        config = SpeculativeConfig(num_speculative_tokens=plan.length, **fields)
        return Written(config.json(), {}, notes)


def _drafter(plan: EngineSetting) -> tuple[dict[str, Any], list[str]]:
    kind, model, given = plan.drafter
    refuse_unknown("vllm", plan.drafter, _KINDS)
    if kind in ("prompt_lookup", "ngram"):
        most = given.get("most", given.get("ngram", 2))
        least = given.get("least", 1)
        differs = "vLLM takes the first match of the longest n-gram, the trace's rule may differ"
        notes = [] if given.get("which") == "first" else [differs]
        return {"method": "ngram", "prompt_lookup_max": most, "prompt_lookup_min": least}, notes
    if kind == "suffix":
        fields = {
            "method": "suffix",
            "suffix_decoding_max_tree_depth": given.get("max_depth", 64),
            "suffix_decoding_max_spec_factor": float(given.get("factor", 1.0)),
            "suffix_decoding_min_token_prob": float(given.get("min_prob", 0.1)),
        }
        return fields, []
    words = {"feature": "eagle3"}
    fields: dict[str, Any] = {"method": words.get(kind, "draft_model"), "model": model or _DRAFT}
    notes = unnamed(plan, _DRAFT)
    if kind == "parallel":
        fields["parallel_drafting"] = True
    if kind == "feature":
        notes.append("method eagle3 is taken for a chain on the target's features: say which it is")
    return fields, notes


def _table(by_batch: tuple[tuple[int, int], ...]) -> list[list[int]]:
    """Ranges; what lies behind the last keeps its length, so that one batch size is enough."""
    ends = [low - 1 for low, _ in by_batch[1:]] + [by_batch[-1][0]]
    return [[low, end, k] for (low, k), end in zip(by_batch, ends, strict=True)]
