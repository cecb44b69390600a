"""What a termination (SIGTERM) does: the stack unwinds, so that files are closed."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, NoReturn

_AGAIN_S = 0.2  # after which a termination that was lost comes again


@contextmanager
def unwinding() -> Iterator[None]:
    """Let SIGTERM unwind the stack; a second one ends the process at once.

    Python runs a signal's handler wherever its interpreter happens to be. What the handler raises
    inside a callback of C code is dropped there, as while a compiler loads kept machine code, and
    some C code forgets the errors of what it tries. So it is raised again until the stack unwinds.
    """
    if threading.current_thread() is not threading.main_thread():  # where no handler may be set
        yield
        return
    ended = SystemExit(128 + signal.SIGTERM)
    with ExitStack() as undo:
        said = sys.unraisablehook

        def quiet(dropped: Any) -> None:
            if dropped.exc_value is not ended:
                said(dropped)

        def again(number: int, frame: Any) -> None:
            if not _is_handled(ended):
                raise ended

        def stop(number: int, frame: Any) -> NoReturn:
            signal.signal(number, signal.SIG_DFL)
            undo.callback(setattr, sys, "unraisablehook", said)
            sys.unraisablehook = quiet
            _set(undo, signal.SIGALRM, again)
            signal.siginterrupt(signal.SIGALRM, False)  # what files are closed with goes on
            timer = signal.setitimer(signal.ITIMER_REAL, _AGAIN_S, _AGAIN_S)
            undo.callback(signal.setitimer, signal.ITIMER_REAL, *timer)
            raise ended

        _set(undo, signal.SIGTERM, stop)
        yield


def _set(undo: ExitStack, number: int, handler: Any) -> None:
    """Set a signal's handler until the stack is closed."""
    before = signal.signal(number, handler)
    undo.callback(signal.signal, number, before or signal.SIG_DFL)


def _is_handled(error: BaseException) -> bool:
    """Whether an exception is being handled: by an `except`, a `finally` or a `with`."""
    found = sys.exc_info()[1]
    while found is not None and found is not error:
        found = found.__context__
    return found is not None
