"""Drafts made of SmolLM2-135M-Instruct's own layers, distilled from the model's own answers.

``python -m traces.recipes.smollm2.layers -o .work/smollm2/pruned [--layers 15] [--exit 0]``

**Pruned**: ``--layers`` of its 30 layers. They are left one after another: each time that one
without which the others' answers change least, on ``JUDGED`` texts; then all are trained.
**Early exit** (``--exit K``): its first K layers as they are and a copy of the last one, which is
trained alone. Embeddings, which are the output matrix too, stay the model's in both. The loss is
that of ``draft.py``, without its states. A command that was stopped goes on from its checkpoint.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from traces.recipes.smollm2 import command
from traces.recipes.smollm2.draft import ALWAYS, DRAWN, export, measure, read_rows, update
from traces.recipes.smollm2.teacher import Text, Texts
from traces.recipes.training.course import Training
from traces.recipes.training.denormal import tiny_as_zero
from traces.recipes.training.likelihood import Vocabulary
from traces.recipes.training.optimiser import make_optimiser, rate
from traces.record.pair import load_tokenizer, tokenizer_hash

CHECKPOINT_STEPS, MEASURE_STEPS = 25, 100
JUDGED, LONGEST = 3, 192  # texts by which layers are chosen, and tokens of each


@dataclass(frozen=True)
class LayerSettings:
    """What the draft is made and trained with; ``exit`` 0 prunes, else ``layers`` is not read."""

    seed: int = 0
    steps: int = 1500
    batch: int = 8
    rate: float = 3e-4
    layers: int = 15
    exit: int = 0


def kept_layers(model: Any, texts: list[Text], n: int, say: Callable[[str], None]) -> list[int]:
    """The numbers of n layers, of which the last removed changes the answers least.

    Args:
        model: whose layers are left out one after another; whole again afterwards.
        texts: by which they are judged.
        n: to keep.
        say: told of each that is left out.
    """
    whole, kept = model.model.layers, list(range(len(model.model.layers)))
    while len(kept) > n:
        losses = {}
        for one in kept:
            model.model.layers = nn.ModuleList([whole[k] for k in kept if k != one])
            losses[one] = _divergence(model, texts)
        least = min(losses, key=losses.__getitem__)
        kept.remove(least)
        say(f"without layer {least}: {losses[least]:.3f} nats, {len(kept)} layers are left")
    model.model.layers = whole
    return kept


@torch.inference_mode()
def _divergence(model: Any, texts: list[Text]) -> float:
    """Mean KL(p || q) over the rows' likeliest tokens."""
    total, rows = 0.0, 0
    for text in texts:
        logits = model(input_ids=text.tokens[None, :LONGEST], use_cache=False).logits[0]
        log_q = logits.float().log_softmax(-1).gather(-1, text.ids[:LONGEST])
        p = text.probs[:LONGEST]
        total += float((p * (p.clamp_min(1e-8).log() - log_q)).sum())
        rows += len(p)
    return total / rows


def make_net(model: Any, kept: list[int], exits: bool) -> Any:
    """The draft before training, float32: these layers of the model.

    Args:
        model: to copy from.
        kept: numbers of layers.
        exits: the last of them is trained alone; else all, embeddings apart.
    """
    net = copy.deepcopy(model).float()
    layers: list[Any] = [net.model.layers[k] for k in kept]
    for place, layer in enumerate(layers):
        layer.self_attn.layer_idx = place  # where it caches
    net.model.layers = nn.ModuleList(layers)
    net.config.num_hidden_layers = len(kept)
    for weight in net.parameters():
        weight.requires_grad_(not exits)
    for weight in net.model.layers[-1].parameters():
        weight.requires_grad_(True)
    net.get_input_embeddings().weight.requires_grad_(False)
    return net.train()


def train(
    settings: LayerSettings,
    device: str,
    model: Any,
    texts: Texts,
    out: Path,
    say: Callable[[str], None],
    stop_at: int | None = None,
) -> tuple[Any, dict[str, object]]:
    """Choose the layers, and train from the checkpoint in ``out``, if there is one.

    Returns:
        The draft, and what is to be said of it.

    Raises:
        ValueError: the checkpoint is of other settings.
    """
    n_layers = len(model.model.layers)
    if settings.exit:
        kept = [*range(settings.exit), n_layers - 1]
    else:
        judges = [texts.text(place) for place in texts.held[-JUDGED:]]
        kept = kept_layers(model, judges, settings.layers, say)
    net = make_net(model, kept, bool(settings.exit)).to(device)
    matrix: Tensor = net.get_output_embeddings().weight.detach()
    optimiser = make_optimiser(net, settings.rate)
    vocabulary = Vocabulary.of(texts.counts(len(matrix)), ALWAYS, DRAWN)

    def step_of(step: int) -> float:
        rng = np.random.default_rng((settings.seed, step))
        some = [text.to(device) for text in texts.alike(rng, settings.batch)]
        tokens, weights = vocabulary.draw(rng)
        loss, _, _ = read_rows(net, some, (tokens.to(device), weights.to(device)))
        update(net, optimiser, loss, rate(step, settings.steps, settings.rate))
        return float(loss.detach())

    training = Training(
        out,
        {**asdict(settings), "files": len(texts.files)},
        net,
        optimiser,
        step_of,
        say,
        CHECKPOINT_STEPS,
        lambda: measure(net, matrix, texts),
        MEASURE_STEPS,
    )
    training.run(stop_at)
    shared = net.get_input_embeddings().weight.numel()
    own = sum(weight.numel() for weight in net.parameters()) - shared
    record = {"kept": kept, "held_out": training.measured, "own_bytes": 2 * own}
    return net, command.record(settings, net, texts, device) | record


@tiny_as_zero()
def main() -> None:
    """Train, write the folder."""
    settings, given = command.arguments(__doc__ or "", LayerSettings())

    def write(net: Any, model: Any, record: dict[str, object]) -> None:
        known = tokenizer_hash(load_tokenizer(str(given.model)))
        export(net, record, known, given.out)

    command.run(given, partial(train, settings, given.device), write)


if __name__ == "__main__":
    main()
