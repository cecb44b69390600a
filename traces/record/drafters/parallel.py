"""Parallel drafters: PARD and PARD-2, which draft K tokens in one pass over K - 1 masks.

A draft that starts behind n known tokens is the answer to "x_1 … x_n m m … m": the last known
token's row proposes token n + 1, mask j proposes token n + 1 + j. Rows are causal, so a shorter
draft is the beginning of a longer one. In PARD-2's target-dependent mode t = Linear(features of
the target behind the token before) is added to a token's embedding; a mask has the t of the last
known token. Sources: PARD (arXiv 2504.18583), PARD-2 (arXiv 2605.08632, sections 3.3 and 3.4).

A drafter is a model's folder with `drafter.json` and, in the dependent mode, the linear map as
`projection` in `projection.safetensors`; one without a matrix of tokens, which borrows the target's
(see `borrowed`); or a checkpoint as PARD publishes them, whose config has a `pard_token`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from transformers import PreTrainedModel

from traces import reading
from traces.errors import RecordError
from traces.manifest import ModelInfo
from traces.messages import how_many
from traces.record.drafters import borrowed, files
from traces.record.drafters.layers import resolve
from traces.record.drafters.texts import (
    MOST_STARTS,
    DraftLogits,
    StartGroup,
    Texts,
    at_slots,
    groups,
)
from traces.record.drafters.vocabulary import ids_of
from traces.record.forward import Forward, check_excess, visible
from traces.record.header import model_info
from traces.record.pair import check_dtype, check_tokenizers, embedding, load_model, load_tokenizer

MODES = ("independent", "dependent")
PROJECTION = "projection.safetensors"
_MOST_ROWS = 512  # of one text's pass: each sees all of the others' slots, if behind a mask
_MOST_BYTES = 16 * reading.MEBIBYTE  # of a config


@dataclass(frozen=True)
class Parallel:
    """A parallel drafter in memory.

    Attributes:
        model: a causal LM in eval mode.
        mask_token_id: the one id that stands for every token to come.
        block: tokens of a draft that it was trained for, None where that is not said.
        vocab_size: ids that it and the target share.
        layers: the target's layers that it reads, none in the independent mode; see `Layers`.
        feature_scale: the states are multiplied by it before the projection.
        projection: (H, layers x H of the target), or None.
    """

    model: PreTrainedModel
    mask_token_id: int
    block: int | None
    vocab_size: int
    layers: tuple[int, ...] = ()
    feature_scale: float = 1.0
    projection: Tensor | None = None

    @cached_property
    def ids(self) -> Tensor | None:
        """What its columns of logits stand for (D,); None if for all ids of the target."""
        head = self.model.get_output_embeddings()
        return ids_of(head.d2t) if isinstance(head, borrowed.BorrowedHead) else None

    def describe(self) -> ModelInfo:
        """What a manifest says of it; the projection counts as a part of it."""
        info = model_info(self.model)
        if self.projection is None:
            return info
        digest = hashlib.sha256(info.weights_sha256.encode())
        digest.update(self.projection.contiguous().cpu().view(torch.uint8).numpy().data)
        n_parameters = info.n_parameters + self.projection.numel()
        return replace(info, n_parameters=n_parameters, weights_sha256=digest.hexdigest())

    def draft(self, texts: Texts, length: int) -> Iterator[DraftLogits]:
        """What it proposes at every start of a batch, some starts at a time.

        On a processor each text is read by itself, so that no pass has pads, nor starts of outputs
        that have ended. On a GPU all are read at once: there the number of passes takes time.

        Args:
            texts: with the target's states of `layers` if it reads any; on the model's device.
            length: K >= 1 tokens a draft.

        Raises:
            RecordError: the states are missing or of another width, or the drafter expects tokens
                that the target does not know.
        """
        if texts.tokens.device.type != "cpu":
            yield from (drafts for _, drafts in self.grouped(texts, length))
            return
        most = max(1, _MOST_ROWS // length)
        for row in range(len(texts.tokens)):
            for _, drafts in self.grouped(texts.one(row), length, most):
                yield drafts._replace(sequence=drafts.sequence + row)

    def grouped(
        self, texts: Texts, length: int, most: int = MOST_STARTS
    ) -> Iterator[tuple[StartGroup, DraftLogits]]:
        """As `draft`, of all texts at once: groups of up to `most` starts, with what they say.

        The last group comes first: what its starts see, and those before do not, is then cut from
        the cache.
        """
        features = self._features(texts)
        width = texts.tokens.shape[1]
        n_columns = self.vocab_size if self.ids is None else len(self.ids)
        parts = list(groups(texts, length, n_columns, most))
        widest = max((part.start.shape[1] for part in parts), default=0)
        forward = Forward(self.model, self.vocab_size, width + widest * length)
        forward.pass_(texts.tokens, texts.text_positions, texts.mask, 1, features)
        for group in reversed(parts):
            forward.cache.cut(int(group.slot.max()))
            logits = self._group(forward, texts, features, group, length)
            sequence, _ = group.alive.nonzero(as_tuple=True)
            check_excess(forward, "drafter")
            alive = logits.flatten(0, 1) if bool(group.alive.all()) else logits[group.alive]
            yield group, DraftLogits(sequence, group.start[group.alive], alive)

    def _group(
        self,
        forward: Forward,
        texts: Texts,
        features: Tensor | None,
        group: StartGroup,
        length: int,
    ) -> Tensor:
        """Logits (B, R, K, D): the last known token again and K - 1 masks, for each start.

        In the pass all starts' rows of a depth stand together, as their statistics want them.
        """
        size = group.start.shape[1]
        depth = torch.arange(length, device=group.slot.device)[:, None]
        last = texts.tokens.gather(1, group.slot)[:, None]
        fed = torch.where(depth == 0, last, self.mask_token_id)
        text = texts.text_positions.gather(1, group.slot)[:, None] + depth
        seen = visible(texts.pads, group.slot, forward.cache.length)
        before = torch.ones(length, length, device=depth.device).tril()
        own = torch.kron(before, torch.eye(size, device=depth.device)).bool()
        mask = torch.cat([seen.repeat(1, length, 1), own.expand(len(seen), -1, -1)], -1)
        added = None
        if features is not None:
            added = at_slots(features, group.slot).repeat(1, length, 1)
        logits = forward.pass_(fed.flatten(1), text.flatten(1), mask[:, None], added=added)
        return logits.unflatten(1, (length, size)).transpose(1, 2)

    def _features(self, texts: Texts) -> Tensor | None:
        """What is added to each slot's embedding (B, W, H): t of the slot before it."""
        if self.projection is None:
            return None
        states = texts.read_states(self.projection.shape[1]).to(self.projection)
        return texts.one_later(F.linear(states * self.feature_scale, self.projection))


