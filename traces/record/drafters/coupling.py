"""The second coupling for drafts that depend on their start: which tokens, which are accepted.

A draft is followed depth by depth. As long as all its tokens were the output's, the next one is
verified against the output (`outcome_given`, with one u for each position, whatever the start);
behind a rejected one, drafts go on with their own draws, which are keyed by the start too.
"""

from __future__ import annotations

import torch
from torch import Tensor

from traces.manifest import Manifest
from traces.record import draws
from traces.record.drafters.known import MOST_VALUES, Known
from traces.record.drafters.texts import Texts
from traces.record.drafters.vocabulary import named
from traces.record.statistics import (
    LogitRows,
    draft_rows,
    draft_statistics,
    outcome_given,
    target_statistics,
    widened,
)
from traces.schema import DRAFT_STATISTICS, TARGET_STATISTICS

_NO_LOGIT = -1e30  # of a token that a drafter cannot propose; its log-probability stays finite


class Coupled:
    """The rows of drafts from all starts of a batch, made depth by depth.

    Args:
        texts: prompts and outputs.
        p_logits: the target's behind the prompts' last tokens and the outputs' (B, 1 + T, V).
        header: whose sampler, seed and limits; of `COLUMNS`, its `lattice_columns` are worked out.
        first_sequence: number of the batch's first.
        ids: of the drafter's columns of logits (D,); None if they are all ids.
    """

    def __init__(
        self,
        texts: Texts,
        p_logits: Tensor,
        header: Manifest,
        first_sequence: int,
        ids: Tensor | None,
    ) -> None:
        self.sampler, self.longest = header.sampler, header.max_new_tokens
        device = p_logits.device
        self.n_output = texts.n_output.to(device)
        output = texts.tokens[:, texts.start :].to(device)
        self.ids = ids
        kept = header.lattice_columns
        self.of_draft = [name for name in DRAFT_STATISTICS if name in kept]
        self.of_target = [name for name in TARGET_STATISTICS if name in kept]
        self.known = Known(texts, p_logits, header.sampler, ids)
        self.eos = torch.tensor(header.eos_token_ids, device=device, dtype=torch.long)
        self.keys = output_keys(output, header.seed, first_sequence)
        self.rows: list[dict[str, Tensor]] = []

    def choose(self, sequence: Tensor, start: Tensor, depth: int, logits: Tensor) -> Tensor:
        """The tokens (S,) of drafts at a depth, whose rows are kept.

        Args:
            sequence: (S,), counted from 0 in the batch.
            start: (S,).
            depth: 1, then 2, … of the same drafts.
            logits: of the drafter (S, D).
        """
        if depth == 1:
            self.fine = torch.ones_like(sequence, dtype=torch.bool)
            self.ended = torch.zeros_like(self.fine)
            self.key = self.keys[sequence, start - 1]
        logits = widened(logits)
        if bool((logits.amin(-1) < _NO_LOGIT).any()):
            logits = logits.clamp_min(_NO_LOGIT)
        q = draft_rows(logits, self.sampler)
        is_drawn = q.temperature > 0  # where tokens are certain, keys decide nothing
        own_key = draws.by_start(self.key, start) if is_drawn else self.key
        position = start + depth - 1
        known = self.fine & (position <= self.n_output[sequence])
        token = self._drawn(q, ~known, own_key)
        accepted = torch.zeros_like(known)
        unknown = torch.full((len(token),), torch.nan, device=token.device)
        columns: dict[str, Tensor] = dict.fromkeys(self.of_target, unknown)
        if bool(known.any()):
            q_known = q.of(known)
            where = sequence[known], position[known]
            p, y = self.known.rows(*where), self.known.output[where[0], where[1] - 1]
            drawn = outcome_given(p, q_known, y, self.key[known], own_key[known], self.ids)
            token = token.masked_scatter(known, drawn.draft_token.to(token.dtype))
            accepted[known] = drawn.accepted
            found = target_statistics(p, q_known, drawn.draft_token, self.of_target)
            columns |= {name: unknown.masked_scatter(known, x) for name, x in found.items()}
        columns |= draft_statistics(q, token, self.of_draft)
        token = named(token, self.ids)
        keys = {"sequence": sequence, "start": start, "depth": torch.full_like(start, depth)}
        there = ~self.ended & (depth <= self.longest - start)
        row = {**keys, "accepted": accepted, "draft_token": token, **columns}
        all_there = bool(there.all())
        self.rows.append(row if all_there else {name: x[there] for name, x in row.items()})
        self.fine = accepted
        self.ended = self.ended | torch.isin(token, self.eos)
        self.key = draws.next_key(self.key, token) if is_drawn else self.key
        return token

    def _drawn(self, q: LogitRows, free: Tensor, key: Tensor) -> Tensor:
        """The columns (S,) of rows that no output holds against; 0 at others, unless certain."""
        if q.temperature == 0:
            return q.best
        if bool(free.all()):
            return draws.race(q.processed, key, draws.DRAFT, self.ids)
        token = torch.zeros_like(q.best)
        if bool(free.any()):
            drawn = draws.race(q.processed[free], key[free], draws.DRAFT, self.ids)
            token = token.masked_scatter(free, drawn)
        return token

    def follow(self, sequence: Tensor, start: Tensor, logits: Tensor) -> None:
        """Drafts whose deeper rows do not depend on their tokens: all depths of (S, K, D)."""
        some = max(1, MOST_VALUES // logits.shape[-1])
        for first in range(0, len(start), some):
            part = slice(first, first + some)
            for depth in range(1, logits.shape[1] + 1):
                self.choose(sequence[part], start[part], depth, logits[part, depth - 1])


def output_keys(output: Tensor, seed: int, first_sequence: int) -> Tensor:
    """The keys of all positions of outputs (B, T), by the tokens before them, (B, T) int64."""
    numbers = torch.arange(first_sequence, first_sequence + len(output), device=output.device)
    return draws.keys_along(draws.first_key(seed, numbers), output)


COLUMNS = ("draft_token", *DRAFT_STATISTICS, *TARGET_STATISTICS)
"""Of a lattice that is made so; those of the target are NaN where the output has no such token."""
