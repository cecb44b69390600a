"""Children sampled without replacement: in which round is the output's token accepted?

Where a tree's children are drawn from the draft without replacement (EAGLE-1, SpecInfer, Sequoia),
recursive rejection asks them one after the other, one a round: x_r ~ q_r is accepted with chance
min(1, p_r / q_r); if it is not, p goes on as norm(max(p - q, 0)), and q without x_r. If rounds go
on until one accepts, the round does not depend on how many children a node has: a node with b of
them holds the token iff it is at most b.

Here the output is known, drawn from p. Round by round it is accepted iff u p_r(y) < q_r(y), and
else x_r is drawn from max(0, q_r - p_r): the joint law of children, round and output is the
standard one, as in the second coupling, of which this is the first round.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from traces.attach.drafter import NETWORK, Attachable, Attachment, Means
from traces.columns import Columns
from traces.errors import DrafterError
from traces.record import draws
from traces.record.agreement import held_to
from traces.record.drafters.coupling import output_keys
from traces.record.drafters.nodes import NodeModel
from traces.record.drafters.running import Running, reader_of
from traces.record.drafters.target import own_dtype, own_sampler, stated_sampler
from traces.record.folder import check_folder
from traces.record.forward import Forward
from traces.record.pair import with_draft
from traces.record.statistics import draft_rows, residual, target_rows
from traces.trace import Trace
from traces.trees.shapes import check_whole

_MOST_VALUES = 2**22  # of rows that are asked at once


@dataclass(frozen=True)
class RoundsDrafter(Attachable):
    """An autoregressive draft model whose trees are drawn without replacement.

    Only fixed tree shapes can be replayed on it: a shape that depends on what was drawn would bias
    the outputs. A position has the same draws whatever the start, as the draft depends only on the
    tokens before it.

    Attributes:
        path: the model's folder or hub id.
        most: largest number of children of a node that can be told apart.
        depth: Γ, the deepest level of a tree.
    """

    name = "rounds"
    runs_models = True
    heeds = NETWORK
    path: str
    most: int = 16
    depth: int = 16

    def __post_init__(self) -> None:
        check_whole(self, "most", 1, 64)
        check_whole(self, "depth", 1, 64)

    def open(self, recording: Trace, means: Means) -> Attachment:
        """See `Attachable`."""
        if stated_sampler(recording, means).q_temperature == 0:
            raise DrafterError(
                f"{self.name}: children are drawn at random, but drafts are greedy here: attach"
                f' model("{self.path}") with --tree'
            )
        sampler = own_sampler(recording, self, means)
        if Path(self.path).is_dir():
            check_folder(Path(self.path))
        dtype = own_dtype(recording, means)
        reader = reader_of(recording, means, dtype)
        pair = with_draft(reader.target, self.path, dtype, means.revision)
        return _Asking(
            recording,
            self,
            reader,
            NodeModel(pair.draft, pair.vocab_size),
            min(self.depth, recording.max_new_tokens),
            kind="rounds",
            draft_passes="token",
            width=self.most,
            sampler=sampler,
        )


class _Asking(Running):
    """See `Attachment`: a round for each position."""

    def shard(self, index: int) -> Mapping[str, Columns]:
        """See `Attachment`."""
        header = self.header
        first = index * header.batch_size
        texts, p_logits = self._read(index)
        model = self._network
        width = texts.tokens.shape[1]
        forward = Forward(model.model, model.vocab_size, width)
        begin = texts.start - 1
        q_logits = forward.pass_(texts.tokens, texts.text_positions, texts.mask)[:, begin:-1]
        keys = output_keys(texts.tokens[:, texts.start :], header.seed, first)
        some = max(1, _MOST_VALUES // model.vocab_size)
        parts = []
        for sequence, n in enumerate(texts.n_output.tolist()):
            for low in range(0, n, some):
                part = sequence, slice(low, min(low + some, n))
                y = texts.tokens[sequence, texts.start :][part[1]]
                p = held_to(target_rows(p_logits[part], header.sampler), y).processed
                q = draft_rows(q_logits[part], header.sampler).processed
                parts.append(rounds_of(p, q, y, keys[part], header.width).cpu().numpy())
        lengths = texts.n_output.cpu().numpy()
        sequence = np.repeat(np.arange(len(lengths)), lengths)
        position = np.concatenate([np.arange(1, n + 1) for n in lengths])
        rows = {
            "sequence": (sequence + first).astype(np.int32),
            "position": position.astype(np.int32),
            "round": np.concatenate(parts).astype(np.int16),
        }
        return {"rounds": rows}


def rounds_of(p: Tensor, q: Tensor, y: Tensor, key: Tensor, most: int) -> Tensor:
    """The 1-based round that accepts each output token, (N,) int64; 0: none of the first `most`.

    The first round is the second coupling's acceptance, with its draws; those of later rounds are
    keyed by their number.

    Args:
        p: the target's distributions (N, V).
        q: the draft's.
        y: (N,) output tokens, drawn from p.
        key: (N,) int64, of the tokens before.
        most: rounds.
    """
    found = torch.zeros_like(y)
    left = torch.arange(len(y), device=y.device)
    p, q = p.double(), q.double()
    for number in range(1, most + 1):
        mine = key[left]
        if number > 1:
            mine = draws.by_start(mine, torch.full_like(mine, -number))
        token = y[left, None]
        wins = draws.uniform(mine) * p.gather(1, token)[:, 0] < q.gather(1, token)[:, 0]
        found[left[wins]] = number
        left, p, q, mine = left[~wins], p[~wins], q[~wins], mine[~wins]
        if not len(left):
            break
        child = draws.race(residual(q, p), mine, draws.DRAFT)
        p = _normed(residual(p, q))
        q = q.scatter(1, child[:, None], 0.0)
        there = q.sum(1) > 0
        left, p, q = left[there], p[there], _normed(q[there])
    return found


def _normed(weights: Tensor) -> Tensor:
    return weights / weights.sum(1, keepdim=True)