def load(
    folder: str | Path,
    target: PreTrainedModel,
    tokenizer: Any,
    device: str = "cpu",
    dtype: str = "float32",
    mode: str | None = None,
) -> Parallel:
    """Load a parallel drafter's folder for a target.

    Args:
        folder: of the drafter.
        target: whose outputs it is run over.
        tokenizer: the target's.
        device: as for `load_pair`.
        dtype: one of `DTYPES`.
        mode: one of `MODES` instead of the one in `drafter.json`.

    Raises:
        RecordError: the folder is no parallel drafter, or does not fit the target.
    """
    folder = Path(folder)
    settings, block = settings_of(folder)
    mode = mode or settings.word("mode", MODES)
    if mode not in MODES:
        raise RecordError(f"{folder}: unknown mode {mode!r}: use one of {', '.join(MODES)}")
    check_dtype(dtype)
    if "embeddings" in settings.values and settings.word("embeddings", ("target",)):
        model: PreTrainedModel = borrowed.load(folder, target, device, dtype)
    else:
        check_tokenizers(tokenizer, load_tokenizer(str(folder)))
        model = load_model(str(folder), "", device, dtype).eval()
    n_rows = embedding(model).num_embeddings
    mask_token_id = settings.whole("mask_token_id", 0)
    if mask_token_id >= n_rows:
        raise RecordError(
            f"{settings.file}: mask_token_id {mask_token_id} is outside the vocabulary of {n_rows}"
        )
    vocab_size = min(n_rows, embedding(target).num_embeddings)
    plain = Parallel(model, mask_token_id, block, vocab_size)
    return plain if mode == "independent" else _dependent(plain, settings, target)


def settings_of(folder: Path) -> tuple[files.DrafterSettings, int | None]:
    """What a folder says of its drafter, and of the tokens of a draft that it was trained for.

    Raises:
        RecordError: it is no parallel drafter's.
    """
    public = None if (folder / files.SETTINGS).exists() else _public(folder)
    if public is not None:
        return public, None
    settings = files.settings(folder, "parallel")
    return settings, settings.whole("block", 1)


def _public(folder: Path) -> files.DrafterSettings | None:
    """Settings of a checkpoint as PARD publishes them: its config names the mask."""
    file = folder / "config.json"
    if not file.exists():
        return None
    config = reading.parse_json(
        reading.read_text(file, _MOST_BYTES, RecordError), file, RecordError
    )
    if not isinstance(config, dict) or "pard_token" not in config:
        return None
    return files.DrafterSettings(
        file, {"mask_token_id": config["pard_token"], "mode": "independent"}
    )


def _dependent(
    plain: Parallel, settings: files.DrafterSettings, target: PreTrainedModel
) -> Parallel:
    """Give a drafter its eyes on the target."""
    asked = settings.wholes("target_layers")
    layers = resolve(asked, target.config.num_hidden_layers, f"{settings.file}: the target")
    weight = embedding(plain.model).weight
    file = settings.file.with_name(PROJECTION)
    projection = files.tensors(file, {"projection"})["projection"]
    wanted = (weight.shape[1], len(layers) * target.config.hidden_size)
    if tuple(projection.shape) != wanted:
        raise RecordError(
            f"{file}: the projection is {' x '.join(map(str, projection.shape))}, but the drafter "
            f"and {how_many(len(layers), 'layer')} of this target need {wanted[0]} x {wanted[1]}"
        )
    return replace(
        plain,
        layers=layers,
        feature_scale=settings.number("feature_scale"),
        projection=projection.to(weight.device, weight.dtype),
    )
