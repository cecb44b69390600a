"""Stop a writer, or let its disk run full, at one of the calls that change the disk.

A process that is killed changes nothing any more, whatever its handlers would do, and its files are
closed. That is what happens here, inside the process of the test: from the chosen call on every
call raises `Killed`, and what the writer left open is closed behind it. Real kills are in
`test_trace_kill` and `benchmarks.kill_writers`.
"""

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress

CALLS = ("open", "write", "fsync", "ftruncate", "rename", "mkdir", "unlink", "rmdir")
ONLY_FREE = ("unlink", "rmdir", "ftruncate")  # a full disk does not mind them
MODES = ("killed", "full", "full once")
KILLED, FULL, FULL_ONCE = MODES


class Killed(BaseException):
    """The process is dead."""


class Stop:
    """At which call a writer is stopped.

    Args:
        mode: "killed" lets it change nothing from that call on, but for the first half of a write;
            "full" is a disk that is full from then on; "full once" one that has room again at once.
        call: its number among those that `CALLS` names, from 0.

    Attributes:
        hit: whether the writer came so far.
    """

    def __init__(self, mode: str, call: int) -> None:
        self.mode, self.left, self.hit = mode, call, False

    def __call__(self, name: str, real, *given, **keywords):
        """One of the calls."""
        if name == "open" and not given[1] & (os.O_CREAT | os.O_WRONLY | os.O_RDWR):
            return real(*given, **keywords)
        self.left -= 1
        now = self.left == -1
        self.hit |= now
        if self.hit and self.mode == KILLED:
            if now and name == "write":
                real(given[0], bytes(given[1][: len(given[1]) // 2]))
            raise Killed
        if (now or self.hit and self.mode == FULL) and name not in ONLY_FREE:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return None if name == "fsync" else real(*given, **keywords)  # nobody cuts the power here


@contextmanager
def stopped(mode: str, call: int) -> Iterator[Stop]:
    """Stop what runs in the block, see `Stop`; the block ends quietly if it was killed."""
    stop, real = Stop(mode, call), {name: getattr(os, name) for name in (*CALLS, "close")}
    handles: set[int] = set()

    def patched(name):
        def wrapper(*given, **keywords):
            found = stop(name, real[name], *given, **keywords)
            if name == "open" and given[1] & (os.O_CREAT | os.O_DIRECTORY):  # those that are locked
                handles.add(found)
            return found

        return wrapper

    def close(handle):
        handles.discard(handle)
        real["close"](handle)

    try:
        for name in CALLS:
            setattr(os, name, patched(name))
        os.close = close
        with suppress(Killed):
            yield stop
    finally:
        for name, function in real.items():
            setattr(os, name, function)
        for handle in handles:  # as the system does
            os.close(handle)
