"""The folder of a drafter that was trained: float16 weights and JSON files."""

from __future__ import annotations

import json
from collections.abc import Mapping

import torch
from safetensors.torch import save
from torch import Tensor


def halves(state: Mapping[str, Tensor]) -> bytes:
    """A safetensors file of weights, on the host in float16; tables of ids stay as they are."""
    kept = {
        name: (value.detach().half() if value.is_floating_point() else value).cpu().contiguous()
        for name, value in state.items()
    }
    return save(kept, metadata={"format": "pt"})


@torch.no_grad()
def round_to_halves(net: torch.nn.Module) -> None:
    """Round weights as the folder will hold them, so that these are measured."""
    for weight in net.parameters():
        weight.copy_(weight.half())


def as_json(values: Mapping[str, object]) -> bytes:
    """A JSON file."""
    return (json.dumps(values, indent=1) + "\n").encode()
