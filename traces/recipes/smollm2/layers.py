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
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from traces.outputs import write_atomic
from traces.recipes.smollm2 import command
from traces.recipes.smollm2.draft import DraftSettings, distil, export_to, read_rows
from traces.recipes.smollm2.teacher import Text, Texts

JUDGED, LONGEST = 2, 128  # texts by which layers are chosen, and tokens of each
KEPT = "kept.json"  # their numbers, once they are chosen


@dataclass(frozen=True)
class LayerSettings(DraftSettings):
    """What the draft is made and trained with; ``exit`` 0 prunes, else ``layers`` is not read."""

    steps: int = 1500
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


def _chosen(model: Any, texts: Texts, n: int, known: Path, say: Callable[[str], None]) -> list[int]:
    """`kept_layers`, or what a command that was stopped has written of them."""
    if known.exists() and len(kept := json.loads(known.read_text())) == n:
        return kept
    kept = kept_layers(model, [texts.text(place) for place in texts.held[-JUDGED:]], n, say)
    write_atomic(known, json.dumps(kept).encode())
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


def train(job: command.Job[LayerSettings]) -> tuple[Any, dict[str, object]]:
    """The draft of the chosen layers, trained, and what is to be said of it."""
    n_layers, exits = len(job.model.model.layers), job.settings.exit
    if exits:
        kept = [*range(exits), n_layers - 1]
    else:
        kept = _chosen(job.model, job.texts, job.settings.layers, job.out / KEPT, job.say)
    net = make_net(job.model, kept, bool(exits)).to(job.device)
    embeddings = net.get_input_embeddings().weight

    def loss_of(step: int, some: list[Text], drawn: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        loss, _, _ = read_rows(net, some, drawn)
        return loss, loss

    said = distil(job, net, embeddings.detach(), loss_of)
    own = sum(weight.numel() for weight in net.parameters()) - embeddings.numel()
    return net, said | {"kept": kept, "own_bytes": 2 * own}


def main() -> None:
    """Train, write the folder."""

    def export(job: command.Job[LayerSettings], net: Any, record: dict[str, object]) -> None:
        export_to(job, net, record)
        (job.out / KEPT).unlink(missing_ok=True)

    command.run(__doc__, LayerSettings(), train, export)


if __name__ == "__main__":
    main()
