"""A process that is started, watched and ended with this one."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from simkit.engines.base import EngineError

_GRACE_S = 5.0  # between asking a process to end and ending it
_LAST_BYTES = 16_384  # of a log that are searched for what went wrong
# The child dies with us even where we are killed: Linux sends it the signal (9) that it asks for.
_LAUNCH = (
    "import ctypes,os,sys\n"
    "try: ctypes.CDLL(None).prctl(1, 9)\n"
    "except (AttributeError, OSError): pass\n"
    "if os.getppid() != int(sys.argv[1]): sys.exit(1)\n"
    "try: os.execvp(sys.argv[2], sys.argv[2:])\n"
    "except OSError as error: sys.exit(f'error: {sys.argv[2]}: {error.strerror}')\n"
)


class Child:
    """A process in a group of its own, whose output is kept in a file while it runs.

    The file goes when the process is ended well, and stays, to be read, when something failed.

    Attributes:
        name: of the program, for messages.
        log: the file.
        process: see `subprocess.Popen`; its standard input and output are pipes if asked for.
    """

    def __init__(self, name: str, command: Sequence[str], pipes: bool = False) -> None:
        """Start it.

        Args:
            name: see the class.
            command: the program and its arguments.
            pipes: it is spoken to by standard input and output; else these are the log's.
        """
        self.name = name
        handle, path = tempfile.mkstemp(prefix=f"simkit-{name}-", suffix=".log")
        self.log = Path(path)
        self._failed = False
        launch = [sys.executable, "-S", "-E", "-c", _LAUNCH, str(os.getpid()), *command]
        try:
            self.process: subprocess.Popen[bytes] = subprocess.Popen(
                launch,
                stdin=subprocess.PIPE if pipes else subprocess.DEVNULL,
                stdout=subprocess.PIPE if pipes else handle,
                stderr=handle,
                start_new_session=True,
            )
        finally:
            os.close(handle)

    @property
    def alive(self) -> bool:
        """Whether it still runs."""
        return self.process.poll() is None

    def processor_s(self) -> float:
        """CPU seconds that it has taken so far; NaN where the system does not say."""
        try:
            return time.clock_gettime((~self.process.pid << 3) | 2)  # Linux: a process's own clock
        except OSError:
            return float("nan")

    def failure(self, what: str) -> EngineError:
        """What to raise where it did not do its part; the log is kept.

        Args:
            what: happened, behind the program's name.
        """
        self._failed = True
        with suppress(subprocess.TimeoutExpired):  # one that has just died is told so
            self.process.wait(0.2)
        code = self.process.poll()
        if code is not None:
            how = f"signal {-code}" if code < 0 else f"status {code}"
            what = f"{what}: it ended with {how}"
        said = self._complaint()
        return EngineError(f"{self.name} {what}{f' ({said})' if said else ''}; its log: {self.log}")

    def _complaint(self) -> str:
        """The last line of its log that speaks of an error."""
        with self.log.open("rb") as opened:
            opened.seek(max(0, self.log.stat().st_size - _LAST_BYTES))
            lines = opened.read().decode(errors="replace").splitlines()
        bad = [
            line.strip() for line in lines if "error" in line.lower() or "failed" in line.lower()
        ]
        return bad[-1][:200] if bad else ""

    def end(self) -> None:
        """End it with all that it has started; again is nothing."""
        for number in (signal.SIGTERM, signal.SIGKILL):
            if not self.alive:
                break
            self._signal(number)
            with suppress(subprocess.TimeoutExpired):
                self.process.wait(_GRACE_S)
        self._signal(signal.SIGKILL)  # what it left behind
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                with suppress(OSError):
                    pipe.close()
        if not self._failed:
            self.log.unlink(missing_ok=True)

    def _signal(self, number: int) -> None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, number)
