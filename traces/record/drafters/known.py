"""The target's distributions at all positions of known texts, as drafts of any start meet them.

What does not depend on a draft (norm, entropy, likeliest token) is worked out once a position. Of
a drafter with a reduced vocabulary only those columns are read again: a token that it cannot
propose has q = 0, and adds nothing to a sum over q or min(p, q).
"""

from __future__ import annotations

import torch
from torch import Tensor

from traces.record.agreement import held_to
from traces.record.drafters.texts import Texts
from traces.record.statistics import LogitRows, at, target_rows
from traces.sampler import Sampler

MOST_VALUES = 2**19  # of logits that are reduced at once: more no cache holds, fewer cost calls


class Known:
    """Rows of p for the drafts of a batch.

    Args:
        texts: prompts and outputs.
        p_logits: the target's behind the last token of the prompts and all of the outputs
            (B, 1 + T, V).
        sampler: of the target.
        ids: of the drafter's columns (D,), or None for all ids.
    """

    def __init__(
        self, texts: Texts, p_logits: Tensor, sampler: Sampler, ids: Tensor | None
    ) -> None:
        self._sampler, self._ids = sampler, ids
        self._logits = p_logits[:, :-1]  # column i - 1 is position i
        self._few = self._logits if ids is None else self._logits[..., ids]
        n_rows = p_logits.shape[-1]
        device = p_logits.device
        self._column = torch.arange(n_rows, device=device)
        if ids is not None:
            self._column = torch.full_like(self._column, -1)
            self._column[ids] = torch.arange(len(ids), device=device)
        self._tokens = texts.tokens[:, texts.start :].to(device)
        self.output = self._column[self._tokens]
        self._reduce(texts.n_output)

    def _reduce(self, n_output: Tensor) -> None:
        """Work out what a position has once: norm and entropy (B, T), likeliest token and its p."""
        shape, some = self._logits.shape[:2], max(1, MOST_VALUES // self._logits.shape[-1])
        zeros = torch.zeros(shape, dtype=torch.float64, device=self._logits.device)
        self._norm, self._entropy, self._best = zeros, zeros.clone(), zeros.long()
        for row, n in enumerate(n_output.tolist()):
            for first in range(0, n, some):
                part = row, slice(first, min(first + some, n))
                p = target_rows(self._logits[part], self._sampler)
                self._best[part] = p.best
                self._norm[part] = at(p.logits, p.best).double() - at(p.log_prob, p.best).double()
                self._entropy[part] = p.entropy

    def rows(self, sequence: Tensor, position: Tensor) -> LogitRows:
        """The target's rows (S,) over the drafter's columns, at 1-based positions of outputs.

        They can give the output's tokens, see `traces.record.agreement.held_to`.
        """
        where = sequence, position - 1
        best = self._best[where]
        p = target_rows(self._few[where], self._sampler)
        norm = self._norm[where].to(p.logits.dtype)
        found = {
            "log_prob": p.logits - norm[:, None],
            "entropy": self._entropy[where],
            "best": (self.output[where] if self._sampler.greedy else self._column[best]),
            "top_prob": (self._logits[*where, best].to(norm.dtype) - norm).exp(),
        }
        if not (self._sampler.greedy or self._sampler.raw):
            every = held_to(target_rows(self._logits[where], self._sampler), self._tokens[where])
            whole = every.processed
            found["processed"] = whole if self._ids is None else whole[:, self._ids]
        vars(p).update(found)
        return p
