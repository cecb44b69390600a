"""The proof, on a loaded model itself, that the recorder's packed passes read it rightly.

The recorder reads many texts at once: prompts padded in front, tokens through a shared cache, and
branches side by side in slots that are not their text positions. Masks and positions say who sees
whom. Some models do not heed them: a recurrent state sees whatever was read before, a sliding
window is dropped where a mask is given, a bias may count slots, and frequencies may follow the
longest text of a batch. They answer all the same, and wrongly.

So a model reads made-up texts in both ways: packed, and each text alone in one plain pass without a
cache, with the model's own masks and positions. The logits of both must agree up to the rounding of
the model's dtype, and rows must not depend on later tokens. Lengths that the configuration names (a
window, a chunk, the original length of rotary embeddings) are passed as far as the texts of a
recording, or the slots of its caches, reach.
"""

from __future__ import annotations

import copy
import inspect
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from traces.errors import RecordError, first_line
from traces.record.proof_passes import (
    BRANCHED,
    BRANCHES,
    DEPTH,
    GENERATED,
    ROWS,
    PlainPass,
    ProofRows,
    ProofShape,
    ProofTexts,
    generated,
    made_up,
    own,
    packed,
    shaken,
    untouched,
    wanted_rows,
)
from traces.record.statistics import ROUNDING

_FIRST = 12  # tokens of the longer text where no length has to be passed
_LEAST = 6  # and of the shortest such text; smaller lengths are passed in any case

# Relative distance of two rows that is put up with: what rounding does to this very model, some
# times over, but no less than this. Norms and rotary embeddings are in float32 in all models.
_ROUNDINGS = 4
_COARSE = 0.01

_MOST_COPIED = 2**28  # parameters: 1 GiB in float32

_FORWARD = "its forward pass does not take the recorder's masks and cache"

# Words in the names of numbers that are no length of a text.
_NO_LENGTH = re.compile(
    r"^(num|n|d)_|(^|_)(vocab|hidden|intermediate|ffn|inner|ids?|dim|rank|heads?|layers?|experts?|groups?"
    r"|theta|base|image|patch|token|tokens|width|embd|seed|beams|LABEL)(_|$)|^(max_position|_)"
)


_proved: WeakKeyDictionary[nn.Module, dict[int, ProofShape]] = WeakKeyDictionary()


def prove(model: PreTrainedModel, longest: int = 0, slots: int = 0) -> None:
    """Refuse a model that is read wrongly in packed passes; what was proved once is not repeated.

    Neither the model nor the state of random numbers is changed.

    Args:
        model: a Hugging Face causal LM.
        longest: tokens of the longest text that will be read; 0 if that is not known yet.
        slots: of the largest cache, at least `longest`.

    Raises:
        RecordError: the packed passes fail or differ from the model's own; says where and why.
    """
    done = _proved.setdefault(model, {})
    for shape in shapes(model.config, longest, max(longest, slots)):
        before = done.get(shape.past)
        if before is None or before.length < shape.length or before.filler < shape.filler:
            with untouched(model):
                for one in (*in_float32(model), model):
                    _try(one.eval(), shape)
            done[shape.past] = shape


def tolerance_of(model: PreTrainedModel, text: list[int], plain: PlainPass) -> float:
    """How far rows may lie apart: a few times what rounding moves these of a text."""
    with shaken(model):
        moved = distances(own(model, text, plain.positions).logits, plain.logits)
    rounding = _ROUNDINGS * _middle(moved[moved.isfinite()])
    return max(ROUNDING.get(model.dtype, 0.0), rounding)


def in_float32(model: PreTrainedModel) -> list[PreTrainedModel]:
    """A copy of a small model of half precision, in which rounding hides less."""
    small = model.num_parameters() <= _MOST_COPIED and not getattr(model, "is_quantized", False)
    if model.dtype not in (torch.float16, torch.bfloat16) or not small:
        return []
    return [copy.deepcopy(model).float()]


def context_len(config: Any) -> int:
    """Tokens of text that a model can hold; many where its configuration names no such number."""
    known = getattr(config, "max_position_embeddings", None)
    return known if isinstance(known, int) and known > 0 else 2**31


