"""The layers for multi-token prediction (MTP) that some checkpoints hold beside their target.

Layer 1 reads pairs of the target's state behind a token and the token after it, and proposes the
next one (DeepSeek-V3, arXiv 2412.19437, section 2.2). Layer k reads layer k - 1's states with the
tokens one place further on, so it proposes the k-th; embeddings and output matrix are the target's.
Each layer is used once, so a draft has as many tokens as there are layers. That is how
`transformers.generation.candidate_generator.MTPCandidateGenerator` runs them, whose classes these
are.

A layer has a row, and its keys and values, for each pair. At a start behind n known tokens the last
k - 1 rows of layer k read drafted tokens; the rows before them depend on the text alone, so they
are computed once for all starts.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from textwrap import shorten
from typing import Any, ClassVar

import torch
from torch import Tensor
from transformers import PreTrainedModel, modeling_layers

from traces.errors import RecordError
from traces.manifest import ModelInfo
from traces.record.cache import Buffer
from traces.record.drafters.feature import Choose, likeliest
from traces.record.drafters.texts import DraftLogits, StartGroup, Texts, at_slots, groups
from traces.record.forward import as_bias, visible
from traces.record.header import folder_id, model_shape
from traces.record.pair import embedding, weights_hash

_FULL = "full_attention"


@dataclass(frozen=True)
class Mtp:
    """A target's MTP layers in memory.

    Attributes:
        net: transformers' `MtpModel` in eval mode.
        layers: the target's layers that they read, see `Layers`: its last states.
        vocab_size: of the target.
        info: what a manifest says of them.
    """

    net: Any
    layers: tuple[int, ...]
    vocab_size: int
    info: ModelInfo
    ids: ClassVar[None] = None

    @property
    def n_layers(self) -> int:
        """MTP layers, tokens of the longest draft."""
        return len(self.net.layers)

    def describe(self) -> ModelInfo:
        """What a manifest says of them: of their own weights, not of what is the target's."""
        return self.info

    def draft(
        self, texts: Texts, length: int, choose: Choose | None = None
    ) -> Iterator[DraftLogits]:
        """What they propose at every start of a batch, in groups of starts.

        A text of one token has no pair: its draft begins with the token and a zero vector.

        Args:
            texts: with the target's last states; on its device.
            length: K tokens a draft, up to `n_layers`.
            choose: see `traces.record.drafters.feature.Feature.draft`.

        Raises:
            RecordError: the states are missing or of another width.
        """
        parts = list(groups(texts, length, self.vocab_size))
        widest = max((part.start.shape[1] for part in parts), default=0)
        width = texts.tokens.shape[1]
        cache = Buffer(length, width + widest * (length - 1))
        known = self._known(texts, length, cache)
        for group in parts:
            yield self._group(texts, known, cache, group, choose or likeliest(None))
            cache.cut(width)

    @torch.inference_mode()
    def _known(self, texts: Texts, length: int, cache: Buffer) -> list[Tensor]:
        """Each layer's states (B, W, H) of the pairs that hold text alone.

        Slot s of layer k is the row of the state before s and token s + k - 1. Rows at the end,
        whose tokens are not in the text, are never seen.
        """
        features = texts.one_later(texts.read_states(self.net.config.hidden_size))
        found = []
        for k in range(length):
            tokens = texts.tokens.roll(-k, 1)
            place = texts.text_positions + k, texts.pair_mask
            features = self._layer(k, tokens, features, *place, cache)
            found.append(features)
        return found

    @torch.inference_mode()
    def _group(
        self, texts: Texts, known: list[Tensor], cache: Buffer, group: StartGroup, choose: Choose
    ) -> DraftLogits:
        """Draft at all starts of a group, a layer a depth; its rows are B texts, R starts, k."""
        sequence, _ = group.alive.nonzero(as_tuple=True)
        start, last = group.start[group.alive], group.slot
        drafted = torch.zeros(*last.shape, 0, dtype=torch.long, device=last.device)
        own = known[0].new_zeros(*last.shape, 0, known[0].shape[-1])
        logits = []
        for k in range(len(known)):
            features = at_slots(known[k], last)
            if k:
                # One row more reads a drafted token; a layer ago it was one of text alone.
                first = at_slots(known[k - 1], (last - k + 1).clamp_min(0))
                own = torch.cat([first[:, :, None], own], 2)
                own = self._own(k, texts, last, drafted, own, cache)
                features = own[:, :, -1]
            rows = self.net.shared_head(features[group.alive])[:, : self.vocab_size]
            chosen = choose(sequence, start, k + 1, rows)
            token = torch.zeros_like(last).masked_scatter(group.alive, chosen)
            drafted = torch.cat([drafted, token[:, :, None]], 2)
            logits.append(rows)
        tokens = drafted[group.alive]
        return DraftLogits(sequence, start, torch.stack(logits, 1), tokens)

    def _own(
        self, k: int, texts: Texts, last: Tensor, drafted: Tensor, before: Tensor, cache: Buffer
    ) -> Tensor:
        """States (B, R, k, H) of the rows that read drafted tokens.

        Args:
            k: of the layer, from 0.
            texts: as they are known.
            last: slot of each start's last known token (B, R).
            drafted: tokens so far (B, R, k).
            before: the layer before's states of these rows (B, R, k, H).
            cache: of the known rows; takes these up.
        """
        size = last.shape[1]
        pads = texts.pads[:, None, None]
        row = last[:, :, None] + torch.arange(1 - k, 1, device=last.device)  # (B, R, k)
        there = (row > pads) | (row == last[:, :, None])  # a short text has fewer
        shared = visible(texts.pads + 1, last - k + 1, texts.tokens.shape[1])
        shared = shared.repeat_interleave(k, 1)  # (B, R * k, W)
        index = torch.arange(size * k, device=last.device)
        same = (index[:, None] // k == index // k) & (index <= index[:, None])
        among = (same & there.flatten(1)[:, None]) | (index == index[:, None])
        text = (row - pads).clamp_min(0) + k
        given = drafted.flatten(1), before.flatten(1, 2), text.flatten(1)
        states = self._layer(k, *given, torch.cat([shared, among], -1), cache)
        return states.unflatten(1, (size, k))

    def _layer(
        self, k: int, tokens: Tensor, before: Tensor, positions: Tensor, mask: Tensor, cache: Buffer
    ) -> Tensor:
        """States (B, n, H) behind pairs of tokens and the states before, which it caches."""
        embedded = self.net.embed_tokens(tokens)
        kind = {"layer_type": _FULL} if self.net.has_per_layer_rope else {}
        return self.net.layers[k](
            embedded,
            before,
            position_embeddings=self.net.rotary_emb(embedded, position_ids=positions, **kind),
            attention_mask=as_bias(mask, embedded.dtype)[:, None],
            position_ids=positions,
            past_key_values=cache,
        )


def load(target: PreTrainedModel) -> Mtp:
    """Load the MTP layers of a target, from the folder that it was loaded from.

    Raises:
        RecordError: it has none, or they cannot be read.
    """
    folder = target.config._name_or_path
    if not hasattr(modeling_layers, "MtpModel"):
        raise RecordError("MTP layers need transformers 5.23 or later")
    if not getattr(target.config, "num_mtp_layers", None):
        raise RecordError(f"{folder}: the target has no MTP layers (num_mtp_layers in its config)")
    if not Path(folder).is_dir():
        raise RecordError(f"{folder}: MTP layers are read from a folder: give one as --target")
    try:
        net = modeling_layers.MtpModel.from_pretrained(target, {"": str(target.device)}).eval()
    except Exception as e:  # a library's checks raise what they like
        why = shorten(str(e) or type(e).__name__, 200, placeholder=" …")
        raise RecordError(f"{folder}: its MTP layers cannot be loaded: {why}") from e
    other = set(getattr(net.config, "layer_types", None) or [_FULL]) - {_FULL}
    if other:
        raise RecordError(
            f"{folder}: MTP layers of type {', '.join(sorted(other))} cannot be run, only full"
            " attention"
        )
    info = ModelInfo(
        id=folder_id(folder),
        revision=None,
        weights_sha256=weights_hash(net.layers),
        dtype=str(target.dtype).removeprefix("torch."),
        vocab_size=embedding(target).num_embeddings,
        n_parameters=sum(p.numel() for p in net.layers.parameters()),
        architecture=type(net).__name__,
        shape=model_shape(net.config),
    )
    return Mtp(net, (target.config.num_hidden_layers,), info.vocab_size, info)
