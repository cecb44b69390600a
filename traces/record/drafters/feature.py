"""Feature drafters: an EAGLE-type chain, which goes on from the target's states.

A draft that starts behind n known tokens begins with the pairs (f_t, x_{t+1}), t < n, of the
target's features and the tokens behind them; from the last one come the features that propose token
n + 1. Deeper rows take the drafter's own features and its own tokens, so the drafts of two starts
share nothing but the known pairs. A folder is a public EAGLE-1, 2 or 3 checkpoint (`config.json`
and safetensors); what it lacks of embeddings and output matrix is the target's. One of EAGLE-1's
form may have a reduced vocabulary, too: its logits are those rows of the target's output matrix.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from transformers import LlamaConfig, PreTrainedModel

from traces.errors import RecordError
from traces.manifest import ModelInfo
from traces.record.cache import Buffer
from traces.record.drafters import files
from traces.record.drafters.eagle import Eagle1, Eagle3, Place
from traces.record.drafters.layers import resolve
from traces.record.drafters.texts import DraftLogits, StartGroup, Texts, at_slots, groups
from traces.record.drafters.vocabulary import check_tables, ids_of, named
from traces.record.forward import as_bias, visible
from traces.record.header import folder_id, model_shape
from traces.record.pair import DTYPES, check_dtype, embedding, weights_hash

Choose = Callable[[Tensor, Tensor, int, Tensor], Tensor]
_OLD_NAMES = ("layers.0.self_attn.rotary_emb.inv_freq", "midlayer.self_attn.rotary_emb.inv_freq")


def likeliest(ids: Tensor | None) -> Choose:
    """Greedy drafts: the token (S,) of the highest logit (S, D) of these ids (D,), see `named`."""
    return lambda sequence, start, depth, logits: named(logits.argmax(-1), ids)


@dataclass(frozen=True)
class Feature:
    """A feature drafter in memory.

    Attributes:
        net: in eval mode.
        embedded: input embeddings (V, H).
        output: the target's output matrix (V, H).
        layers: the target's layers that it reads, see `Layers`.
        vocab_size: ids that it and the target share.
        info: what a manifest says of it.
    """

    net: Eagle1 | Eagle3
    embedded: Tensor
    output: Tensor
    layers: tuple[int, ...]
    vocab_size: int
    info: ModelInfo

    def describe(self) -> ModelInfo:
        """What a manifest says of it: of its own files, not of what it borrows of the target."""
        return self.info

    @cached_property
    def ids(self) -> Tensor | None:
        """What its columns of logits stand for (D,); None if for all ids of the target."""
        d2t = dict(self.net.named_buffers()).get("d2t")
        if d2t is None or (len(d2t) == self.vocab_size and not bool(d2t.any())):
            return None
        return ids_of(d2t)

    def draft(
        self, texts: Texts, length: int, choose: Choose | None = None
    ) -> Iterator[DraftLogits]:
        """What it proposes at every start of a batch, in groups of starts.

        Args:
            texts: with the target's states of `layers`; on the drafter's device.
            length: K >= 1 tokens a draft.
            choose: given the sequences (S,) counted from 0, the starts (S,), the depth from 1 and
                the logits (S, D), says the token (S,) that each draft goes on with, an id of the
                target; else it is the likeliest.

        Raises:
            RecordError: the states are missing or of another width.
        """
        choose = choose or likeliest(self.ids)
        n_columns = self.vocab_size if self.ids is None else len(self.ids)
        parts = list(groups(texts, length, n_columns))
        width = texts.tokens.shape[1]
        widest = max((part.start.shape[1] for part in parts), default=0)
        cache = Buffer(1, width + widest * length)
        before, _ = self.read(texts, cache)
        for group in parts:
            yield self._group(texts, before, cache, group, length, choose)
            cache.cut(width)

    @torch.inference_mode()
    def _group(
        self,
        texts: Texts,
        before: Tensor,
        cache: Buffer,
        group: StartGroup,
        length: int,
        choose: Choose,
    ) -> DraftLogits:
        """Draft at all starts of a group, one pass a depth."""
        last = group.slot
        sequence, _ = group.alive.nonzero(as_tuple=True)
        start = group.start[group.alive]
        mask = visible(texts.pads + 1, last, texts.tokens.shape[1])
        itself = torch.eye(last.shape[1], dtype=torch.bool, device=last.device)
        itself = itself.expand(len(last), -1, -1)
        position = (texts.text_positions.gather(1, last) - 1).clamp_min(0)
        token = texts.tokens.gather(1, last)
        features = at_slots(before, last)
        logits, tokens = [], []
        for depth in range(1, length + 1):
            mask = torch.cat([mask, itself], -1)
            features = self.step(token, features, position + depth - 1, mask, cache)
            rows = self.net.logits(features[group.alive], self.output)[:, : self.vocab_size]
            chosen = choose(sequence, start, depth, rows)
            token = token.masked_scatter(group.alive, chosen)
            logits.append(rows)
            tokens.append(chosen)
        return DraftLogits(sequence, start, torch.stack(logits, 1), torch.stack(tokens, 1))

    def step(
        self, tokens: Tensor, features: Tensor, positions: Tensor, mask: Tensor, cache: Buffer
    ) -> Tensor:
        """One pass: the features (B, n, H) behind pairs of features and tokens, which it caches.

        Args:
            tokens: (B, n).
            features: (B, n, H) of the slot before each token.
            positions: (B, n).
            mask: (B, n, slots so far + n), True where a pair may attend.
            cache: takes the pairs up.
        """
        bias = as_bias(mask, features.dtype)[:, None]
        place = Place(self.net.rotary(features, positions), bias, cache)
        return self.net(nn.functional.embedding(tokens, self.embedded), features, place)

    @torch.inference_mode()
    def read(self, texts: Texts, cache: Buffer) -> tuple[Tensor, Tensor]:
        """Cache the pairs of texts; the features (B, W, H) that tokens are read with, and its own.

        Those are of the slot before each; none (zeros) for a text's first token.

        Raises:
            RecordError: the states are missing or of another width.
        """
        states = texts.read_states(len(self.layers) * self.output.shape[1])
        before = texts.one_later(self.net.fused(states.to(self.embedded)))
        positions = (texts.text_positions - 1).clamp_min(0)
        return before, self.step(texts.tokens, before, positions, texts.pair_mask, cache)


def load(
    folder: str | Path, target: PreTrainedModel, device: str = "cpu", dtype: str = "float32"
) -> Feature:
    """Load an EAGLE checkpoint of the Llama family for a target.

    Which of the EAGLEs it is, its tensors' names say.

    Raises:
        RecordError: the folder is no such checkpoint, or does not fit the target.
    """
    folder = Path(folder)
    check_dtype(dtype)
    values, config = files.llama_config(folder)
    found: dict[str, Tensor] = {}
    for file in sorted(folder.glob("*.safetensors")):
        found |= files.tensors(file, ())
    for name in _OLD_NAMES:
        found.pop(name, None)
    embedded = found.pop("embed_tokens.weight", embedding(target).weight.detach())
    output: Any = target.get_output_embeddings()
    vocab_size = min(len(embedded), len(output.weight))
    _check_target(folder, config, target, embedded)
    net, layers = _net(folder, values, config, target, found)
    files.fill(folder, net, found, "EAGLE")
    if "d2t" in found:
        check_tables(folder, net.d2t, net.t2d, vocab_size)
    net = net.to(DTYPES[dtype]).to(device).eval()
    place = {"device": device, "dtype": DTYPES[dtype]}
    info = ModelInfo(
        id=folder_id(str(folder)),
        revision=None,
        weights_sha256=weights_hash(net),
        dtype=dtype,
        vocab_size=len(found.get("d2t", embedded)),
        n_parameters=sum(p.numel() for p in net.parameters()),
        architecture=net.name,
        shape=model_shape(config),
    )
    weights = (embedded.to(**place), output.weight.detach().to(**place))
    return Feature(net, *weights, layers, vocab_size, info)


def _net(
    folder: Path,
    values: dict[str, Any],
    config: LlamaConfig,
    target: PreTrainedModel,
    found: dict[str, Tensor],
) -> tuple[Eagle1 | Eagle3, tuple[int, ...]]:
    """An empty network for these tensors, and the target's layers that it reads."""
    n_layers = target.config.num_hidden_layers
    if not any(name.startswith("midlayer.") for name in found):
        return Eagle1(config, "fc.bias" in found, len(found.get("d2t", ()))), (n_layers,)
    layers = resolve(_fused(folder, values, n_layers), n_layers, f"{folder}: the target")
    n_ids = len(found.get("d2t", found.get("lm_head.weight", torch.zeros(1))))
    if "d2t" not in found:  # the whole vocabulary
        found["d2t"] = torch.zeros(n_ids, dtype=torch.long)
        found["t2d"] = torch.ones(config.vocab_size, dtype=torch.bool)
    return Eagle3(config, len(layers) * target.config.hidden_size, n_ids), layers


def _fused(folder: Path, values: dict[str, Any], n_layers: int) -> list[int]:
    """The three layers that EAGLE-3 reads: what its config says, or those of its public code."""
    more = values.get("eagle_config")
    if isinstance(more, dict) and "eagle_aux_hidden_state_layer_ids" in more:
        settings = files.DrafterSettings(folder / "config.json", more)
        return settings.wholes("eagle_aux_hidden_state_layer_ids")
    return [2, n_layers // 2, n_layers - 3]


def _check_target(
    folder: Path, config: LlamaConfig, target: PreTrainedModel, embedded: Tensor
) -> None:
    """Refuse a target of another width or vocabulary."""
    theirs, rows = target.config.hidden_size, embedding(target).num_embeddings
    if config.hidden_size != theirs:
        raise RecordError(
            f"{folder}: made for a target of width {config.hidden_size}, this one has {theirs}"
        )
    if config.vocab_size != rows or embedded.shape != (rows, theirs):
        raise RecordError(
            f"{folder}: made for {config.vocab_size} token ids, the target has {rows}"
        )
