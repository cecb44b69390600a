"""What a recording's bytes hang on beside its settings, handed on to other processes."""

from __future__ import annotations

import torch

from traces.record.pair import Alone, Pair


def place_of(pair: Pair | Alone) -> tuple[str, int]:
    """The kind of device that a pair is on, and how many threads sums on a CPU are split over."""
    return pair.target.device.type, torch.get_num_threads()


def take_threads(n: int) -> None:
    """Split sums on a CPU over so many threads, in this process."""
    torch.set_num_threads(n)
