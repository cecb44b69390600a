"""Training windows from the packed corpus: a pure function of (seed, step)."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from traces.recipes.reference.sources import TASKS

MIX = {"code": 0.33, "prose": 0.30, "math": 0.14, "german": 0.23}  # share of windows
ALIGNED = {"code": 0.15, "prose": 0.15, "math": 1.0, "german": 0.15}  # begin with a document


class Windows:
    """Draws windows of ``length`` + 1 tokens from the training side of ``tokens.npz``."""

    def __init__(self, path: Path, length: int, device: str) -> None:
        pack = np.load(path)
        self.length = length
        self.starts, self.offset, parts, at = {}, {}, [], 0
        for task in TASKS:
            tokens, starts = pack[f"{task}_train"], pack[f"{task}_train_starts"]
            self.offset[task] = (at, len(tokens) - length - 1)
            self.starts[task] = starts[starts < len(tokens) - length - 1]
            parts.append(tokens)
            at += len(tokens)
        self.tokens = torch.from_numpy(np.concatenate(parts).astype(np.int32)).to(device)
        self.span = torch.arange(length + 1, device=device)

    def batch(self, seed: int, step: int, size: int) -> Tensor:
        """Token ids (``size``, length + 1), int64, on the device."""
        rng = np.random.default_rng((seed, step))
        counts = rng.multinomial(size, [MIX[t] for t in TASKS])
        begins = []
        for task, count in zip(TASKS, counts, strict=True):
            at, last = self.offset[task]
            anywhere = rng.integers(0, last, count)
            aligned = rng.choice(self.starts[task], count)
            begins.append(at + np.where(rng.random(count) < ALIGNED[task], aligned, anywhere))
        begin = torch.from_numpy(np.concatenate(begins)).to(self.tokens.device)
        return self.tokens[begin[:, None] + self.span].long()


def held_out(path: Path, length: int, limit: int, side: str = "held") -> dict[str, Tensor]:
    """Windows (at most ``limit``, length) of each task's ``side``, "held" out or "train"."""
    pack = np.load(path)
    out = {}
    for task in TASKS:
        tokens = pack[f"{task}_{side}"].astype(np.int64)
        count = min(limit, len(tokens) // length)
        stride = len(tokens) // count
        rows = [tokens[i * stride : i * stride + length] for i in range(count)]
        out[task] = torch.from_numpy(np.stack(rows))
    return out
