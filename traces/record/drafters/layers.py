"""The target's hidden layers that a drafter reads, taken out of passes that run anyway."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from traces.errors import RecordError
from traces.messages import how_many


def resolve(layers: Sequence[int], n_layers: int, whose: str = "the target") -> tuple[int, ...]:
    """Layers counted from 0 (the embeddings) to `n_layers` (the final norm's output).

    Args:
        layers: as transformers counts `hidden_states`: negative ones from the end.
        n_layers: decoder layers of the model.
        whose: named in the error.

    Raises:
        RecordError: the model has no such layer.
    """
    for layer in layers:
        if not -n_layers - 1 <= layer <= n_layers:
            raise RecordError(
                f"{whose} has no hidden layer {layer}: it has"
                f" {how_many(n_layers, 'decoder layer')} (0 is its embeddings, {n_layers} or -1 its"
                " last states)"
            )
    return tuple(layer % (n_layers + 1) for layer in layers)


class Layers:
    """Keeps the states of chosen layers of every pass that runs inside a `with` block.

    Args:
        model: a causal LM of the Llama kind: `layers` and `norm` in its base model.
        layers: as `resolve` counts them; the last one is the final norm's output, which the
            output matrix reads.

    Raises:
        RecordError: the model has no such layer, or is built otherwise.
    """

    def __init__(self, model: PreTrainedModel, layers: Sequence[int]):
        base: Any = model.base_model
        blocks, norm = getattr(base, "layers", None), getattr(base, "norm", None)
        if not isinstance(blocks, nn.ModuleList) or norm is None:
            raise RecordError(
                f"{type(model).__name__}: its hidden layers cannot be read (no layers and norm)"
            )
        self.layers = resolve(layers, len(blocks))
        self.modules = [model.get_input_embeddings(), *list(blocks)[:-1], norm]
        self.states: dict[int, Tensor] = {}

    def __enter__(self) -> Layers:
        self.handles = [
            self.modules[layer].register_forward_hook(partial(self._keep, layer))
            for layer in sorted(set(self.layers))
        ]
        return self

    def __exit__(self, *_: object) -> None:
        for handle in self.handles:
            handle.remove()

    def joined(self) -> Tensor:
        """States of the last pass (B, n, layers x H), in the order that was asked for."""
        return torch.cat([self.states[layer] for layer in self.layers], -1)

    def _keep(self, layer: int, module: nn.Module, args: Any, output: Any) -> None:
        self.states[layer] = output[0] if isinstance(output, tuple) else output
