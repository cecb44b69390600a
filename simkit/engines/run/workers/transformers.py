"""Hugging Face's assisted generation in a worker, in float32.

Its candidate generator is asked for a draft at the begin of each step, with all known tokens: that
is all that is watched (`get_candidates` in `generation/candidate_generator.py`, transformers 5).
The first step drafts from the prompt.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any, NamedTuple

from simkit.engines.run.workers.lines import Answer, serve


class _Begun(NamedTuple):
    """A step that begins.

    Attributes:
        known: tokens, the prompt's among them.
        draft: its tokens.
        at_s: when the draft was there.
    """

    known: int
    draft: list[int]
    at_s: float


def load(said: dict[str, Any]) -> Answer:
    """Load the models of a setting; see `simkit.engines.run.workers.openvino.load`."""
    import torch
    from transformers import AutoModelForCausalLM
    from transformers.generation import candidate_generator as generators

    if said["threads"] is not None:
        torch.set_num_threads(said["threads"])
    config = json.loads(said["config"] or "{}")
    lookup = "prompt_lookup_num_tokens" in config
    names = [said["target"]] if lookup or not config else [said["target"], said["draft"]]
    how: dict[str, Any] = {"dtype": torch.float32, "local_files_only": True}
    models = [AutoModelForCausalLM.from_pretrained(name, **how).eval() for name in names]
    given: dict[str, Any] = {"do_sample": False, **(config if lookup else {})}
    if len(models) == 2:
        models[1].generation_config.update(**config)
        given["assistant_model"] = models[1]
    begun: list[_Begun] = []
    kind = "PromptLookupCandidateGenerator" if lookup else "AssistedCandidateGenerator"
    watched: Any = getattr(generators, kind)
    watched.get_candidates = _watched(watched.get_candidates, begun)
    return lambda asked: _answer(models[0], given, begun, said["eos"], asked)


def _watched(get: Callable[..., Any], begun: list[_Begun]) -> Callable[..., Any]:
    def get_candidates(self: Any, input_ids: Any, *more: Any, **others: Any) -> Any:
        found = get(self, input_ids, *more, **others)
        known = input_ids.shape[1]
        begun.append(_Begun(known, found[0][0, known:].tolist(), time.perf_counter()))
        return found

    return get_candidates


def _answer(
    model: Any, given: dict[str, Any], begun: list[_Begun], eos: list[int], asked: dict[str, Any]
) -> dict[str, Any]:
    import torch

    begun.clear()
    ids = torch.tensor([asked["prompt"]])
    begin = time.perf_counter()
    with torch.inference_mode():
        out = model.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            max_new_tokens=asked["max_new_tokens"],
            eos_token_id=eos or None,
            pad_token_id=(eos or [0])[0],
            **given,
        )
    end = time.perf_counter()
    text = out[0].tolist()
    tokens = text[len(asked["prompt"]) :]
    return {
        "tokens": tokens,
        "steps": _steps(begun, text, begin, end),
        "prefill_s": 0.0,  # its first step reads the prompt
        "seconds": end - begin,
        "ended": "eos" if tokens and tokens[-1] in eos else "length",
    }


def _steps(begun: list[_Begun], text: list[int], begin: float, end: float) -> list[list[float]]:
    """Drafted, accepted and emitted tokens, and seconds, of each step."""
    found: list[list[float]] = []
    for k, (known, draft, at_s) in enumerate(begun):
        is_last = k + 1 == len(begun)
        emitted = (len(text) if is_last else begun[k + 1].known) - known
        accepted = 0
        while accepted < min(len(draft), emitted) and draft[accepted] == text[known + accepted]:
            accepted += 1
        since = begin if k == 0 else begun[k - 1].at_s
        found.append([len(draft), accepted, emitted, (end if is_last else at_s) - since])
    return found


if __name__ == "__main__":
    serve(load)