def named_lengths(config: Any) -> dict[int, list[str]]:
    """Whole numbers of a configuration that may be lengths of texts, with their names."""
    found: dict[int, list[str]] = {}

    def walk(value: Any, name: str) -> None:
        if isinstance(value, dict):
            for key, inner in value.items():
                walk(inner, str(key))
        elif isinstance(value, list | tuple):
            for inner in value:
                walk(inner, name)
        elif isinstance(value, int) and value >= _LEAST and not _NO_LENGTH.search(name):
            names = found.setdefault(value, [])
            names.extend([name] if name not in names else [])

    walk(config.to_dict(), "")
    return found


def shapes(config: Any, longest: int, slots: int) -> Iterator[ProofShape]:
    """What has to be tried for texts and caches of so many tokens, the shortest first."""
    named = sorted(named_lengths(config))
    first = max(_LEAST, min([_FIRST, context_len(config), *named]))
    base = ProofShape(0, max(2, first - 5), first, first)
    yield base
    for past in named:
        if past < longest:
            length = min(longest, 2 * past)
            room = slots - length - BRANCHES * DEPTH
            yield ProofShape(past, past - 2, length, max(0, min(past + ROWS, room)))
        elif past < slots:
            yield base._replace(past=past, filler=past + ROWS)


def _try(model: PreTrainedModel, shape: ProofShape) -> None:
    """Read the texts of a shape in both ways and compare.

    Raises:
        RecordError: see `prove`.
    """
    texts = made_up(model, shape)
    wanted = [wanted_rows(text, shape) for text in texts.plain]
    with failing(model, "its plain forward pass fails"):
        plain = [own(model, *both) for both in zip(texts.plain, wanted, strict=True)]
        tolerance = tolerance_of(model, texts.plain[1], plain[1])
    if not shape.past:
        _check_causal(model, texts, plain, tolerance)
    with failing(model, _FORWARD, quoted=False):
        rows = list(packed(model, texts, shape))
    with failing(model, "its generate fails"):
        n = min(shape.length - shape.prompt, ROWS + 2)
        text, logits = generated(model, texts.prompts[1], n)
        first = len(texts.prompts[1]) - 1
        rows.append(ProofRows(GENERATED, len(plain), first, logits))
        plain.append(own(model, text, list(range(first, first + len(logits)))))
    compare(model, shape, rows, plain, tolerance)


def _check_causal(
    model: PreTrainedModel, texts: ProofTexts, plain: list[PlainPass], tolerance: float
) -> None:
    """Refuse a model whose rows change with later tokens.

    Raises:
        RecordError: as said.
    """
    for row, ends in enumerate(texts.places):
        for r, end in enumerate(ends):
            same = len(texts.prompts[row]) + end
            other = plain[2 + row * BRANCHES + r]
            apart = distances(other.logits[:same], plain[row].logits[:same])
            if judged(apart, tolerance) > tolerance:
                raise RecordError(
                    f"{name_of(model)} cannot be recorded: its prediction after a text changes when"
                    " more tokens follow; the recorder needs a causal model"
                )


def compare(
    model: PreTrainedModel,
    shape: ProofShape,
    rows: list[ProofRows],
    plain: list[PlainPass],
    tolerance: float,
) -> None:
    """Refuse a model whose packed rows differ from its own.

    Raises:
        RecordError: as said.
    """
    for (what, _), apart in _apart(rows, plain).items():
        # What lies behind a length is judged by itself, or rows before it would outvote it.
        parts = [[d for p, d in apart.items() if (p >= shape.past) == side] for side in (0, 1)]
        if any(judged(torch.tensor(part), tolerance) > tolerance for part in parts):
            first = min(p for p, d in apart.items() if d > tolerance)
            raise RecordError(
                f"{name_of(model)} cannot be recorded: {what} differ from its own forward pass"
                f" from text position {first + 1} on{_why(model, shape, what, first)}"
            )


