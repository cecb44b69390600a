"""Checkpoints of a drafter's training, from which a stopped run ends in the same bytes."""

from __future__ import annotations

import io
from pathlib import Path

import torch
from torch import nn

from traces.outputs import write_atomic


def save_checkpoint(
    path: Path,
    settings: dict[str, object],
    net: nn.Module,
    optimiser: torch.optim.Optimizer,
    step: int,
) -> None:
    """All that training goes on from; a process that is killed leaves the one before, or this."""
    state = {
        "settings": settings,
        "net": net.state_dict(),
        "optimiser": optimiser.state_dict(),
        "step": step,
    }
    data = io.BytesIO()
    torch.save(state, data)
    write_atomic(path, data.getvalue())


def load_checkpoint(
    path: Path, settings: dict[str, object], net: nn.Module, optimiser: torch.optim.Optimizer
) -> int:
    """Fill net and optimiser; returns the steps done, 0 where there is no checkpoint.

    Raises:
        ValueError: the checkpoint is of other settings.
    """
    if not path.exists():
        return 0
    state = torch.load(path, weights_only=True)
    if state["settings"] != settings:
        raise ValueError(f"{path} is of another arm: {state['settings']}")
    net.load_state_dict(state["net"])
    optimiser.load_state_dict(state["optimiser"])
    return state["step"]
