"""One model over a batch of left-padded prompts: a shared cache, and forward passes under a mask.

Slots are places in the cache. Prompts end at slot `n_slots - 1` after `prefill`, so that the next
token of every sequence lands in the same slot; what a token may attend to is always said by a mask.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any, cast
from weakref import WeakKeyDictionary

import numpy as np
import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from traces.errors import RecordError
from traces.record.cache import Buffer
from traces.record.layer_masks import Reach, reaches

_EXCESS = 1e-4  # mass of a row beyond the common vocabulary that is put up with


def embedding(model: PreTrainedModel) -> nn.Embedding:
    """A model's input embedding: where its tokens enter, one row for each id."""
    return cast(nn.Embedding, model.get_input_embeddings())


@dataclass
class Forward:
    """A model, its cache for one batch, and what its passes return.

    Attributes:
        model: a Hugging Face causal LM in eval mode.
        vocab_size: ids beyond it are cut from the logits (common vocabulary of a pair).
        capacity: slots of the cache.
        keep_hidden: keep the final-norm states of the last pass.
        excess: largest probability mass that any row had beyond `vocab_size`.
    """

    model: PreTrainedModel
    vocab_size: int
    capacity: int
    keep_hidden: bool = False
    excess: float = field(init=False, default=0.0)

    def __post_init__(self) -> None:
        self.cache = new_cache(self.model, self.capacity)
        self.device = embedding(self.model).weight.device
        self._last = LastStates(self.model) if self.keep_hidden else None

    def pass_(
        self,
        tokens: Tensor,
        positions: Tensor,
        mask: Tensor,
        keep: int = 0,
        added: Tensor | None = None,
    ) -> Tensor:
        """Run tokens (B, n) at 0-based text positions (B, n); they are appended to the cache.

        Args:
            tokens: ids.
            positions: where each token stands in its own text.
            mask: bool (B, 1, n, slots so far + n), True where a token may attend.
            keep: number of last tokens whose logits are wanted; 0 is all.
            added: (B, n, H), added to the tokens' embeddings.

        Returns:
            logits (B, n or keep, vocab_size).
        """
        with torch.inference_mode(), self._last or nullcontext():
            tokens = tokens.to(self.device)
            logits = packed_pass(self.model, self.cache, tokens, positions, mask, keep, added)
        return self.common(logits)

    @property
    def hidden(self) -> Tensor:
        """The final-norm states (B, n, H) of the last pass, where they are kept."""
        assert self._last is not None
        return self._last.joined()

    def common(self, logits: Tensor) -> Tensor:
        """Logits (…, V) of the common vocabulary; what lies beyond is weighed, see `excess`."""
        if logits.shape[-1] > self.vocab_size:
            full = logits.float().logsumexp(-1)
            common = logits[..., : self.vocab_size].float().logsumexp(-1)
            self.excess = max(self.excess, float((1 - (common - full).exp()).max()))
        return logits[..., : self.vocab_size]


_reaches: WeakKeyDictionary[nn.Module, dict[str, Reach]] = WeakKeyDictionary()


def new_cache(model: PreTrainedModel, capacity: int) -> Buffer:
    """An empty cache of so many slots, a layer for each of a model's."""
    known = getattr(model.config, "num_hidden_layers", None)
    return Buffer(known or model.config.get_text_config(decoder=True).num_hidden_layers, capacity)


def packed_pass(
    model: PreTrainedModel,
    cache: Buffer,
    tokens: Tensor,
    positions: Tensor | None,
    mask: Tensor | None,
    keep: int = 0,
    added: Tensor | None = None,
) -> Tensor:
    """A model's pass over tokens that are appended to a cache; its logits (B, n or keep, V).

    Args:
        model: a Hugging Face causal LM.
        cache: of the batch.
        tokens: see `Forward.pass_`, as the other arguments; where the model begins.
        positions: of the tokens; None: behind what is cached.
        mask: what they attend to; None: all before them. That of the model costs a pass over one
            token less than a mask that is given.
        keep: number of last tokens whose logits are wanted.
        added: to the tokens' embeddings.
    """
    device = tokens.device
    given = (
        {"input_ids": tokens}
        if added is None
        else {"inputs_embeds": embedding(model)(tokens) + added}
    )
    return model(
        **given,
        position_ids=None if positions is None else positions.to(device),
        attention_mask=_biases(model, cache, tokens, positions, mask),
        past_key_values=cache,
        use_cache=True,
        logits_to_keep=keep,
    ).logits


