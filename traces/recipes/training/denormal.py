"""Products of many small probabilities, on which processors are a hundred times slower."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def tiny_as_zero() -> Iterator[None]:
    """Numbers below the least normal one count as 0 inside; also a decorator.

    The switch is the whole thread's: left on, it would change what other code of the process
    computes.
    """
    torch.set_flush_denormal(True)
    try:
        yield
    finally:
        torch.set_flush_denormal(False)
