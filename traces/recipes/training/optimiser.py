"""AdamW, the course of its rate, and the machine that trains: small numbers, and what is said."""

from __future__ import annotations

import math
import platform
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

WARMUP_STEPS = 200
WEIGHT_DECAY = 0.1
SLOW = 0.05


def rate(step: int, total: int | None, peak: float) -> float:
    """Learning rate: linear warm-up, then a cosine down to 1 % of the peak at ``total`` steps."""
    warmup = min(WARMUP_STEPS, total // 10 + 1) if total else WARMUP_STEPS
    if step < warmup or total is None:
        return peak * (step + 1) / warmup
    done = (step - warmup) / max(1, total - warmup)
    return peak * (0.01 + 0.99 * 0.5 * (1 + math.cos(math.pi * done)))


def make_optimiser(net: nn.Module, peak: float, slow: Sequence[Tensor] = ()) -> torch.optim.AdamW:
    """AdamW; norms are not decayed.

    Args:
        net: to train.
        peak: the rate at its highest.
        slow: matrices that have ``SLOW`` of it, those that begin as something good.
    """
    few = {id(weight) for weight in slow}
    matrices = [p for p in net.parameters() if p.dim() == 2 and id(p) not in few]
    vectors = [p for p in net.parameters() if p.dim() < 2]
    groups: list[dict[str, Any]] = [
        {"params": matrices, "weight_decay": WEIGHT_DECAY},
        {"params": vectors, "weight_decay": 0.0},
    ]
    if slow:
        groups.append({"params": list(slow), "weight_decay": 0.0, "share": SLOW})
    fused = next(net.parameters()).is_cuda
    return torch.optim.AdamW(groups, lr=peak, betas=(0.9, 0.95), fused=fused)


def versions(device: str) -> dict[str, str]:
    """Library versions and the device's name."""
    name = torch.cuda.get_device_name() if device.startswith("cuda") else platform.processor()
    return {
        "device": name or platform.machine(),
        "torch": torch.__version__,
        "python": platform.python_version(),
    }


@contextmanager
def tiny_as_zero() -> Iterator[None]:
    """Numbers below the least normal one count as 0 inside; also a decorator.

    On products of many small probabilities processors are a hundred times slower. The switch is the
    whole thread's: left on, it would change what other code of the process computes.
    """
    torch.set_flush_denormal(True)
    try:
        yield
    finally:
        torch.set_flush_denormal(False)


def take_step(
    net: nn.Module,
    optimiser: torch.optim.Optimizer,
    new_rate: float,
    clip: float,
    count: Tensor | float | None = None,
) -> None:
    """One step by the gradients that are there, cut to a norm of ``clip``; they are dropped.

    Args:
        net: that has them.
        optimiser: of its weights.
        new_rate: of the step.
        clip: the largest norm.
        count: what the gradients are a sum over, by which they are divided first.
    """
    if count is not None:
        for parameter in net.parameters():
            if parameter.grad is not None:
                parameter.grad /= count
    torch.nn.utils.clip_grad_norm_(net.parameters(), clip)
    for group in optimiser.param_groups:
        group["lr"] = new_rate * group.get("share", 1.0)
    optimiser.step()
    optimiser.zero_grad(set_to_none=True)
