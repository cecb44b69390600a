"""The proof that a model which takes no masks is read rightly in its own passes.

Three things are relied on, as far as they are used: that `generate` and a pass over a whole text
agree with passes over each of its beginnings; that texts which are read side by side, a token a
pass, agree with them too; and that clones of a text's state are its own, alone and joined, while
the text that they were cloned from goes on.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from typing import Literal, NamedTuple
from weakref import WeakKeyDictionary

import torch
from torch import nn
from transformers import PreTrainedModel

from traces.errors import RecordError
from traces.record.own_texts import OwnText
from traces.record.proof import (
    compare,
    distances,
    failing,
    in_float32,
    judged,
    name_of,
    prove,
    shapes,
    tolerance_of,
)
from traces.record.proof_passes import (
    GENERATED,
    ProofRows,
    ProofShape,
    ProofTexts,
    generated,
    made_up,
    own,
    untouched,
)
from traces.record.statistics import ROUNDING

_OWN_ROWS = 24  # of a text that a model reads in its own passes
STEPPED = "texts that are read side by side, a token a pass,"
ROLLED = "branches from clones of a text's state"

Other = Literal["", "texts", "rolls"]
"""How else than in packed passes: whole texts, or token by token with clones; "": not at all."""


class Way(Enum):
    """How a model is read: in packed passes, or in its own.

    Those are of whole texts and of `generate`; or token by token, with clones of states that are
    joined in passes, or single.
    """

    packed = "packed"
    texts = "texts"
    joined = "joined"
    single = "single"


class Ways(NamedTuple):
    """How the models of a pair are read."""

    target: Way
    draft: Way


PACKED = Ways(Way.packed, Way.packed)


class _Known(NamedTuple):
    longest: int
    way: Way


_known: WeakKeyDictionary[nn.Module, dict[str, _Known]] = WeakKeyDictionary()


def way_of(model: PreTrainedModel, longest: int, slots: int = 0, other: Other = "") -> Way:
    """How a model is read rightly: in packed passes, else as `other` says.

    Args:
        model: a Hugging Face causal LM.
        longest: see `prove`, as `slots`.
        slots: of the largest cache.
        other: what will do where packed passes do not.

    Raises:
        RecordError: no way does; says why packed passes are refused.
    """
    known = _known.setdefault(model, {})
    if other and other in known and known[other].longest >= longest:
        return known[other].way
    try:
        prove(model, longest, slots)
    except RecordError as refusal:
        if not other:
            raise
        try:
            way = prove_own(model, longest) if other == "texts" else prove_rolled(model, longest)
        except RecordError:
            raise refusal from None
        known[other] = _Known(longest, way)
        return way
    return Way.packed


def prove_own(model: PreTrainedModel, longest: int) -> Way:
    """Refuse a model whose `generate` gives other rows than its plain passes do.

    That is a pass over each beginning of a text, and one over all of it.

    Args:
        model: a Hugging Face causal LM.
        longest: tokens of the longest text; 0 if that is not known yet.

    Raises:
        RecordError: as said.
    """
    with untouched(model):
        for shape in shapes(model.config, longest, longest):
            for prompt in made_up(model.eval(), shape).prompts:
                most = max(shape.length, longest) - len(prompt)
                _try_own(model, prompt, min(most, _OWN_ROWS))
    return Way.texts


def _try_own(model: PreTrainedModel, prompt: list[int], n: int) -> None:
    """Compare n rows of a text; see `prove_own`."""
    with failing(model, "its generate fails"):
        text, logits = generated(model, prompt, n)
    places = range(len(prompt) - 1, len(prompt) - 1 + len(logits))
    with failing(model, "its plain forward pass fails"):
        plain = [own(model, text[: place + 1], [place]).logits for place in places]
        whole = own(model, text, list(places))
    # recurrent states are in float32 in models of any dtype
    tolerance = max(tolerance_of(model, text, whole), ROUNDING[torch.float32])
    for way in (logits, whole.logits):
        if judged(distances(way, torch.cat(plain)), tolerance) > tolerance:
            raise RecordError(f"{name_of(model)} cannot be recorded: {GENERATED} differ")


def prove_rolled(model: PreTrainedModel, longest: int) -> Way:
    """Refuse a model that is read wrongly token by token, or whose clones are not their own.

    Args:
        model: a Hugging Face causal LM.
        longest: see `prove_own`, which is proved as well.

    Returns:
        whether clones may be joined in passes.

    Raises:
        RecordError: as said.
    """
    prove_own(model, longest)
    try:
        _prove_clones(model, longest, is_joined=True)
    except RecordError:
        _prove_clones(model, longest, is_joined=False)
        return Way.single
    return Way.joined


def _prove_clones(model: PreTrainedModel, longest: int, is_joined: bool) -> None:
    with untouched(model):
        for shape in shapes(model.config, longest, longest):
            near = shape._replace(length=min(shape.length, shape.prompt + _OWN_ROWS))
            for one in (*in_float32(model), model):
                _try_clones(one.eval(), near, is_joined)


def _try_clones(model: PreTrainedModel, shape: ProofShape, is_joined: bool) -> None:
    """Read the texts of a shape in both ways, and compare; see `prove_rolled`."""
    texts = made_up(model, shape)
    with failing(model, "its plain forward pass fails"):
        plain = [own(model, text, list(range(len(text)))) for text in texts.plain]
        tolerance = tolerance_of(model, texts.plain[1], plain[1])
    with failing(model, "its passes token by token fail"):
        rows = list(_stepped(model, texts, is_joined))
    compare(model, shape, rows, plain, max(tolerance, ROUNDING[torch.float32]))


def _stepped(model: PreTrainedModel, texts: ProofTexts, is_joined: bool) -> Iterator[ProofRows]:
    """What the model says of the texts token by token, and of their branches.

    A text goes on while its clones wait, and once more behind what they have read.
    """
    walks = [OwnText(model) for _ in texts.prompts]
    for row, prompt in enumerate(texts.prompts):
        logits = walks[row].read(torch.tensor([prompt]))
        yield ProofRows(STEPPED, row, len(prompt) - 1, logits)
    waiting: list[tuple[int, int, OwnText]] = []
    for step, tokens in enumerate(zip(*texts.path, strict=True)):
        for row, token in enumerate(tokens):
            for number, place in enumerate(texts.places[row]):
                if place == step:
                    waiting.append((row, number, walks[row].clone()))
            first = walks[row].lengths[0]
            yield ProofRows(STEPPED, row, first, walks[row].read(torch.tensor([[token]])))
        yield from _branched(waiting, texts, is_joined)
        waiting.clear()


def _branched(
    waiting: list[tuple[int, int, OwnText]], texts: ProofTexts, is_joined: bool
) -> Iterator[ProofRows]:
    """What is said of branches that go on from clones, of these rows and numbers in a row."""
    if not waiting:
        return
    clones = [clone for _, _, clone in waiting]
    begins = [clone.lengths[0] for clone in clones]
    tokens = torch.tensor([texts.branches[row][number] for row, number, _ in waiting])
    parts = [OwnText.joined(clones)] if is_joined else clones
    for depth, column in enumerate(tokens.T):
        read = [
            part.read(tips[:, None])
            for part, tips in zip(parts, column.split(len(column) // len(parts)), strict=True)
        ]
        for (row, number, _), begin, logits in zip(waiting, begins, torch.cat(read), strict=True):
            text = 2 + row * len(texts.branches[row]) + number
            yield ProofRows(ROLLED, text, begin + depth, logits[None])
