"""Made-up texts, read as the recorder reads them, and each alone as the model itself does."""

from __future__ import annotations

import random
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from transformers import GenerationConfig, PreTrainedModel

from traces.errors import RecordError
from traces.record.forward import (
    causal_mask,
    embedding,
    left_padded,
    new_cache,
    packed_pass,
    side_by_side,
    visible,
)

_SHORT = 3  # tokens of the shorter prompt
ROWS = 8  # rows of a pass that are compared at most
BRANCHES = 2  # of each text
DEPTH = 2  # tokens of a branch
_SHORT_PASS = 256  # tokens: so many rows of logits are no matter

PROMPTS = "prompts of several lengths in one batch"
CACHED = "tokens that are read through the cache"
BRANCHED = "branches side by side"
GENERATED = "the rows of its own generate"


class ProofShape(NamedTuple):
    """What is tried: a long text and a short one that are read side by side.

    Attributes:
        past: the length of the configuration that is passed; 0 of none.
        prompt: tokens of the longer prompt.
        length: tokens of its text.
        filler: slots between texts and branches, which nobody sees.
    """

    past: int
    prompt: int
    length: int
    filler: int


class ProofRows(NamedTuple):
    """Logits (n, V) behind the tokens of one of the texts, from the 0-based position `first` on."""

    what: str
    text: int
    first: int
    logits: Tensor


class PlainPass(NamedTuple):
    """A text's own logits (n, V) at some of its positions, in ascending order."""

    positions: list[int]
    logits: Tensor

    def at(self, position: int) -> Tensor | None:
        """The row (V,) of one position, if it was asked for."""
        if position not in self.positions:
            return None
        return self.logits[self.positions.index(position)]


class ProofTexts(NamedTuple):
    """Made-up texts.

    Attributes:
        prompts: tokens of the short and of the long prompt.
        path: how they go on, equally many tokens each.
        places: of each, how many of these tokens stand before each branch.
        branches: of each, the tokens of its branches.
        plain: the short text, the long text, then texts that end with a branch, in their order.
    """

    prompts: list[list[int]]
    path: list[list[int]]
    places: list[list[int]]
    branches: list[list[list[int]]]
    plain: list[list[int]]


def made_up(model: PreTrainedModel, shape: ProofShape) -> ProofTexts:
    """Texts of random ids; those that the configuration gives a meaning are left out."""
    generator = torch.Generator().manual_seed(0)
    named = {
        value
        for name, value in model.config.to_dict().items()
        if name.endswith(("_id", "_index")) and isinstance(value, int)
    }
    n_ids = embedding(model).num_embeddings
    ids = torch.tensor([i for i in range(min(n_ids, 2**16)) if i not in named] or range(n_ids))

    def draw(n: int) -> list[int]:
        return ids[torch.randint(len(ids), (n,), generator=generator)].tolist()

    behind = shape.length - shape.prompt
    prompts = [draw(min(_SHORT, shape.prompt - 1)), draw(shape.prompt)]
    path = [draw(behind), draw(behind)]
    known = min(behind, ROWS)  # of the short text: what comes later is nobody's business
    places = [[1, max(0, n - DEPTH)] for n in (known, behind)]
    branches = [[draw(DEPTH) for _ in range(BRANCHES)] for _ in prompts]
    plain = [prompts[0] + path[0][:known], prompts[1] + path[1]]
    for row, ends in enumerate(places):
        for end, branch in zip(ends, branches[row], strict=True):
            plain.append(prompts[row] + path[row][:end] + branch)
    return ProofTexts(prompts, path, places, branches, plain)


def wanted_rows(text: list[int], shape: ProofShape) -> list[int]:
    """Positions of a text whose rows are looked at: all of a short one."""
    n = len(text)
    if n <= _SHORT_PASS:
        return list(range(n))
    near = range(max(0, shape.prompt - ROWS), shape.prompt + ROWS)
    return sorted({*(p for p in near if p < n), *range(n - ROWS, n)})


