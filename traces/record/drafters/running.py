"""Networks that are run over a recording's outputs: one draft, or a tree, from each start."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from traces import files
from traces.attach.drafter import Attachable, Attachment, Means, Size, header_of
from traces.columns import Columns, to_table
from traces.errors import DrafterError, RecordError
from traces.manifest import Manifest
from traces.messages import how_many
from traces.record.drafters import feature, mtp, parallel, trees
from traces.record.drafters.consumed import Consumed, consumed
from traces.record.drafters.coupling import COLUMNS, Coupled
from traces.record.drafters.nodes import NodeModel
from traces.record.drafters.target import TargetRead, TargetReader, check_target
from traces.record.drafters.texts import MOST_STARTS, Texts
from traces.record.header import device_name, library_versions, model_info
from traces.record.pair import load_target
from traces.record.proof import prove
from traces.trace import Trace
from traces.trees import shapes


def reader_of(recording: Trace, means: Means, dtype: str) -> TargetReader:
    """The target, loaded; that of another drafter of the same run if there is one."""
    for other in means.beside:
        if isinstance(other, Running) and other.reader.serves(recording, means):
            return other.reader
    assert means.target is not None
    target = load_target(means.target, means.device, dtype, means.revision)
    check_target(recording, target.target)
    return TargetReader(recording, target, means)


class Running(Attachment):
    """See `Attachment`. The target reads each text once, in one pass.

    Args:
        recording: whose outputs are followed.
        drafter: that was asked for.
        reader: of the target.
        network: loaded.
        depth: Γ.
        **facts: of the header, see `header_of`.
    """

    def __init__(
        self,
        recording: Trace,
        drafter: Attachable,
        reader: TargetReader,
        network: Any,
        depth: int,
        **facts: Any,
    ) -> None:
        self.reader, self._network, self._length = reader, network, depth
        reader.want(network.layers)
        model = reader.target.target
        self.header = header_of(
            recording,
            drafter,
            max_draft=depth,
            target=model_info(model),
            draft=network.describe(),
            vocab_size=network.vocab_size,
            dtype=str(model.dtype).removeprefix("torch."),
            device=device_name(model),
            libraries=library_versions(),
            statistics="plain",
            **facts,
        )
        _check_context(recording, drafter, self.header)
        self._prove()

    def _prove(self) -> None:
        """Refuse a causal LM that is read wrongly in texts as long as these and their drafts.

        Raises:
            RecordError: see `prove`.
        """
        longest, header = self.reader.longest, self.header
        prove(self.reader.target.target, longest)
        if isinstance(self._network, parallel.Parallel | NodeModel):
            drafts = MOST_STARTS * header.max_draft * (header.width or 1)
            prove(self._network.model, longest + header.max_draft, longest + drafts)

    @property
    def notes(self) -> list[str]:
        """See `Attachment`."""
        trained = self._network.block if isinstance(self._network, parallel.Parallel) else None
        if trained is None or self._length <= trained:
            return []
        return [
            f"it was trained for drafts of {how_many(trained, 'token')} (block in drafter.json),"
            f" and drafts {self._length} here"
        ]

    def _read(self, index: int) -> tuple[Texts, Tensor]:
        """The texts of a shard, with the states that the network reads, and the target's logits."""
        return self._given(self.reader.shard(index))

    def _given(self, read: TargetRead) -> tuple[Texts, Tensor]:
        """As `_read`, of texts that the target has read."""
        texts, logits, states = read
        if bool((texts.tokens[:, texts.start :] >= self._network.vocab_size).any()):
            raise RecordError(
                f"an output holds a token beyond the drafter's vocabulary of"
                f" {self._network.vocab_size}"
            )
        if self._network.layers:
            joined = torch.cat([states[layer] for layer in self._network.layers], -1)
            texts = replace(texts, states=joined)
        return texts, logits[..., : self._network.vocab_size]


class RunningDrafts(Running):
    """One draft from each start."""

    def shard(self, index: int) -> Mapping[str, Columns]:
        """See `Attachment`."""
        header = self.header
        first = index * header.batch_size
        texts, logits = self._read(index)
        coupled = Coupled(texts, logits, header, first, self._network.ids)
        if isinstance(self._network, feature.Feature | mtp.Mtp):
            for _ in self._network.draft(texts, self._length, coupled.choose):
                pass
        else:
            for drafts in self._network.draft(texts, self._length):
                coupled.follow(drafts.sequence, drafts.start, drafts.logits)
        return {"lattice": _columns(coupled.rows, first, header.lattice_columns)}


