"""The target of a recording, loaded again, and the outputs that it follows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor
from transformers import PreTrainedModel

from traces.attach.drafter import Attachable, Means
from traces.errors import DrafterError
from traces.record.drafters.layers import Layers
from traces.record.drafters.texts import Texts, make_texts
from traces.record.forward import Forward, causal_mask
from traces.record.pair import DTYPES, Alone, weights_hash
from traces.record.prompts import Prompt
from traces.sampler import Sampler
from traces.trace import Trace


class TargetRead(NamedTuple):
    """What a target says of the texts of one shard."""

    texts: Texts
    logits: Tensor  # (B, 1 + T, V), behind the prompts' last token and all of the outputs
    states: dict[int, Tensor]  # (B, W, H) of a layer; zeros in pads


class TargetReader:
    """A target that reads each text of a recording once, whoever drafts from it.

    Drafters that are attached in one run share it. A text is read by itself, so that no pass has
    pads.

    Args:
        recording: whose prompts and outputs they are.
        target: that was recorded.
        means: with which it was loaded.

    Attributes:
        longest: tokens of the recording's longest text.
    """

    def __init__(self, recording: Trace, target: Alone, means: Means) -> None:
        self.target, self._recording, self._means = target, recording, means
        n_prompt, n_output = (recording.sequences[n].to_numpy() for n in ("n_prompt", "n_output"))
        self.longest = int((n_prompt + n_output).max(initial=0))
        self._layers: set[int] = set()
        self._last: tuple[int, TargetRead] | None = None

    def serves(self, recording: Trace, means: Means) -> bool:
        """Whether a drafter of this recording, run with these means, may share it."""
        mine = self._means
        names = ("target", "device", "dtype", "revision")
        return recording is self._recording and all(
            getattr(means, name) == getattr(mine, name) for name in names
        )

    def want(self, layers: Sequence[int]) -> None:
        """Keep these layers' states from now on; see `Layers`."""
        self._layers |= set(layers)
        self._last = None

    def shard(self, index: int) -> TargetRead:
        """The texts of a shard; those of the last one that was asked for are kept."""
        if self._last is None or self._last[0] != index:
            self._last = None  # before the next one is there: both are large
            size, device = self._recording.manifest.batch_size, self.target.target.device
            prompts, outputs = given_outputs(self._recording, index * size, size)
            texts = make_texts([prompt.tokens for prompt in prompts], outputs, device)
            self._last = index, self.read(texts)
        return self._last[1]

    def read(self, texts: Texts) -> TargetRead:
        """What the target says of any texts, one by one."""
        n_slots, first = texts.tokens.shape[1], texts.start - 1
        logits, states = None, {}
        for row, (pad, n) in enumerate(
            zip(texts.pads.tolist(), texts.n_output.tolist(), strict=True)
        ):
            mine = slice(pad, texts.start + n)
            said, seen = self._pass(texts.tokens[row, mine], n + 1)
            if logits is None:
                logits = said.new_zeros(len(texts.tokens), n_slots - first, said.shape[-1])
                whole = len(texts.tokens), n_slots
                states = {k: s.new_zeros(*whole, s.shape[-1]) for k, s in seen.items()}
            logits[row, : n + 1] = said
            for layer, state in seen.items():
                states[layer][row, mine] = state
        assert logits is not None  # no shard is empty
        return TargetRead(texts, logits, states)

    def _pass(self, tokens: Tensor, kept: int) -> tuple[Tensor, dict[int, Tensor]]:
        """One text's last `kept` rows of logits (kept, V), and states (n, H) of all of it."""
        n = len(tokens)
        forward = Forward(self.target.target, self.target.vocab_size, n)
        slots = torch.arange(n, device=tokens.device)
        mask = causal_mask(slots.new_zeros(1), 0, n)
        given = tokens[None], slots[None], mask, kept
        if not self._layers:
            return forward.pass_(*given)[0], {}
        with Layers(self.target.target, sorted(self._layers)) as layers:
            logits = forward.pass_(*given)[0]
        return logits, {layer: state[0] for layer, state in layers.states.items()}


def own_sampler(recording: Trace, drafter: Attachable, means: Means) -> Sampler:
    """The sampler of the drafts, of a drafter that asks the target.

    Raises:
        DrafterError: no target is named; or the drafter samples its drafts where the outputs were
            drawn with another draft model's tokens.
    """
    known, sampler = recording.manifest, stated_sampler(recording, means)
    is_drawn = sampler.q_temperature > 0 and not means.tree  # a tree's nodes are certain
    if is_drawn and known.coupling != "target":
        raise DrafterError(
            f"{drafter.name} samples its drafts, but the outputs of {recording.path} were drawn"
            " with its own draft model: attach it to a recording made with --coupling target, or"
            " let it propose its likeliest tokens (--draft-temperature 0)"
        )
    if means.target is None:
        raise DrafterError(f"{drafter.name} needs the target that was recorded: give --target")
    return sampler


def stated_sampler(recording: Trace, means: Means) -> Sampler:
    """The recording's sampler, with the draft's temperature that is asked for, if one is."""
    if means.draft_temperature is None:
        return recording.sampler
    return replace(recording.sampler, draft_temperature=means.draft_temperature)


def own_dtype(recording: Trace, means: Means) -> str:
    """The dtype to run in: the one that is asked for, or that of the recording.

    Raises:
        DrafterError: what is asked for is none.
    """
    if means.dtype is not None and means.dtype not in DTYPES:
        raise DrafterError(f"unknown dtype {means.dtype!r} ({', '.join(DTYPES)})")
    known = means.dtype or recording.manifest.dtype or "float32"
    return known if known in DTYPES else "float32"


def check_target(recording: Trace, target: PreTrainedModel) -> None:
    """Refuse a model that is not the one which was recorded.

    In another dtype its weights are other bytes, and cannot be held against those.

    Raises:
        DrafterError: as said.
    """
    known = recording.manifest.target
    if known is None:
        raise DrafterError(
            f"{recording.path}: no target was recorded: only drafters from tokens can be attached"
        )
    if str(target.dtype).removeprefix("torch.") == known.dtype:
        if weights_hash(target) != known.weights_sha256:
            raise DrafterError(
                f"{target.config._name_or_path}: its weights are not those of {known.id}, whose"
                " outputs were recorded"
            )


def given_outputs(
    recording: Trace, first: int = 0, count: int | None = None
) -> tuple[list[Prompt], list[list[int]]]:
    """Prompts and outputs of some sequences, all unless `count` is given."""
    rows = recording.sequences.slice(first, count).to_pylist()
    prompts = [
        Prompt(
            id=row["id"] or str(row["sequence"]),
            task=row["task"],
            text=row["prompt_text"],
            tokens=row["prompt_tokens"],
        )
        for row in rows
    ]
    return prompts, [row["output_tokens"] for row in rows]
