"""Block drafters through transformers' own classes: DFlash, whose masks see each other both ways.

A draft that starts behind n known tokens is one pass over the last of them and B - 1 masks, which
attend to the target's states behind the n - 1 tokens before and to each other (DFlash, arXiv
2602.06036). So unlike PARD's, a draft of a shorter block is no beginning of a longer one: only
*verifying* fewer of its tokens is. The folder is an assistant model that
`transformers.generation.candidate_generator.DFlashTokenCandidateGenerator` takes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor
from transformers import AutoModel, PreTrainedModel, cache_utils

from traces.errors import RecordError
from traces.manifest import ModelInfo
from traces.record.drafters.layers import resolve
from traces.record.drafters.texts import DraftLogits, Texts, groups
from traces.record.header import model_info
from traces.record.pair import check_dtype, embedding, load_model


@dataclass(frozen=True)
class BlockDrafter:
    """A block drafter in memory.

    Attributes:
        model: transformers' assistant in eval mode.
        embedded: the target's input embeddings (V, H).
        output: the target's output layer.
        layers: the target's layers that it reads, see `Layers`.
        vocab_size: of the target.
    """

    model: PreTrainedModel
    embedded: torch.nn.Embedding
    output: Any
    layers: tuple[int, ...]
    vocab_size: int
    ids: ClassVar[None] = None

    @property
    def block(self) -> int:
        """Tokens of a draft: the first row of a pass holds a known token."""
        return self.model.config.block_size - 1

    def describe(self) -> ModelInfo:
        """What a manifest says of it."""
        return replace(model_info(self.model, self.vocab_size), revision=None)

    @torch.inference_mode()
    def draft(self, texts: Texts, length: int | None = None) -> Iterator[DraftLogits]:
        """What it proposes at every start of a batch, in groups of starts of one text.

        Args:
            texts: with the target's states of `layers`; on the model's device.
            length: tokens of a draft, all of the block's unless given; the block stays as it is.

        Raises:
            RecordError: the states are missing or of another width.
        """
        texts.read_states(len(self.layers) * self.embedded.embedding_dim)
        for group in groups(texts, self.block + 1, self.vocab_size):
            for row in range(len(texts.tokens)):
                slot, start = (t[row][group.alive[row]] for t in (group.slot, group.start))
                if len(start):
                    logits = self._starts(texts, row, slot)[:, :length]
                    yield DraftLogits(torch.full_like(start, row), start, logits)

    def _starts(self, texts: Texts, row: int, slot: Tensor) -> Tensor:
        """Logits (S, K, V) behind the tokens at these slots (S,) of one text."""
        assert texts.states is not None
        before = slot - texts.pads[row]  # known tokens but the last
        width = int(before.max())
        # Contexts end where their blocks begin, so that distances are those of the text.
        place = torch.arange(width, device=slot.device) - width
        context = texts.states[row][(slot[:, None] + place).clamp_min(0)]
        seen = torch.arange(width, device=slot.device) >= width - before[:, None]
        length = self.model.config.block_size
        depth = torch.arange(length, device=slot.device)
        ids = torch.where(
            depth == 0, texts.tokens[row, slot][:, None], self.model.config.mask_token_id
        )
        text = before[:, None] + torch.cat([place, depth])
        cache = cache_utils.DFlashCache(config=self.model.config)
        cache.set_previous_accepted_tokens(width)
        states = self.model(
            noise_embeds=self.embedded(ids).to(self.model.dtype),
            context_hidden_states=context.to(self.model.dtype),
            position_ids=text.clamp_min(0),
            attention_mask=torch.cat([seen, torch.ones_like(ids, dtype=torch.bool)], 1).long(),
            past_key_values=cache,
        ).last_hidden_state
        return self.output(states[:, 1:])


def load(
    folder: str | Path, target: PreTrainedModel, device: str = "cpu", dtype: str = "float32"
) -> BlockDrafter:
    """Load a DFlash assistant's folder for a target.

    Raises:
        RecordError: the folder is no such model, or does not fit the target.
    """
    if not hasattr(cache_utils, "DFlashCache"):
        raise RecordError("block drafters need transformers 5.23 or later")
    check_dtype(dtype)
    model = load_model(str(folder), "", device, dtype, AutoModel).eval()
    config: Any = model.config
    for name in ("block_size", "mask_token_id", "target_layer_ids"):
        if not hasattr(config, name):
            raise RecordError(f"{folder}: no DFlash drafter: its config has no {name}")
    embedded = embedding(target)
    if config.hidden_size != embedded.embedding_dim:
        raise RecordError(
            f"{folder}: made for a target of width {config.hidden_size}, "
            f"this one has {embedded.embedding_dim}"
        )
    if config.block_size < 2:
        raise RecordError(f"{folder}: block_size {config.block_size} leaves no token to draft")
    if not 0 <= config.mask_token_id < embedded.num_embeddings:
        raise RecordError(
            f"{folder}: mask_token_id {config.mask_token_id} is outside the target's vocabulary "
            f"of {embedded.num_embeddings}"
        )
    # Its ids count decoder layers from 0, whose outputs are the hidden states from 1 on.
    layers = [layer + 1 for layer in config.target_layer_ids]
    found = resolve(layers, target.config.num_hidden_layers, f"{folder}: the target")
    output = target.get_output_embeddings()
    return BlockDrafter(model, embedded, output, found, embedded.num_embeddings)