class Planting(Running):
    """A tree from each start: nodes are certain, so outputs may be drawn in either coupling.

    Args:
        wanted: see `shapes_of`.
        passes: see `Manifest.draft_passes`.
    """

    def __init__(
        self,
        recording: Trace,
        drafter: Attachable,
        reader: TargetReader,
        network: Any,
        wanted: list[shapes.Shape],
        passes: str,
    ) -> None:
        super().__init__(
            recording,
            drafter,
            reader,
            network,
            max(shape.levels for shape in wanted),
            kind="tree",
            draft_passes=passes,
            sampler=replace(recording.sampler, draft_temperature=0.0),
            shapes=tuple(map(shapes.text_of, wanted)),
            width=max(shape.width for shape in wanted),
        )

    def shard(self, index: int) -> Mapping[str, Columns]:
        """See `Attachment`."""
        return {"tree": self.judged(index, {})}

    def judged(self, index: int, judges: Mapping[str, trees.Judge]) -> trees.Columns:
        """The rows of a shard's trees, with what is said of each node; see `trees.Planter`."""
        texts, _ = self._read(index)
        rows = self._trees(texts, self.header.max_new_tokens, judges)
        first = np.int32(index * self.header.batch_size)
        return rows | {"sequence": rows["sequence"] + first}

    def consumed(
        self, index: int, share: float, generator: torch.Generator
    ) -> tuple[Consumed, Consumed]:
        """Draft tokens of a shard that the drafter has read; see there."""
        texts, logits = self._read(index)
        header, first = self.header, index * self.header.batch_size
        parts = consumed(
            self._network,
            TargetRead(texts, logits, {}),
            lambda mixed: self._given(self.reader.read(mixed)),
            header.sampler,
            header.eos_token_ids,
            share,
            generator,
        )
        on_text, mixed = (part._replace(sequence=part.sequence + first) for part in parts)
        return on_text, mixed

    def trial(self, index: int) -> Size:
        """See `Attachment`: a few starts in the middle of a few outputs, drafted twice."""
        texts, _ = self._read(index)
        texts, middle = _a_few(texts)
        longest = self.header.max_new_tokens - middle
        self._trees(texts, longest)  # compiled, and caches warm
        begin = time.perf_counter()
        rows = self._trees(texts, longest)
        data, _ = files.encode(to_table(rows, self.header.tables["tree"]))
        seconds, n = time.perf_counter() - begin, int(texts.n_output.sum())
        return Size(len(data) / n, seconds / n)

    def _trees(
        self, texts: Texts, longest: int, judges: Mapping[str, trees.Judge] | None = None
    ) -> trees.Columns:
        known = [shapes.parse(text) for text in self.header.shapes]
        eos = self.header.eos_token_ids
        return trees.trees_of(self._network, texts, known, eos, longest, judges)


def shapes_of(recording: Trace, drafter: Attachable, means: Means) -> list[shapes.Shape]:
    """The shapes that are asked for.

    Args:
        recording: whose outputs are followed.
        drafter: that was asked for.
        means: with shapes.

    Raises:
        DrafterError: they cannot be read, or are deeper than the drafter's drafts or the outputs.
    """
    wanted = shapes.expand(means.tree)
    depth = max(shape.levels for shape in wanted)
    length = getattr(drafter, "length", depth) if drafter.name == "parallel" else depth
    if depth > length:
        raise DrafterError(
            f"{drafter}: a tree of {how_many(depth, 'level')} needs drafts of as many tokens: give"
            f" length={depth}"
        )
    if depth > recording.max_new_tokens:
        raise DrafterError(
            f"--tree: {depth} levels are more than the trace's T_max = {recording.max_new_tokens}"
        )
    return wanted


def _a_few(texts: Texts) -> tuple[Texts, int]:
    """The middle of up to four outputs, what stands before it taken for prompts; how much that is.

    No more than eight tokens of each are taken.
    """
    middle = int(texts.n_output.max()) // 2
    some = (texts.n_output > middle).nonzero()[:4, 0]
    few = replace(
        texts,
        tokens=texts.tokens[some],
        pads=texts.pads[some],
        n_output=(texts.n_output[some] - middle).clamp(max=8),
        start=texts.start + middle,
        states=None if texts.states is None else texts.states[some],
    )
    return few, middle


def _check_context(recording: Trace, drafter: Attachable, header: Manifest) -> None:
    """Refuse a network whose context ends before what it drafts behind the recording's texts.

    Drafts end where T_max ends them, however many tokens were asked for.

    Raises:
        DrafterError: as said.
    """
    info, depth = header.draft, header.max_draft
    context = info.shape.get("max_position_embeddings") if info else None
    n_prompt, n_output = (recording.sequences[n].to_numpy() for n in ("n_prompt", "n_output"))
    reached = n_prompt + np.minimum(n_output + depth - 1, header.max_new_tokens)
    if context is not None and (longest := int(reached.max(initial=0))) > context:
        raise DrafterError(
            f"{drafter}: drafts of {how_many(depth, 'token')} behind these texts reach"
            f" {how_many(longest, 'token')}, and its context holds {context}"
            " (max_position_embeddings in its config)"
        )


def _columns(
    rows: list[dict[str, Tensor]], first_sequence: int, kept: tuple[str, ...]
) -> dict[str, np.ndarray]:
    """Rows in the order of their keys."""
    names = [name for name in rows[0] if name in kept or name not in COLUMNS]
    joined = {name: torch.cat([row[name] for row in rows]).cpu().numpy() for name in names}
    order = np.lexsort([joined[key] for key in ("depth", "start", "sequence")])
    joined["sequence"] = joined["sequence"] + first_sequence
    ids = ("sequence", "start", "depth", "draft_token")
    return {
        name: (value.astype(np.int32) if name in ids else value)[order]
        for name, value in joined.items()
    }