def own_along(model: PreTrainedModel, prompt: list[int], output: list[int]) -> Tensor:
    """The model's own logits (n, V) before each token of an output, in one plain pass."""
    places = list(range(len(prompt) - 1, len(prompt) + len(output) - 1))
    return own(model, prompt + output[:-1], places).logits


def own(model: PreTrainedModel, text: list[int], positions: list[int]) -> PlainPass:
    """What the model says of one text, alone, in a plain pass without a cache."""
    device = embedding(model).weight.device
    index = torch.tensor(positions, device=device)
    whole = len(positions) == len(text)
    logits: Tensor = model(
        input_ids=torch.tensor([text], device=device),
        use_cache=False,
        logits_to_keep=0 if whole else index,
    ).logits[0]
    if len(logits) > len(positions):
        logits = logits[index.to(logits.device)]
    return PlainPass(positions, logits)


def packed(model: PreTrainedModel, texts: ProofTexts, shape: ProofShape) -> Iterator[ProofRows]:
    """What the model says of the texts as the recorder reads them."""
    read = _Reading(model, shape.length + shape.filler + 2 * BRANCHES * DEPTH)
    tokens, pads = (x.to(read.device) for x in left_padded(texts.prompts))
    slots = torch.arange(shape.length, device=pads.device)
    positions = (slots[: shape.prompt] - pads[:, None]).clamp_min(0)
    logits = read(
        tokens, positions, causal_mask(pads, 0, shape.prompt), min(shape.prompt, 2 * ROWS)
    )
    for row, prompt in enumerate(texts.prompts):
        n = min(logits.shape[1], len(prompt))
        yield ProofRows(PROMPTS, row, len(prompt) - n, logits[row, -n:])
    path = torch.tensor(texts.path, device=pads.device)
    start = 0
    for n in _steps(path.shape[1]):
        first = shape.prompt + start
        mask = causal_mask(pads, first, first + n)
        text = slots[first : first + n] - pads[:, None]
        kept = min(n, ROWS)
        logits = read(path[:, start : start + n], text, mask, kept)
        start += n
        for row, prompt in enumerate(texts.prompts):
            yield ProofRows(CACHED, row, len(prompt) + start - kept, logits[row])
    yield from _branched(read, texts, pads, shape)


def generated(model: PreTrainedModel, prompt: list[int], n: int) -> tuple[list[int], Tensor]:
    """A prompt and n tokens that `generate` puts behind it, and the logits (n, V) of these.

    The model's own settings of it are left aside; `untouched` brings them back.
    """
    model.generation_config = GenerationConfig()
    ids = torch.tensor([prompt], device=embedding(model).weight.device)
    found: Any = model.generate(  # pyright: ignore
        input_ids=ids,
        attention_mask=torch.ones_like(ids),
        max_new_tokens=n,
        do_sample=False,
        pad_token_id=0,
        output_logits=True,
        return_dict_in_generate=True,
    )
    return found.sequences[0].tolist(), torch.cat(found.logits)


class _Reading:
    """A cache of its own, and passes that are appended to it."""

    def __init__(self, model: PreTrainedModel, capacity: int) -> None:
        self._model, self.cache = model, new_cache(model, capacity)
        self.device = embedding(model).weight.device

    def __call__(self, tokens: Tensor, positions: Tensor, mask: Tensor, keep: int) -> Tensor:
        """Logits (2, keep, V); see `packed_pass`."""
        tokens = tokens.to(self.device)
        logits = packed_pass(self._model, self.cache, tokens, positions, mask, keep)
        if logits.shape[1] != keep:
            raise RecordError("it ignores logits_to_keep")
        return logits


def _steps(n: int) -> list[int]:
    """Tokens of the passes that read n tokens: one by one, a few at once, and the rest."""
    steps = [1, 1, min(n - 2, ROWS - 2)]
    return [*steps, n - sum(steps)] if n > sum(steps) else steps


