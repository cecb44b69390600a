"""Processes that write are killed, at random moments and at some of their calls: nothing is lost.

`test_faults` stops writers at each call, inside the process of the test; here the system does it.
Recordings are killed in `test_trace_kill`, whole commands in `benchmarks.kill_writers`.
"""

import contextlib
import os
import random
import shutil
import signal
import sys
import time
from pathlib import Path

import fault_cases as cases
import pytest
from fault_cases import WRITERS, names
from test_trace_kill import Forker, die_at, import_all

KILLS = 3  # of each writer, at random moments
WIDEST = 16  # calls from one that a writer dies at to the next


def serve() -> None:
    """Fork a writer for each line of stdin: its name, the folder, the call to die at (or -1)."""
    import_all()
    print("ready", flush=True)
    for line in sys.stdin:
        name, folder, call = line.rstrip("\n").split("\t")
        pid = os.fork()
        if pid == 0:
            if int(call) >= 0:
                die_at(int(call))
            getattr(cases, name)(Path(folder))
            os._exit(0)
        print(pid, flush=True)
        print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)


class Writers(Forker):
    """A process without threads that forks writers, one after the other."""

    served = "import test_writers_kill; test_writers_kill.serve()"

    def begin(self, writer: str, folder: Path, call: int = -1) -> int:
        self.process.stdin.write(f"{writer}\t{folder}\t{call}\n".encode())
        return int(self.process.stdout.readline())


@pytest.fixture(scope="module")
def writers():
    made = Writers()
    yield made
    made.process.communicate()


@pytest.fixture
def start(tmp_path, request):
    """What is there before a writer begins."""
    folder = tmp_path / "start"
    folder.mkdir()
    if prepare := WRITERS[request.getfixturevalue("writer")].before:
        getattr(cases, prepare)(folder)
    return folder


def whole_again(writer, folder, whole):
    """What a killed writer has left is the old or the new; the same again makes it the new."""
    found = WRITERS[writer].look(folder)
    assert found in (WRITERS[writer].old, "new", "some")
    if found != "new" or names(folder) != names(whole):
        getattr(cases, writer)(folder)
    assert WRITERS[writer].look(folder) == "new" and names(folder) == names(whole)
    return found


@pytest.mark.parametrize("writer", WRITERS)
def test_killed(writer, start, writers, tmp_path):
    whole = shutil.copytree(start, tmp_path / "whole")
    begun = time.monotonic()
    writers.begin(writer, whole)
    assert writers.exit_code() == 0
    span_s = time.monotonic() - begun
    assert WRITERS[writer].look(whole) == "new"
    draw, found, call, code = random.Random(writer), set(), 0, 77
    while code == 77:
        folder = shutil.copytree(start, tmp_path / f"call{call}")
        writers.begin(writer, folder, call)
        code = writers.exit_code()
        assert code in (0, 77)
        found.add(whole_again(writer, folder, whole))
        call += draw.randint(1, WIDEST)
    assert found > {WRITERS[writer].old}
    for kill in range(KILLS):
        folder = shutil.copytree(start, tmp_path / f"kill{kill}")
        child = writers.begin(writer, folder)
        time.sleep(draw.uniform(0, span_s))
        with contextlib.suppress(ProcessLookupError):  # it has just ended
            os.kill(child, signal.SIGKILL)
        assert writers.exit_code() in (0, -signal.SIGKILL)
        whole_again(writer, folder, whole)