def _biases(
    model: PreTrainedModel,
    cache: Buffer,
    tokens: Tensor,
    positions: Tensor | None,
    mask: Tensor | None,
) -> Tensor | dict[str, Tensor] | None:
    """What attention adds to its scores, of each kind of layer where a model has several."""
    if (kinds := _reaches.get(model)) is None:
        kinds = _reaches[model] = reaches(model.config)
    stands = cache.stand(tokens, positions) if kinds else None
    if mask is None:
        return None
    if stands is None or positions is None:
        return as_bias(mask, model.dtype).to(tokens.device)
    query, key = positions.to(mask.device), stands.to(mask.device)
    masks = {kind: reach.cut(mask, query, key) for kind, reach in kinds.items()}
    biases = {kind: as_bias(one, model.dtype).to(tokens.device) for kind, one in masks.items()}
    return biases.get("", biases)


class LastStates:
    """Keeps the final-norm states of every pass that runs inside a `with` block.

    Args:
        model: a Hugging Face causal LM.
    """

    def __init__(self, model: PreTrainedModel):
        self._base = model.base_model

    def __enter__(self) -> LastStates:
        self._handle = self._base.register_forward_hook(self._keep)
        return self

    def __exit__(self, *_: object) -> None:
        self._handle.remove()

    def joined(self) -> Tensor:
        """States of the last pass (B, n, H)."""
        return self._states

    def _keep(self, module: nn.Module, args: Any, output: Any) -> None:
        self._states = output.last_hidden_state


def check_excess(forward: Forward, name: str) -> None:
    """Refuse a model that has had mass beyond the common vocabulary.

    Raises:
        RecordError: the two models do not share a vocabulary; names this one.
    """
    if forward.excess > _EXCESS:
        raise RecordError(
            f"the {name} puts {forward.excess:.2g} of its probability on ids beyond the common "
            f"vocabulary of {forward.vocab_size}: the two models do not share a vocabulary"
        )


def as_bias(mask: Tensor, dtype: torch.dtype) -> Tensor:
    """What attention adds to its scores for a mask that is True where a row may attend."""
    bias = torch.zeros(mask.shape, dtype=dtype, device=mask.device)
    return bias.masked_fill_(~mask, torch.finfo(dtype).min)


def visible(pads: Tensor, end: Tensor, n_slots: int) -> Tensor:
    """Which slots hold a text before slots `end` (B, R), behind its pads (B,); (B, R, slots)."""
    slot = torch.arange(n_slots, device=end.device)
    return (slot >= pads[:, None, None]) & (slot < end[:, :, None])


def side_by_side(before: Tensor, deep: int) -> Tensor:
    """Mask (B, R * deep, slots + R * deep) of runs of `deep` tokens, R of each of B sequences.

    Args:
        before: what the tokens of a run see besides those of it (B, R, slots).
        deep: tokens of a run.
    """
    own = torch.ones(deep, deep, dtype=torch.bool, device=before.device).tril()
    runs = torch.block_diag(*[own] * before.shape[1]).bool().expand(len(before), -1, -1)
    return torch.cat([before.repeat_interleave(deep, 1), runs], -1)


def left_padded(prompts: list[list[int]]) -> tuple[Tensor, Tensor]:
    """Token ids (B, P) and the number of pads (id 0, which no token ever sees) in front (B,)."""
    width = max(map(len, prompts))
    rows = [[0] * (width - len(p)) + p for p in prompts]
    return torch.tensor(rows), torch.tensor([width - len(p) for p in prompts])


def right_padded(texts: Sequence[Sequence[int] | np.ndarray]) -> Tensor:
    """Token ids (B, T), with the id 0 behind shorter texts."""
    rows = [torch.as_tensor(text, dtype=torch.long) for text in texts]
    return nn.utils.rnn.pad_sequence(rows, batch_first=True)


def causal_mask(pads: Tensor, start: int, end: int) -> Tensor:
    """Mask (B, 1, end - start, end) of the slots start … end - 1, which hold a running text.

    A pad attends to itself alone, so that no row is empty.
    """
    query = torch.arange(start, end, device=pads.device)[:, None]
    key = torch.arange(end, device=pads.device)[None, :]
    real = (key >= pads[:, None, None]) & (key <= query)
    return (real | (key == query))[:, None]
