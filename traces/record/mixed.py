"""Training rows on mixed contexts: outputs in which a share of the tokens is the draft's own.

Token mixing for the acceptance head ("Acceptance-Guided Adaptive Speculative Decoding", section
2.3): at each position of an output y the draft model has proposed a token x̃_i behind y_<i, the
target's own prefix, and the mixed text z has z_i = x̃_i with probability R (the paper: half; its
public code: 0.15), else y_i. One pass of both models over prompt + z says at every position what
the draft would propose behind z_<i, and whether the target would accept it; and its states are
those that have consumed the tokens of z. A head trained on these rows has seen contexts that are
not the target's.

An EOS that the draft proposes is not mixed in: drafting stops at one, so no head is asked behind
it. All draws are keyed by the tokens before them: where z_<i = y_<i the row is the on-path row.
"""

from __future__ import annotations

import torch
from torch import Tensor

from traces.record import draws
from traces.record.forward import Forward, causal_mask
from traces.record.path import Path, draw
from traces.record.plan import Plan
from traces.record.statistics import draft_rows, target_rows
from traces.record.statistics_triton import pair_statistics

_MOST_LOGITS = 2**26  # of one pass, over all its rows


def record_mixed(
    target: Forward, draft: Forward, prompts: list[list[int]], path: Path, plan: Plan
) -> dict[str, Tensor]:
    """Mix the outputs of a batch and run both models over the result.

    Args:
        target: as the on-path pass left it; its cache ends with prompt + z.
        draft: likewise; it keeps its hidden states.
        prompts: token ids.
        path: the outputs of these prompts.
        plan: the recording's settings.

    Returns:
        the columns of `traces.schema.MIXED` but the key, each (B, T), and `state` (B, T, H).
    """
    last = torch.tensor([prompt[-1] for prompt in prompts], device=path.keys.device)
    own = path.columns["draft_token"]
    eos = torch.tensor(plan.eos_token_ids, device=own.device, dtype=torch.long)
    chosen = draws.uniform(path.keys, draws.MIXING) < plan.mix
    from_draft = chosen & ~torch.isin(own, eos)
    z = torch.where(from_draft, own, path.columns["target_token"])
    keys = draws.keys_along(path.keys[:, 0], z)
    fed = torch.cat([last[:, None], z[:, :-1]], 1)
    for model in (target, draft):
        model.cache.cut(path.start - 1)
    most = max(1, _MOST_LOGITS // (len(fed) * draft.vocab_size))
    parts = [
        _rows(target, draft, tokens, key, path, plan)
        for tokens, key in zip(fed.split(most, 1), keys.split(most, 1), strict=True)
    ]
    columns = {name: torch.cat([part[name] for part in parts], 1) for name in parts[0]}
    return {"token": z, "from_draft": from_draft} | columns


def _rows(
    target: Forward, draft: Forward, fed: Tensor, keys: Tensor, path: Path, plan: Plan
) -> dict[str, Tensor]:
    """The rows behind each of these tokens (B, n), which both caches go up to; columns (B, n)."""
    q = draft_rows(_feed(draft, fed, path).flatten(0, 1), plan.sampler, plan.kernel)
    p_logits = _feed(target, fed, path).flatten(0, 1)
    p = target_rows(p_logits.to(q.given.device), plan.sampler, plan.kernel)
    key = keys.flatten()
    drawn = draw(p, q, key, plan)
    columns = drawn._asdict()
    columns |= pair_statistics(p, q, drawn.draft_token)
    columns = {name: value.unflatten(0, fed.shape) for name, value in columns.items()}
    return columns | {"state": draft.hidden.half()}


def _feed(model: Forward, tokens: Tensor, path: Path) -> Tensor:
    """Logits (B, n, V) behind the next tokens (B, n) of a text that follows the prompts."""
    start = model.cache.length
    end = start + tokens.shape[1]
    text = torch.arange(start, end, device=tokens.device) - path.pads[:, None]
    return model.pass_(tokens, text, causal_mask(path.pads, start, end))
