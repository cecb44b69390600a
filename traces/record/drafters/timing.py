"""Seconds of the passes of drafters that are networks, as a decoder makes them.

A parallel drafter's pass is over the tokens that were kept since its last draft and its masks. All
its last rows, up to a draft's length, are read. In the dependent mode the projection of the
target's states is inside, for every token of the pass.

A feature chain's pass over one token goes on from its own state. One over several is the first of a
draft, which encodes the kept tokens anew with the target's states; so is its prefill. Only the last
row is read.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.nn import functional as F

from traces.record.cache import Buffer
from traces.record.latency import PassBench, PassShape

if TYPE_CHECKING:
    from traces.record.drafters.feature import Feature
    from traces.record.drafters.parallel import Parallel


class ParallelBench(PassBench):
    """See `PassBench`; of a parallel drafter whose drafts have `length` tokens."""

    def __init__(
        self, drafter: Parallel, length: int, shapes: Sequence[PassShape], seed: int
    ) -> None:
        self._drafter, self._length, self._states = drafter, length, None
        if drafter.projection is not None:
            self._states = _states(drafter.projection.shape[1], drafter.projection, shapes, seed)
        super().__init__(drafter.model, shapes, seed)

    def _kept(self, shape: PassShape) -> int:
        return min(self._length, shape.tokens_in) if shape.context_len else 1

    def _run(self, ids: list[list[int]], cache: Any, keep: int) -> list[list[int]]:
        if self._states is None or self._drafter.projection is None:
            return super()._run(ids, cache, keep)
        with torch.inference_mode():
            tokens = torch.tensor(ids, device=self.device)
            states = self._states[: len(tokens), : tokens.shape[1]]
            t = F.linear(states * self._drafter.feature_scale, self._drafter.projection)
            logits = self.model(
                inputs_embeds=self.model.get_input_embeddings()(tokens) + t,
                past_key_values=cache,
                use_cache=True,
                logits_to_keep=keep,
            ).logits
            return logits.argmax(-1).tolist()


class ChainBench(PassBench):
    """See `PassBench`; of a feature drafter."""

    def __init__(self, drafter: Feature, shapes: Sequence[PassShape], seed: int) -> None:
        self._drafter, embedded = drafter, drafter.embedded
        width = len(drafter.layers) * drafter.output.shape[1]
        self._states = _states(width, embedded, shapes, seed)
        self._own = _states(drafter.output.shape[1], embedded, shapes, seed)[:, :1]
        self._longest = max(s.context_len + s.tokens_in for s in shapes)
        config = drafter.net.rotary.config
        self._prepare(config, embedded.device, drafter.vocab_size, shapes, seed)

    @property
    def dtype(self) -> torch.dtype:
        """See `PassBench`."""
        return self._drafter.embedded.dtype

    def _new_cache(self) -> Buffer:
        return Buffer(1, self._longest)

    def _cut(self, cache: Buffer, shape: PassShape) -> None:
        cache.cut(shape.context_len)

    def _run(self, ids: list[list[int]], cache: Buffer, keep: int) -> list[list[int]]:
        known = cache.length
        with torch.inference_mode():
            tokens = torch.tensor(ids, device=self.device)
            n = tokens.shape[1]
            if n == 1 and known:
                features = self._own[: len(tokens)]
            else:
                features = self._drafter.net.fused(self._states[: len(tokens), :n])
            place = torch.arange(known + n, device=self.device)
            seen = (place <= place[known:, None]).expand(len(tokens), -1, -1)
            positions = place[known:].expand(len(tokens), -1)
            features = self._drafter.step(tokens, features, positions, seen, cache)
            logits = self._drafter.net.logits(features[:, -1], self._drafter.output)
            return logits.argmax(-1, keepdim=True).tolist()


def _states(width: int, like: Tensor, shapes: Sequence[PassShape], seed: int) -> Tensor:
    """Random states of the target: their values do not matter to the time."""
    longest = max(max(s.context_len, s.tokens_in) for s in shapes)
    size = max(s.batch_size for s in shapes), longest, width
    drawn = torch.randn(size, generator=torch.Generator().manual_seed(seed))
    return drawn.to(like)
