"""Files of a training: a drafter's float16 weights and JSON, and what a training goes on from."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors.torch import save
from torch import Tensor

from traces.outputs import write_atomic


def write_drafter(
    out: Path,
    config: Mapping[str, object],
    record: Mapping[str, object],
    state: Mapping[str, Tensor],
) -> None:
    """The three files that every drafter has; the weights come last."""
    write_atomic(out / "config.json", as_json(config))
    write_atomic(out / "training.json", as_json(record))
    write_atomic(out / "model.safetensors", halves(state))


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


def as_torch(state: Mapping[str, object]) -> bytes:
    """A file of torch's own."""
    data = io.BytesIO()
    torch.save(state, data)
    return data.getvalue()
