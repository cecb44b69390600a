"""SGLang: flags of `sglang.launch_server`, and the JSON of `--speculative-adaptive-config`.

Flags are fields of `ServerArgs` (sgl-project/sglang, `python/sglang/srt/server_args.py`, as of
September 2026; `speculative_num_steps`, `speculative_eagle_topk`, `speculative_num_draft_tokens`,
which is a token more than the steps of a chain; where none is given, STANDALONE takes 3 steps,
`arg_groups/speculative_hook.py`). The adaptive JSON is read by
`speculative/adaptive_spec_params.py` at commit 015c872: an object for each batch size from which on
it counts (after the batch was padded to a captured size), with `candidate_steps`, `up_hysteresis`,
`down_hysteresis` and `ceiling_coeff`, and beside them `ema_alpha`, `update_interval` and
`warmup_batches`. It needs EAGLE or EAGLE3 with topk 1: with any other algorithm it is left aside.
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

_DRAFT = "DRAFT_MODEL"
_KINDS = ("model", "feature", "parallel", "prompt_lookup", "ngram", "suffix")


@dataclass(frozen=True)
class ServerArgs(Schema):
    """The flags that are written.

    Raises:
        EngineError: SGLang would refuse a value, or leave it aside.
    """

    speculative_algorithm: str | None = None
    speculative_draft_model_path: str | None = None
    speculative_num_steps: int | None = None
    speculative_eagle_topk: int | None = None
    speculative_num_draft_tokens: int | None = None
    speculative_adaptive: bool | None = None
    speculative_adaptive_config: str | None = None
    speculative_ngram_max_trie_depth: int | None = None

    def __post_init__(self) -> None:
        for name in ("num_steps", "eagle_topk", "num_draft_tokens"):
            whole(f"sglang: speculative_{name}", getattr(self, f"speculative_{name}"), 1)
        if self.speculative_adaptive:
            chain = self.speculative_eagle_topk == 1
            if self.speculative_algorithm not in ("EAGLE", "EAGLE3") or not chain:
                raise EngineError("sglang: adaptive steps need EAGLE or EAGLE3 with topk 1")


@register
class Sglang(EngineWriter):
    """See the module."""

    name = "sglang"
    version = "main of September 2026"
    source = "server_args.py; speculative/adaptive_spec_params.py at 015c872"
    replaced = frozenset({"prompt_lookup", "ngram", "suffix", "parallel"})
    takes = frozenset(("by_batch", "ema"))
    adapts = frozenset(("feature",))
    default = "fixed(3)"

    def write(self, plan: EngineSetting) -> Written:
        """See `EngineWriter`."""
        if plan.length < 1:
            raise EngineError("sglang: no drafts at all are no setting: leave the flags out")
        kind, model, given = plan.drafter
        refuse_unknown(self.name, plan.drafter, _KINDS)
        length, notes, beside = plan.length, [], {}
        if kind in ("prompt_lookup", "ngram", "suffix"):
            depth = given.get("max_depth")  # of matches and drafts together: no n-gram's size
            notes.append("SGLang's NGRAM is a trie with breadth of its own: drafts will differ")
            flags = ServerArgs(
                speculative_algorithm="NGRAM",
                speculative_num_draft_tokens=length + 1,
                speculative_ngram_max_trie_depth=depth if depth and depth > 1 else None,
            )
            return Written(flags.flags(), {}, notes)
        words = {"feature": "EAGLE3", "parallel": "DFLASH"}
        algorithm = words.get(kind, "STANDALONE")
        notes += unnamed(plan, _DRAFT)
        if kind == "feature":
            notes.append("EAGLE3 is taken for a chain on the target's features: say which it is")
        if kind == "parallel":
            notes.append("SGLang's parallel drafter is DFLASH: a PARD model is none")
        adaptive = _adaptive(plan)
        if adaptive:
            beside[".adaptive.json"] = json.dumps(adaptive, indent=1) + "\n"
        flags = ServerArgs(
            speculative_algorithm=algorithm,
            speculative_draft_model_path=model or _DRAFT,
            speculative_num_steps=length if algorithm != "DFLASH" else None,
            speculative_eagle_topk=1 if algorithm != "DFLASH" else None,
            speculative_num_draft_tokens=length + 1,
            speculative_adaptive=True if adaptive else None,
            speculative_adaptive_config="{OUT}.adaptive.json" if adaptive else None,
        )
        return Written(flags.flags(), beside, notes)


def _adaptive(plan: EngineSetting) -> dict[str, Any] | None:
    ema = plan.ema
    if ema is not None:
        return {
            "ema_alpha": ema.alpha,
            "update_interval": ema.interval,
            "warmup_batches": ema.warmup,
            **{
                str(batch): {
                    "candidate_steps": list(steps),
                    "up_hysteresis": ema.up,
                    "down_hysteresis": ema.down_of(batch),
                    "ceiling_coeff": 0,
                }
                for batch, steps in ema.candidates
            },
        }
    for low, k in plan.by_batch:
        whole(f"sglang: candidate_steps of {low}", k, 0)
    return {str(low): {"candidate_steps": [k]} for low, k in plan.by_batch} or None