def _apart(
    rows: list[ProofRows], plain: list[PlainPass]
) -> dict[tuple[str, int], dict[int, float]]:
    """How far rows lie from a text's own: by kind, short or long text, and position."""
    found: dict[tuple[str, int], dict[int, float]] = {}
    for one in rows:
        row = one.text if one.text < 2 else (one.text - 2) // BRANCHES
        apart = found.setdefault((one.what, row), {})
        for position, logits in enumerate(one.logits, one.first):
            own = plain[one.text].at(position)
            if own is not None:
                distance = float(distances(logits[None], own[None]))
                apart[position] = max(distance, apart.get(position, 0.0))
    return found


def distances(given: Tensor, own: Tensor) -> Tensor:
    """How far rows (n, V) lie apart, in standard deviations of the second ones' logits (n,).

    What is infinite in both is left out; rows of NaN are nobody's: recordings refuse them.
    """
    wide = torch.float64 if own.dtype == torch.float64 else torch.float32
    n = min(given.shape[-1], own.shape[-1])
    given, own = given[..., :n].to(own.device, wide), own[..., :n].to(wide)
    there = own.isfinite()
    count = there.sum(-1, keepdim=True).clamp_min(1)
    shift = [x.masked_fill(~there, 0).sum(-1, keepdim=True) / count for x in (given, own)]
    given, own = ((x - s).masked_fill(~there, 0) for x, s in zip((given, own), shift, strict=True))
    size, apart = own.norm(dim=-1), (given - own).norm(dim=-1)
    return torch.where(apart == 0, 0.0, apart / size).nan_to_num(torch.inf, posinf=torch.inf)


def judged(values: Tensor, tolerance: float) -> float:
    """The distance of several that counts: the largest; the middle one where rounding is coarse.

    There a single row may lie far off, where a router is undecided between two experts.
    """
    if not len(values):
        return 0.0
    return float(values.max()) if tolerance < _COARSE else _middle(values)


def _middle(values: Tensor) -> float:
    """The middle one, the larger of two; 0 of none."""
    return float(values.sort().values[len(values) // 2]) if len(values) else 0.0


def name_of(model: PreTrainedModel) -> str:
    """A model's type and class, as refusals name it."""
    return f"{model.config.model_type} ({type(model).__name__})"


def _why(model: PreTrainedModel, shape: ProofShape, what: str, first: int) -> str:
    """What in the configuration explains a difference from a position on, if anything does."""
    named = named_lengths(model.config)
    if shape.past:
        past = max((n for n in named if n <= first), default=shape.past)
        names = ", ".join(f"{name}={past}" for name in named[past])
        return f": texts or caches go past {names}"
    kinds = _kinds(model.config)
    if kinds - {"full_attention", "attention"}:
        return f": it has layers of type {', '.join(sorted(kinds))}"
    if getattr(model, "_is_stateful", False):
        return ": it keeps a state of all that it has read"
    if what == BRANCHED:
        return ": it does not heed the positions and masks that it is given"
    if "position_ids" not in inspect.signature(model.forward).parameters:
        return ": its forward pass takes no position_ids"
    return ""


def _kinds(config: Any) -> set[str]:
    """The kinds of layers that a configuration lists."""
    config = config.get_text_config(decoder=True)
    for name in ("layer_types", "layers_block_type", "attention_layers"):
        if kinds := getattr(config, name, None):
            return {str(kind) for kind in kinds}
    return set()


@contextmanager
def failing(model: PreTrainedModel, what: str, quoted: bool = True) -> Iterator[None]:
    """Make one line of whatever a model raises; memory that runs out is its own matter.

    Its words are `quoted` where ours do not name the cause; they are the error's cause in any case.
    """
    try:
        yield
    except (MemoryError, torch.OutOfMemoryError):
        raise
    except RecordError as error:
        raise RecordError(f"{name_of(model)} cannot be recorded: {what}: {error}") from None
    except Exception as error:  # a model's code raises what it likes
        if "alloc" in str(error).lower():
            raise
        words = f": {first_line(error)}" if quoted else ""
        raise RecordError(f"{name_of(model)} cannot be recorded: {what}{words}") from error
