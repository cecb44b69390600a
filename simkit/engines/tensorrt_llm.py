"""TensorRT-LLM: the YAML of `speculative_config` in the options of the LLM API.

Fields and rules are those of `DecodingBaseConfig` and its heirs in
`tensorrt_llm/llmapi/llm_args.py` (NVIDIA/TensorRT-LLM, main of September 2026), whose refuse
unknown fields. A schedule gives the length of the smallest key that is no less than the batch, and
none beyond the last (pull request 10860; before it, that of the largest key that is no more:
{1: 4, 4: 2}). The smallest key must have `max_draft_len`, and a schedule goes with no
`max_concurrency`. Where a schedule says none, most one-engine drafters keep to one token if pull
request 16888 is in. The gate (pull request 12905; `_torch/speculative/speculation_gate.py`):
speculation ends for good once the mean of the last `acceptance_rate_window_size` iterations'
acceptance rates, accepted over drafted tokens of the batch, is below `acceptance_rate_threshold`,
which is from 0 to 1. Before, `acceptance_window` requests and `acceptance_length_threshold` counted
the tokens that a request accepted a step, without the target's own. A threshold of 0 never ends it;
with attention data parallelism DSpark's confidence refuses the gate (main, September 2026).
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from simkit.engines.base import (
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
from traces.messages import how_many

_DRAFT = "DRAFT_MODEL"
_KINDS = ("model", "feature", "parallel", "prompt_lookup", "ngram", "suffix")


@dataclass(frozen=True)
class DecodingConfig(Schema):
    """The fields that are written.

    Raises:
        EngineError: TensorRT-LLM would refuse a value.
    """

    decoding_type: str | None = None
    max_draft_len: int | None = None
    speculative_model: str | None = None
    draft_len_schedule: dict[int, int] | None = None
    acceptance_rate_window_size: int | None = None
    acceptance_rate_threshold: float | None = None
    max_matching_ngram_size: int | None = None

    def __post_init__(self) -> None:
        whole("tensorrt-llm: max_draft_len", self.max_draft_len, 1)
        if not 0 <= (self.acceptance_rate_threshold or 0.0) <= 1:
            raise EngineError("tensorrt-llm: acceptance_rate_threshold must be from 0 to 1")
        if not self.draft_len_schedule:
            return
        name, schedule = "tensorrt-llm: draft_len_schedule", self.draft_len_schedule
        for batch, length in schedule.items():
            whole(name, batch, 1)
            whole(name, length, 0)
        if schedule[min(schedule)] != self.max_draft_len:
            raise EngineError(f"{name}: its smallest batch must have max_draft_len")
        if max(schedule.values()) > (self.max_draft_len or 0):
            raise EngineError(f"{name}: no length may be above max_draft_len")


@register
class TensorrtLlm(EngineWriter):
    """See the module."""

    name = "tensorrt-llm"
    version = "main of September 2026"
    source = "tensorrt_llm/llmapi/llm_args.py; pull requests 10860, 12905, 16888"
    replaced = frozenset({"prompt_lookup", "ngram", "suffix"})
    takes = frozenset(("by_batch", "gate"))

    def write(self, plan: EngineSetting) -> Written:
        """See `EngineWriter`."""
        if plan.length < 1:
            raise EngineError("tensorrt-llm: no drafts at all: leave speculative_config out")
        fields, notes = _drafter(plan)
        if plan.by_batch:
            schedule, said = _schedule(plan)
            fields["draft_len_schedule"] = schedule
            notes += said
        if plan.gate:
            gate, said = _gate(plan, *plan.gate)
            fields |= gate
            notes += said
        if plan.sampled:
            notes.append(
                "requests that sample are verified by exact match unless use_rejection_sampling is"
                " set (a prototype): acceptance will then be lower than the trace's"
            )
        config = DecodingConfig(max_draft_len=plan.length, **fields)
        return Written(_yaml(config.given()), {}, notes)


def _drafter(plan: EngineSetting) -> tuple[dict[str, Any], list[str]]:
    kind, model, given = plan.drafter
    refuse_unknown("tensorrt-llm", plan.drafter, _KINDS)
    if kind in ("prompt_lookup", "ngram", "suffix"):
        size = given.get("most", given.get("ngram", 2))
        note = "TensorRT-LLM's NGram keeps a pool of its own: drafts will differ from the trace's"
        return {"decoding_type": "NGram", "max_matching_ngram_size": size}, [note]
    words = {"feature": "Eagle3", "parallel": "PARD"}
    fields = {
        "decoding_type": words.get(kind, "Draft_Target"),
        "speculative_model": model or _DRAFT,
    }
    return fields, unnamed(plan, _DRAFT)


def _schedule(plan: EngineSetting) -> tuple[dict[int, int], list[str]]:
    """Lengths by the last batch that has them; none are drafted beyond the last key."""
    pairs, stop, notes = list(plan.by_batch), None, []
    while pairs and pairs[-1][1] == 0:
        stop = pairs.pop()[0]
    if stop is None:
        low, length = pairs[-1]
        notes.append(
            f"nothing is drafted beyond a schedule's last batch: {length} is written for batches up"
            f" to {low}; raise that key to the largest batch"
        )
    lows = [low for low, _ in pairs[1:]] + [stop or pairs[-1][0] + 1]
    return {low - 1: k for (_, k), low in zip(pairs, lows, strict=True)}, notes


def _gate(
    plan: EngineSetting, tokens_per_step: float, window: int
) -> tuple[dict[str, Any], list[str]]:
    """The gate as a share of drafted tokens, exact for drafts of the longest length.

    Raises:
        EngineError: no draft of that length accepts so much.
    """
    accepted = max(0.0, round(tokens_per_step - 1, 9))
    if accepted > plan.length:
        raise EngineError(
            f"tensorrt-llm: no draft of {how_many(plan.length, 'token')} gives {tokens_per_step:g}"
            " tokens a"
            " step: that gate would end speculation at once"
        )
    rate = round(accepted / plan.length, 9)
    shorter = any(0 < k < plan.length for _, k in plan.by_batch)
    notes = [
        f"the gate there is a share of drafted tokens: {rate:g} is {accepted:g} of {plan.length}"
        + ("; of the schedule's shorter drafts it is fewer" if shorter else ""),
        f"its window is of {window} iterations of the batch, not of {window} requests as in the"
        " controller; before pull request 12905 the fields were acceptance_window and"
        f" acceptance_length_threshold: {window} and {accepted:g}",
    ]
    return {"acceptance_rate_window_size": window, "acceptance_rate_threshold": rate}, notes


def _yaml(given: dict[str, Any]) -> str:
    """The option with these fields: words, numbers, and mappings of numbers."""
    lines = ["speculative_config:\n"]
    for key, value in given.items():
        text = json.dumps(value) if isinstance(value, str) else str(value)
        lines.append(f"  {key}: {text}\n")
    return "".join(lines)
