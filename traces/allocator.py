"""Memory that is free again."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager

_MMAP_THRESHOLD = -3  # of glibc's mallopt
_LARGE_BYTES = 2**20
_may_set = [False]


@contextmanager
def own_process() -> Iterator[None]:
    """Within, `trim` may change the allocator's settings, which nothing can restore.

    The process is a command's, and nobody else's.
    """
    before, _may_set[0] = _may_set[0], True
    try:
        yield
    finally:
        _may_set[0] = before


def trim() -> None:
    """Give freed memory back to the system, where the allocator can be asked to (glibc).

    It keeps what threads have freed, and after some replays of a long trace that is half a GB. Left
    to itself it also raises the size from which an array has pages of its own, which are given back
    as soon as it is freed; in a command's own process that size is fixed.
    """
    library = ctypes.CDLL(None)
    set_option, give_back = (getattr(library, name, None) for name in ("mallopt", "malloc_trim"))
    if set_option is not None and _may_set[0]:
        set_option(_MMAP_THRESHOLD, _LARGE_BYTES)
    if give_back is not None:
        give_back(0)
