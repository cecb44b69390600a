"""Memory that is free again."""

from __future__ import annotations

import ctypes

_MMAP_THRESHOLD = -3  # of glibc's mallopt
_LARGE_BYTES = 2**20


def trim() -> None:
    """Give freed memory back to the system, where the allocator can be asked to (glibc).

    It keeps what threads have freed, and after some replays of a long trace that is half a GB. Left
    to itself it also raises the size from which an array has pages of its own, which are given back
    as soon as it is freed; so that size is fixed.
    """
    library = ctypes.CDLL(None)
    set_option, give_back = (getattr(library, name, None) for name in ("mallopt", "malloc_trim"))
    if set_option is not None:
        set_option(_MMAP_THRESHOLD, _LARGE_BYTES)
    if give_back is not None:
        give_back(0)
