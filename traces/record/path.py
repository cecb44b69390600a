"""The on-path pass: generate y with both models side by side and reduce every position once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from traces.record import draws
from traces.record.forward import Forward, causal_mask, left_padded
from traces.record.plan import Plan
from traces.record.statistics import (
    Rows,
    at,
    draft_rows,
    draft_token,
    outcome,
    target_rows,
)
from traces.record.statistics_triton import pair_statistics


@dataclass(frozen=True)
class Path:
    """The outputs of B prompts, padded to the longest; position i is column i − 1.

    Attributes:
        columns: every column of `traces.schema.POSITIONS` but the key, each (B, T).
        keys: int64 keys of the draws (B, T).
        pads: pads in front of each prompt (B,).
        n_prompt: tokens of each prompt (B,).
        n_output: tokens of each output, T (B,).
        start: the slot of position 1.
        hidden: the draft's states (B, T, H), and those of the prompts (B, start − 1, H); or None.
    """

    columns: dict[str, Tensor]
    keys: Tensor
    pads: Tensor
    n_prompt: Tensor
    n_output: Tensor
    start: int
    hidden: Tensor | None = None
    prompt_hidden: Tensor | None = None


def record_path(
    target: Forward,
    draft: Forward,
    prompts: list[list[int]],
    sequences: range,
    plan: Plan,
    on_token: Callable[[int], None] = lambda n: None,
) -> Path:
    """Run a batch of prompts to the end of their outputs.

    Args:
        target: with an empty cache of at least longest prompt + T_max slots.
        draft: likewise.
        prompts: token ids.
        sequences: their numbers, which key the draws.
        plan: the recording's settings.
        on_token: told after every position how many outputs grew.
    """
    device = target.device
    tokens, pads = (x.to(device) for x in left_padded(prompts))
    n_prompt = tokens.shape[1] - pads
    key = draws.first_key(plan.seed, torch.tensor(list(sequences), device=device))
    eos = torch.tensor(plan.eos_token_ids, device=device, dtype=torch.long)
    p_logits, q_logits = (_prefill(m, tokens, pads) for m in (target, draft))
    prompt_hidden = draft.hidden[:, :-1].half() if plan.hidden else None

    rows: list[dict[str, Tensor]] = []
    keys, hidden = [], []
    n_output = torch.zeros_like(n_prompt)
    alive = torch.ones_like(n_prompt, dtype=torch.bool)
    for i in range(1, plan.max_new_tokens + 1):
        p = target_rows(p_logits, plan.sampler, plan.kernel)
        q = draft_rows(q_logits, plan.sampler, plan.kernel)
        row, y = _position(p, q, key)
        rows.append(row)
        keys.append(key)
        if plan.hidden:
            hidden.append(draft.hidden[:, -1].half())
        n_output += alive
        on_token(int(alive.sum()))
        alive = alive & ~torch.isin(y, eos)
        if i == plan.max_new_tokens or not bool(alive.any()):
            break
        key = draws.next_key(key, y)
        p_logits, q_logits = (_advance(m, y, n_prompt + i - 1, pads) for m in (target, draft))
    return Path(
        columns={name: torch.stack([row[name] for row in rows], 1) for name in rows[0]},
        keys=torch.stack(keys, 1),
        pads=pads,
        n_prompt=n_prompt,
        n_output=n_output,
        start=tokens.shape[1],
        hidden=torch.stack(hidden, 1) if plan.hidden else None,
        prompt_hidden=prompt_hidden,
    )


def _position(p: Rows, q: Rows, key: Tensor) -> tuple[dict[str, Tensor], Tensor]:
    """The stored columns of one position of every sequence, and its output tokens (B,)."""
    drawn = outcome(p, q, draft_token(q, key), key)
    columns = drawn._asdict()
    columns |= pair_statistics(p, q, drawn.draft_token)
    # Greedy output tokens are the likeliest: no distribution is worked out for them alone.
    likeliest = p.temperature == 0
    columns["target_token_prob_raw"] = (
        columns["target_top1_prob"] if likeliest else at(p.prob, drawn.target_token).float()
    )
    return columns, drawn.target_token


def _prefill(model: Forward, tokens: Tensor, pads: Tensor) -> Tensor:
    n = tokens.shape[1]
    positions = (torch.arange(n, device=pads.device) - pads[:, None]).clamp_min(0)
    return model.pass_(tokens, positions, causal_mask(pads, 0, n), keep=1)[:, -1]


def _advance(model: Forward, token: Tensor, position: Tensor, pads: Tensor) -> Tensor:
    """Feed one token a sequence, which stands at 0-based text position `position` (B,)."""
    start = model.cache.length
    mask = causal_mask(pads, start, start + 1)
    return model.pass_(token[:, None], position[:, None], mask)[:, -1]
