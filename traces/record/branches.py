"""The branches: how the draft goes on after each of its tokens that is rejected.

All branches of a sequence grow together, one forward pass a depth, over the cache that the on-path
pass left: a branch attends to the text before its rejected token and to itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from traces.record import draws
from traces.record.forward import Forward, side_by_side, visible
from traces.record.path import Path
from traces.record.plan import Plan
from traces.record.rolled import Rolled
from traces.record.statistics import (
    LogitRows,
    draft_rows,
    draft_token,
    outcome,
    target_rows,
)
from traces.record.statistics_triton import draft_statistics, target_statistics

# Branches of a sequence in one pass: more only widen the mask that all share, which costs little
# while a pass has few rows.
_MOST_BRANCHES = 32
_FEW_ROWS = 256
_MOST_LOGITS = 2**28  # of one pass, over all its rows


@dataclass(frozen=True)
class BranchGroup:
    """Up to R branches of each of B sequences that grow together; all tensors (B, R).

    Attributes:
        position: m of the rejected token; 0 where a sequence has no branch left.
        token: the rejected token.
        key: of the draws at depth 1.
        length: rows that the branch may have.
    """

    position: Tensor
    token: Tensor
    key: Tensor
    length: Tensor


Feed = Callable[[Tensor, int, Tensor], Tensor]
"""Logits (N, V) behind the tips (B, R) of a depth, of those that are alive (B, R), N in all."""


def slots_for_branches(plan: Plan, batch: int) -> int:
    """Cache slots that the widest group may need, on top of prompt and output."""
    return min(_most_branches(batch), plan.max_new_tokens) * plan.max_draft


def _most_branches(batch: int) -> int:
    return max(_MOST_BRANCHES, _FEW_ROWS // batch)


class Depth(NamedTuple):
    """The rows of one depth of a group: `alive` (B, R) says which branches have one, N in all."""

    alive: Tensor
    token: Tensor  # (B, R), what the next pass is fed
    key: Tensor  # (N,)
    q: LogitRows
    columns: dict[str, Tensor]  # each (N,), and hidden (N, H) where it is kept


def record_branches(
    target: Forward, draft: Forward, path: Path, plan: Plan, rolled: Rolled | None = None
) -> Iterator[dict[str, Tensor]]:
    """Yield the branch rows of a batch, one depth of one group at a time.

    Each item has the columns of `traces.schema.BRANCHES` (or `BRANCHES_WITH_TARGET`), with
    `sequence` counted from 0 inside the batch, and `hidden` (rows, H) if the plan asks for it.
    Both caches are left as they were. Branches of a draft that takes no masks are `rolled`.
    """
    bases = target.cache.length, draft.cache.length
    most = rolled.most if rolled else _most_branches(len(path.keys))
    for group in _groups(path, plan, draft.vocab_size, most):
        feed = rolled.feed(group) if rolled else _packed(draft, path, group)
        depths = _grow(draft, feed, plan, group)
        if plan.branch_target:
            grown = list(depths)
            yield from _with_target(target, path, plan, group, grown)
            target.cache.cut(bases[0])
        else:
            for depth in depths:
                yield depth.columns
        draft.cache.cut(bases[1])


def _groups(path: Path, plan: Plan, vocab_size: int, branches: int) -> Iterator[BranchGroup]:
    """Split the branches of a batch into groups that fit one pass, of `branches` a sequence."""
    batch, width = path.keys.shape
    m = torch.arange(1, width + 1, device=path.keys.device).expand(batch, width)
    length = (plan.max_new_tokens - 1 - m).clamp(0, plan.max_draft - 1)
    eos = torch.tensor(plan.eos_token_ids, device=m.device, dtype=torch.long)
    token = path.columns["draft_token"]
    has = (m <= path.n_output[:, None]) & ~path.columns["accepted"] & (length > 0)
    has &= ~torch.isin(token, eos)
    order = torch.where(has, m, width + 1).sort(-1).indices  # those that have one come first
    most = int(has.sum(-1).max())
    depth = plan.max_draft if plan.branch_target else 1
    fit = max(1, _MOST_LOGITS // (batch * depth * vocab_size))
    n_groups = -(-most // min(branches, fit))
    for r in range(n_groups):
        size = -(-most // n_groups)
        pick = order[:, r * size : (r + 1) * size]
        some = has.gather(1, pick)
        key = path.keys.gather(1, pick)
        tokens = token.gather(1, pick)
        yield BranchGroup(
            position=torch.where(some, m.gather(1, pick), 0),
            token=tokens,
            key=draws.next_key(key, tokens),
            length=torch.where(some, length.gather(1, pick), 0),
        )


def _packed(draft: Forward, path: Path, group: BranchGroup) -> Feed:
    """Passes over the tips of a group's branches, each under a mask that shows it its own text."""
    mask = _before(path, group, draft.cache.length)
    itself = torch.eye(group.token.shape[1], dtype=torch.bool, device=mask.device)
    itself = itself.expand(len(mask), -1, -1)
    text = path.n_prompt[:, None] + (group.position - 1).clamp_min(0)

    def feed(token: Tensor, depth: int, alive: Tensor) -> Tensor:
        nonlocal mask
        mask = torch.cat([mask, itself], -1)
        return draft.pass_(token, text + depth - 1, mask[:, None])[alive]

    return feed


