"""A target that keeps a state of its own reads one text at a time, by its own `generate`.

Packed passes need a cache that can be masked and cut. A recurrent state cannot; its model generates
all the same, and each token is drawn with the recording's keys from the logits that it gives.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from transformers import GenerationConfig, LogitsProcessor, LogitsProcessorList

from traces.record import draws
from traces.record.forward import embedding
from traces.record.pair import Alone
from traces.record.path import target_columns
from traces.record.plan import Plan
from traces.record.statistics import near_ties, target_rows, target_token


def generate(
    target: Alone,
    prompts: list[list[int]],
    plan: Plan,
    first: int,
    on_token: Callable[[int], None] = lambda n: None,
) -> tuple[list[dict[str, Tensor]], int]:
    """The outputs of prompts, one after the other.

    Args:
        target: the model, whose `generate` is proved (`traces.record.proof.prove_own`).
        prompts: token ids.
        plan: the recording's settings.
        first: number of the first sequence.
        on_token: told after every token.

    Returns:
        of each prompt the columns of `traces.schema.target` (n,), and how many greedy tokens are
        near ties.
    """
    model, found, near = target.target, [], 0
    settings = GenerationConfig(
        max_new_tokens=plan.max_new_tokens,
        do_sample=False,
        eos_token_id=list(plan.eos_token_ids) or None,
        pad_token_id=0,
    )
    known: Any = model.generation_config
    try:
        model.generation_config = GenerationConfig()  # the model's own is left aside
        for number, prompt in enumerate(prompts, first):
            draw = _Draw(target.vocab_size, plan, number, on_token)
            ids = torch.tensor([prompt], device=embedding(model).weight.device)
            with torch.inference_mode():
                model.generate(  # pyright: ignore
                    input_ids=ids,
                    attention_mask=torch.ones_like(ids),
                    generation_config=settings,
                    logits_processor=LogitsProcessorList([draw]),
                )
            rows, near = draw.rows, near + draw.near
            found.append({name: torch.cat([row[name] for row in rows]) for name in rows[0]})
    finally:
        model.generation_config = known
    return found, near


class _Draw(LogitsProcessor):
    """Draws each token by its key and leaves it as the only one; keeps the columns."""

    def __init__(
        self, vocab_size: int, plan: Plan, number: int, on_token: Callable[[int], None]
    ) -> None:
        self._vocab_size, self._plan, self._on_token = vocab_size, plan, on_token
        self._key = draws.first_key(plan.seed, torch.tensor([number]))
        self.rows: list[dict[str, Tensor]] = []
        self.near = 0

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        key = self._key = self._key.to(scores.device)
        p = target_rows(scores[:, : self._vocab_size], self._plan.sampler, self._plan.kernel)
        token = target_token(p, key)
        self.near += int(near_ties(p)) if self._plan.sampler.greedy else 0
        self.rows.append(target_columns(p, token))
        self._key = draws.next_key(key, token)
        self._on_token(1)
        return torch.full_like(scores, -torch.inf).scatter(1, token[:, None], 0)