def _branched(
    read: _Reading, texts: ProofTexts, pads: Tensor, shape: ProofShape
) -> Iterator[ProofRows]:
    """What the model says of branches, a pass a depth, and once more all of them in one pass."""
    device = pads.device
    if n := shape.filler:
        before = torch.zeros(n, read.cache.length, dtype=torch.bool, device=device)
        mask = torch.cat([before, torch.eye(n, dtype=torch.bool, device=device)], -1)
        filler = torch.full((2, n), texts.path[0][0], device=device)
        read(filler, torch.zeros_like(filler), mask.expand(2, 1, -1, -1), 1)
    places = torch.tensor(texts.places, device=device)
    tokens = torch.tensor(texts.branches, device=device)  # (2, R, D)
    text = (shape.prompt + places - pads[:, None])[:, :, None] + torch.arange(DEPTH, device=device)
    base = read.cache.length
    seen = visible(pads, shape.prompt + places, base)
    itself = torch.eye(BRANCHES, dtype=torch.bool, device=device).expand(2, -1, -1)
    mask, found = seen, []
    for depth in range(DEPTH):
        mask = torch.cat([mask, itself], -1)
        found.append(read(tokens[:, :, depth], text[:, :, depth], mask[:, None], BRANCHES))
    read.cache.cut(base)
    mask = side_by_side(seen, DEPTH)
    at_once = read(tokens.flatten(1), text.flatten(1), mask[:, None], BRANCHES * DEPTH)
    for logits in (torch.stack(found, 2), at_once.unflatten(1, (BRANCHES, DEPTH))):
        for row in range(2):
            for r in range(BRANCHES):
                place = 2 + row * BRANCHES + r, int(text[row, r, 0])
                yield ProofRows(BRANCHED, *place, logits[row, r])


@contextmanager
def shaken(model: nn.Module) -> Iterator[None]:
    """Move what each module returns in its last bits, as sums in another order would."""
    eps = torch.finfo(getattr(model, "dtype", torch.float32)).eps
    if eps < 1e-4 and torch.backends.cuda.matmul.allow_tf32:
        eps = 2.0**-10

    def shake(module: nn.Module, given: Any, output: Any) -> Any:
        if not isinstance(output, Tensor) or not output.is_floating_point():
            return None
        return output * (1 + eps * (2 * torch.rand_like(output) - 1))

    leaves = [m for m in model.modules() if not any(True for _ in m.children())]
    handles = [leaf.register_forward_hook(shake) for leaf in leaves]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


@contextmanager
def untouched(model: nn.Module) -> Iterator[None]:
    """Run passes without warnings and gradients, and put back what they change.

    That is buffers and attributes of modules, and random numbers.
    """
    kept = []
    for module in model.modules():
        own = {name: value for name, value in vars(module).items() if not name.startswith("_")}
        buffers = {n: (b, None if b is None else b.clone()) for n, b in module._buffers.items()}
        kept.append((module, own, buffers))
    devices = {p.device.index for p in model.parameters() if p.device.type == "cuda"}
    numbers = random.getstate(), np.random.get_state()  # noqa: NPY002
    try:
        quietly = warnings.catch_warnings(action="ignore")
        with torch.random.fork_rng(devices=sorted(devices)), quietly, torch.inference_mode():
            torch.manual_seed(0)
            yield
    finally:
        random.setstate(numbers[0])
        np.random.set_state(numbers[1])  # noqa: NPY002
        for module, own, buffers in kept:
            for name in [n for n in vars(module) if not n.startswith("_") and n not in own]:
                del module.__dict__[name]
            module.__dict__.update(own)
            module._buffers.clear()
            for name, (buffer, before) in buffers.items():
                if buffer is not None and before is not None and not torch.equal(buffer, before):
                    with torch.no_grad():
                        buffer.copy_(before)
                module._buffers[name] = buffer