def _grow(draft: Forward, feed: Feed, plan: Plan, group: BranchGroup) -> Iterator[Depth]:
    """Draft all branches of a group, one pass a depth, until none goes on."""
    eos = torch.tensor(plan.eos_token_ids, device=group.token.device, dtype=torch.long)
    token, key = group.token, group.key
    alive = group.length > 0
    for depth in range(1, int(group.length.max()) + 1):
        alive = alive & (depth <= group.length)
        if not bool(alive.any()):
            return
        q = draft_rows(feed(token, depth, alive), plan.sampler, plan.kernel)
        drawn = draft_token(q, key[alive])
        sequence, _ = alive.nonzero(as_tuple=True)
        columns = {"sequence": sequence, "position": group.position[alive]}
        columns["depth"] = torch.full_like(sequence, depth)
        columns["draft_token"] = drawn
        columns |= draft_statistics(q, drawn)
        if plan.hidden:
            columns["hidden"] = draft.hidden[alive].half()
        token = token.masked_scatter(alive, drawn)
        yield Depth(alive, token, key[alive], q, columns)
        key = draws.next_key(key, token)
        alive = alive & ~torch.isin(token, eos)


def _before(path: Path, group: BranchGroup, n_slots: int) -> Tensor:
    """Which slots of the on-path text a branch sees: the prompt and y before m; (B, R, slots)."""
    return visible(path.pads, path.start + group.position - 1, n_slots)


def _with_target(
    target: Forward, path: Path, plan: Plan, group: BranchGroup, grown: list[Depth]
) -> Iterator[dict[str, Tensor]]:
    """Add the target's view, from one pass over all tokens of a group under a tree mask."""
    fed = torch.stack([group.token] + [depth.token for depth in grown[:-1]], -1)  # (B, R, D)
    _, size, deep = fed.shape
    mask = side_by_side(_before(path, group, target.cache.length), deep)
    text = path.n_prompt[:, None] + (group.position - 1).clamp_min(0)
    text = text[:, :, None] + torch.arange(deep, device=fed.device)
    logits = target.pass_(fed.flatten(1), text.flatten(1), mask[:, None])
    logits = logits.unflatten(1, (size, deep))
    for d, depth in enumerate(grown):
        p_logits = logits[:, :, d][depth.alive].to(depth.q.given.device)
        p = target_rows(p_logits, plan.sampler, plan.kernel)
        token = depth.columns["draft_token"]
        drawn = outcome(p, depth.q, token, depth.key)
        yield depth.columns | drawn._asdict() | target_statistics(p, depth.q, token)
