"""Measured ceilings of a device: copy bandwidth and matrix rate, and what the device is."""

from __future__ import annotations

import platform
import subprocess

import numpy as np
import torch

from benchmarks.gpu.grid import Rates
from traces.record.latency import timed


def copy_bytes_per_s(device: torch.device, n_bytes: int, repeats: int = 20) -> float:
    """Median rate of a copy within the device's memory, bytes read plus bytes written."""
    source = torch.randn(n_bytes // 4, device=device)
    target = torch.empty_like(source)
    seconds = [timed(lambda: target.copy_(source), device) for _ in range(repeats + 3)][3:]
    return 2 * source.numel() * 4 / float(np.median(seconds))


def matmul_flops_per_s(device: torch.device, n: int, repeats: int = 20) -> float:
    """Median rate of an n × n × n bfloat16 matrix product on random data."""
    a, b = (torch.randn(n, n, device=device, dtype=torch.bfloat16) for _ in range(2))
    out = torch.empty_like(a)
    seconds = [timed(lambda: torch.matmul(a, b, out=out), device) for _ in range(repeats + 3)][3:]
    return 2 * n**3 / float(np.median(seconds))


def measure(device: torch.device) -> Rates:
    """Both rates; sizes are several times a GPU's caches, and small on a CPU."""
    if device.type == "cuda":
        return Rates(copy_bytes_per_s(device, 2**32), matmul_flops_per_s(device, 8192))
    return Rates(copy_bytes_per_s(device, 2**24, 5), matmul_flops_per_s(device, 128, 5))


def device_name(device: torch.device) -> str:
    """The name of the hardware."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"{platform.machine()} CPU, {torch.get_num_threads()} threads"


def describe(device: torch.device) -> dict[str, object]:
    """Device, driver and library versions, for a manifest."""
    import transformers

    return {
        "device": device_name(device),
        "driver": _driver() if device.type == "cuda" else None,
        "cuda": torch.version.cuda,
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "python": platform.python_version(),
    }


def _driver() -> str | None:
    command = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip().splitlines()[0]
