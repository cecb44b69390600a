"""Memory that is free again."""

from __future__ import annotations

import ctypes


def trim() -> None:
    """Give freed memory back to the system, where the allocator can be asked to (glibc).

    It keeps what threads have freed, and after some replays of a long trace that is half a GB.
    """
    give_back = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if give_back is not None:
        give_back(0)
