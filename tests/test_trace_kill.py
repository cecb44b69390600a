"""A recording that is killed and resumed, again and again, ends in the same bytes."""

import contextlib
import os
import random
import select
import signal
import subprocess
import sys
import time
from importlib import import_module
from pathlib import Path

import pytest
from trace_files import hashes, record, trace

from traces import files
from traces.errors import TraceError
from traces.manifest import MANIFEST, Manifest, read_manifest
from traces.validate import validate

LOOKS_S = 0.001  # between two looks at a recording that goes on
SHARDS = 12  # of the recording that is killed at random moments
CALLS = ("fsync", "rename", "unlink", "rmdir", "mkdir")


def run(folder: Path, n: int) -> None:
    """Record n prompts, each a shard, or go on with that."""
    record(folder, trace(n=n), batch_size=1, resume=True)


def die_at(call: int) -> None:
    """End this process in place of the given call of those that change the disk."""
    left = [call]

    def patched(name):
        real = getattr(os, name)

        def wrapper(*arguments, **keywords):
            left[0] -= 1
            if left[0] < 0:
                if name == "fsync" and not os.path.isdir(f"/proc/self/fd/{arguments[0]}"):
                    os.truncate(arguments[0], os.fstat(arguments[0]).st_size // 2)  # half written
                os._exit(77)
            return real(*arguments, **keywords)

        return wrapper

    for name in CALLS:
        setattr(os, name, patched(name))


def import_all() -> None:
    """What pyarrow would import in each fork, half a second of it."""
    with contextlib.suppress(ImportError):
        import_module("pandas")


def serve() -> None:
    """Fork a recorder for each line of stdin: folder, prompts, call to die at (or -1)."""
    import_all()
    print("ready", flush=True)
    for line in sys.stdin:
        folder, n, call = line.rstrip("\n").split("\t")
        pid = os.fork()
        if pid == 0:
            if int(call) >= 0:
                die_at(int(call))
            run(Path(folder), int(n))
            os._exit(0)
        print(pid, flush=True)
        print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)


class Forker:
    """A process without threads that forks recorders, one after the other."""

    served = "import test_trace_kill; test_trace_kill.serve()"

    def __init__(self) -> None:
        command = [sys.executable, "-c", self.served]
        here = Path(__file__).parent
        env = os.environ | {"PYTHONPATH": os.pathsep.join([str(here), str(here.parent)])}
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=env, bufsize=0
        )
        assert self.process.stdout.readline() == b"ready\n"  # all is imported: spans are short

    def start(self, folder: Path, n: int, call: int = -1) -> int:
        self.process.stdin.write(f"{folder}\t{n}\t{call}\n".encode())
        return int(self.process.stdout.readline())

    def ended(self, timeout_s: float = 0) -> bool:
        return bool(select.select([self.process.stdout], [], [], timeout_s)[0])

    def exit_code(self) -> int:
        assert self.ended(60)
        return int(self.process.stdout.readline())


@pytest.fixture(scope="module")
def forker():
    made = Forker()
    yield made
    made.process.communicate()


def look(folder: Path, seen: set[str]) -> None:
    """What the manifest lists is whole, at whatever moment one looks."""
    try:
        manifest = read_manifest(folder)
    except TraceError as error:
        assert "no such folder" in str(error) or f"it has no {MANIFEST}" in str(error)
        assert not seen
        return
    for name in sorted(manifest.files.keys() - seen):
        try:
            files.check_hash(folder, name, manifest.files[name])
            files.read(folder, name, manifest.files[name])
        except TraceError:
            assert name.startswith("parts/") and read_manifest(folder).complete
    seen |= {name for name in manifest.files if not name.startswith("parts/")}
    _check_shards(manifest)


def _check_shards(manifest: Manifest) -> None:
    """No shard is listed in part."""
    shards = [
        {name[-13:-8] for name in manifest.shard_files(table)}
        for table in ("positions", "branches", "parts")
    ]
    assert shards[0] == shards[1]
    assert shards[2] == (set() if manifest.complete else shards[0])


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """Hashes of recordings that nobody disturbed, by number of prompts."""
    made = {}
    for n in (2, SHARDS):
        folder = tmp_path_factory.mktemp("whole")
        run(folder, n)
        made[n] = hashes(folder)
    return made


@pytest.fixture
def span_s(tmp_path, forker):
    """Seconds that a recorder takes here and now which nobody disturbs."""
    begun = time.monotonic()
    forker.start(tmp_path / "undisturbed", SHARDS)
    assert forker.exit_code() == 0
    return time.monotonic() - begun


def test_killed_at_random_moments(tmp_path, whole, forker, span_s):
    draw = random.Random(1)
    kills = recording = 0
    while kills < 20:
        folder, seen, code = tmp_path / str(recording), set(), None
        recording += 1
        while code != 0:
            child = forker.start(folder, SHARDS)
            deadline = time.monotonic() + draw.uniform(0, span_s)
            while time.monotonic() < deadline and not forker.ended(LOOKS_S):
                look(folder, seen)
            with contextlib.suppress(ProcessLookupError):  # it has just ended
                os.kill(child, signal.SIGKILL)
            code = forker.exit_code()
            look(folder, seen)
            assert code in (0, -signal.SIGKILL)
            kills += code != 0
        assert hashes(folder) == whole[SHARDS]
        assert validate(folder) == []


def test_killed_at_every_call(tmp_path, whole, forker):
    """Each call that changes the disk is once the last."""
    call, code = 0, 77
    while code == 77:
        folder = tmp_path / str(call)
        forker.start(folder, 2, call)
        code = forker.exit_code()
        look(folder, set())
        if code == 77:
            run(folder, 2)
        assert hashes(folder) == whole[2]
        assert not (folder / "parts").exists()
        call += 1
    assert code == 0 and call > 30
